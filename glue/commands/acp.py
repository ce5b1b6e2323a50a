"""`glue acp`: an agent in an editor."""

from __future__ import annotations

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("-m", "--model", default="", help="A model by name, instead of a file.")
@click.option("--tools", type=click.Choice(["coding", "fs", "git"]), default="coding", show_default=True)
@click.option("--store", type=click.Path(file_okay=False), help="Where sessions are kept.")
def acp(file: str | None, model: str, tools: str, store: str | None) -> None:
    """Serve the agent of FILE, or a model with ready-made tools, to an editor on standard input and output.

    Editors start this command themselves; docs/editors.md has the lines for Zed and Neovim.
    """
    from glue.acp.main import coding_agent, fixed_agent, serve

    if file:
        from glue.commands.loading import load_agent

        agent = load_agent(file)
        serve(fixed_agent(agent), store)
        return
    if not model:
        from glue.providers import default

        model = default()
    serve(coding_agent(model, tools), store)
