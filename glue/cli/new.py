"""`glue new`: a single-file agent that runs as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import click

PROMPTS = {
    "tool": "What is the weather in Toronto?",
    "chat": "Hello!",
    "review": "Review this branch.",
    "structured": "The export button does nothing.",
    "subagents": "Compare Oslo and Bergen.",
}


@click.command()
@click.argument("name", metavar="NAME.py")
@click.option("-t", "--template", type=click.Choice(tuple(PROMPTS)), default="tool", show_default=True)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def new(name: str, template: str, force: bool) -> None:
    """Write a single-file agent. It runs at once, also without a key: the offline stand-in answers then."""
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if path.name == ".py":
        raise click.UsageError(f"{name!r} is no name for a file")
    text = read_template(template).replace("NAME.py", path.name)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; --force writes over it") from None
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise click.UsageError(f"{path} cannot be written: no such folder, or a folder itself") from None
    click.echo(path)
    for line in hints(path, template):
        click.echo(line, err=True)


def read_template(name: str) -> str:
    return (Path(__file__).parent / "templates" / f"{name}.py").read_text(encoding="utf-8")


def hints(path: Path, template: str) -> list[str]:
    """Say what to do next."""
    prompt = f'"{PROMPTS[template]}"'
    lines = [f"run it:     python {path} {prompt}"]
    lines.append(f"or:         glue chat {path}" if template == "chat" else f"or:         glue run {path} {prompt}")
    from glue.errors import ConfigError
    from glue.providers import default

    try:
        lines.append(f"the model:  {default(os.environ)} (-m or GLUE_MODEL names another)")
    except ConfigError:
        lines.append("the model:  none yet; set a key such as ANTHROPIC_API_KEY, or GLUE_MODEL=ollama:qwen3:0.6b")
    return lines
