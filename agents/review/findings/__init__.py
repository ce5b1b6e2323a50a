"""Findings of a review: what analysers and rules say without a model, and what a model reports."""
