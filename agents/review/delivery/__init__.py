"""The third stage of a review: make the report, compute the verdict, and post the findings."""
