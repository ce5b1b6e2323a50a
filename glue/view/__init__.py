"""Transcripts as HTML: one page that loads nothing and obeys nothing it shows."""
