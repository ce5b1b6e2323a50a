"""The forges a review can be posted to."""
