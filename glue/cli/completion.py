"""`glue completion`: the script that makes a shell complete `glue` commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from glue.cli.app import commands


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    \b
    eval "$(glue completion bash)"     # in ~/.bashrc
    eval "$(glue completion zsh)"      # in ~/.zshrc
    glue completion fish | source      # in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(commands, {}, "glue", "_GLUE_COMPLETE")
    # Not script.source(): for bash it starts a shell to find out its version.
    click.echo(script.source_template % script.source_vars())
