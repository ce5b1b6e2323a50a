"""Transcripts as HTML pages."""
