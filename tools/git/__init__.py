"""Git tools that read objects and run nothing of the repository."""
