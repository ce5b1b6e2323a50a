"""The command line."""

from __future__ import annotations

import click


@click.group()
@click.version_option(package_name="glue-agents")
def main() -> None:
    """Small agents in plain Python."""
