"""The command line: app.py has the table of commands; other modules are commands or helpers."""
