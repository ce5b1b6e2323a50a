"""What hangs on the loop: one small policy a file, each answering some of the four hooks."""
