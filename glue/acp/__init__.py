"""The Agent Client Protocol, version 1: an agent in an editor, over standard input and output."""
