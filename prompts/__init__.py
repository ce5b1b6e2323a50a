"""Prompts with versions."""
