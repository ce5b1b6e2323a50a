"""`glue new`: write an agent file from a template; the template `eval` adds a file of cases."""

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
    "eval": "What is the weather in Toronto?",
}


@click.command()
@click.argument("name", metavar="NAME.py")
@click.option(
    "-t",
    "--template",
    type=click.Choice(tuple(PROMPTS)),
    default="tool",
    show_default=True,
    help="The example to write to NAME.py.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(name: str, template: str, force: bool) -> None:
    """Write a single-file agent that is ready to run.

    On a terminal you can try it without an API key: a stand-in, which is not a model, then answers
    and announces this. In a pipe, and if the agent has an output type, a missing key is an error.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if path.name.strip(".") in ("", "py"):
        raise click.UsageError(f"{name!r} is not a file name; give one such as hello.py")
    if path.stem == "glue" or path.stem in sys.stdlib_module_names:
        raise click.UsageError(
            f"{path.name} would shadow the module {path.stem}; choose another name"
        )
    cases = path.with_suffix(".jsonl")
    targets = [path, cases] if template == "eval" else [path]
    for target in targets:
        if target.exists() and not force:
            raise click.UsageError(f"{target} exists already; --force overwrites it")
    for target in targets:
        _write(Path(__file__).parent / "templates" / f"{template}{target.suffix}", target)
    click.echo(path)
    prompt = f'"{PROMPTS[template]}"'
    click.echo(f"run it:     python {path} {prompt}", err=True)
    command = f"chat {path}" if template == "chat" else f"run {path} {prompt}"
    click.echo(f"or:         glue {command}", err=True)
    if template == "eval":
        click.echo(f"compare:    glue eval {path} {cases} -m NAME -m NAME", err=True)
    try:
        model = f"{default()} (-m or GLUE_MODEL selects another)"
    except ConfigError:
        model = (
            "none, because no key is set; set a key such as ANTHROPIC_API_KEY, or "
            "GLUE_MODEL=ollama:qwen3:0.6b. Until then a stand-in answers, on a terminal only"
        )
    click.echo(f"the model:  {model}", err=True)


def _write(source: Path, target: Path) -> None:
    """Copy a template to `target`; replace NAME in its text by the name of `target`."""
    text = source.read_text(encoding="utf-8").replace("NAME.", f"{target.stem}.")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}") from None
