"""Ready-made tools: files, git, shell."""
