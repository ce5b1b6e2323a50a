"""Agents built on the public API alone."""
