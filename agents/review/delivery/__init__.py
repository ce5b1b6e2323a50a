"""The third stage of a review: the verdict, the forges, and reports in other formats."""
