"""`python -m glue`: the command line."""

from glue.cli.app import main

main()
