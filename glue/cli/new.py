"""`glue new`: write a single-file agent from a template."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from glue.errors import ConfigError
from glue.providers import default

# The prompt that `glue new` suggests for each template.
PROMPTS = {
    "tool": "What is the weather in Toronto?",
    "chat": "What day is it today?",
    "review": "Review this branch.",
    "structured": "The export button does nothing.",
    "subagents": "Compare Oslo and Bergen.",
}


@click.command()
@click.argument("name", metavar="NAME.py")
@click.option(
    "-t",
    "--template",
    type=click.Choice(tuple(PROMPTS)),
    default="tool",
    show_default=True,
    help="The example that the file contains.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(name: str, template: str, force: bool) -> None:
    """Write a single-file agent that is ready to run.

    On a terminal you can try it without an API key: a stand-in, which is not a model, then answers
    and says so. In a pipe, and if the agent has an output type, a missing key is an error.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if path.name.strip(".") in ("", "py"):
        raise click.UsageError(f"{name!r} is not a file name")
    if path.stem == "glue" or path.stem in sys.stdlib_module_names:
        raise click.UsageError(
            f"{path.name} would shadow the module {path.stem}; choose another name"
        )
    source = Path(__file__).parent / "templates" / f"{template}.py"
    text = source.read_text(encoding="utf-8").replace("NAME.py", path.name)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} exists already; --force overwrites it") from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(path)
    prompt = f'"{PROMPTS[template]}"'
    click.echo(f"run it:     python {path} {prompt}", err=True)
    command = f"chat {path}" if template == "chat" else f"run {path} {prompt}"
    click.echo(f"or:         glue {command}", err=True)
    try:
        model = f"{default()} (-m or GLUE_MODEL selects another)"
    except ConfigError:
        model = (
            "none, because no key is set: on a terminal a stand-in answers; for a real one set a "
            "key such as ANTHROPIC_API_KEY, or GLUE_MODEL=ollama:qwen3:0.6b"
        )
    click.echo(f"the model:  {model}", err=True)
