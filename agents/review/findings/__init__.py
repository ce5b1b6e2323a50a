"""The second stage of a review: findings of analysers, rules and a model."""
