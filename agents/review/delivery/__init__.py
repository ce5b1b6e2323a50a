"""Delivery of a review: the gate, the forges, and reports in other formats."""
