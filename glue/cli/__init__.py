"""The command line: a module for each command, and app.py with the table of commands."""
