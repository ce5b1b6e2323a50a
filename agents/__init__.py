"""Agents that are built with glue."""
