"""File tools that hold against a hostile model."""
