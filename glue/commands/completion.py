"""`glue completion`: a script for the shell."""

from __future__ import annotations

import click

HOW = {
    "bash": 'eval "$(glue completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(glue completion zsh)"      # in ~/.zshrc',
    "fish": "glue completion fish | source      # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(HOW)))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    \b
    eval "$(glue completion bash)"     # in ~/.bashrc
    eval "$(glue completion zsh)"      # in ~/.zshrc
    glue completion fish | source      # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from glue.cli import commands

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    made = found(commands, {}, "glue", "_GLUE_COMPLETE")
    # Not source(): for bash that starts a shell to ask for its version.
    click.echo(made.source_template % made.source_vars())
