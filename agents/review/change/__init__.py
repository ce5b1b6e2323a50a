"""The first stage of a review: collect the change into a bundle that the other stages read."""
