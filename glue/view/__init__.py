"""Transcripts as one HTML page that loads nothing and obeys nothing it shows."""
