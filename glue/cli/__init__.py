"""The command line: a module for each command, or for a few that share their subject; app.py has the table."""
