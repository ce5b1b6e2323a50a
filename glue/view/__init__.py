"""HTML pages that show a transcript, an index of transcripts, or an evaluation."""
