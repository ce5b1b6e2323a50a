"""The loop: send requests, run the tool calls of each reply, and end the run."""
