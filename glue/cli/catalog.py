"""Lists of providers, models, prompts and ready-made tools: `glue providers`, `models`, `prompts` and `tools`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from glue.cli.app import ListGroup
from glue.cli.output import json_option, print_json, print_rows
from glue.context import AnyTool
from glue.errors import ConfigError
from glue.text import clean_text, count, one_line

if TYPE_CHECKING:
    from glue.prompts import Catalog, Prompt


@click.command()
@click.option("--check", "names", multiple=True, metavar="NAME", help="Send one tiny request and say what happened.")
@json_option
def providers(names: tuple[str, ...], as_json: bool) -> None:
    """List the providers: name, wire, key variable and whether it is set, default model, context window.

    --check leaves with 0 where the model answered, 2 for a wrong name, key or address, 1 for a host that does
    not answer.
    """
    from glue.providers import models as listing

    if names:
        import anyio

        worst = 0
        for name in names:
            code, text = anyio.run(listing.check, name)
            click.echo(one_line(text) if code == 0 else f"glue: {one_line(text)}", err=code != 0)
            worst = max(worst, code)
        sys.exit(worst)
    words = {True: "set", False: "not set", None: "not needed"}
    print_rows(
        listing.provider_rows(),
        ("name", "wire?", "key", "", "default model?", ">window?"),
        lambda row: (row["name"], row["wire"], row["key"], words[row["key_set"]], row["model"], row["window"]),
        as_json,
    )


class ModelsGroup(click.Group):
    """A group whose first word may be a provider."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ModelsGroup)
def models() -> None:
    """List known models with windows and prices (`glue models PROVIDER`), or name one of your own."""


@models.command(name="list")
@click.argument("provider", required=False)
@click.option("--server", is_flag=True, help="Ask the provider's server which models it has.")
@json_option
def list_models(provider: str | None, server: bool, as_json: bool) -> None:
    """List known models with windows and prices. PROVIDER narrows it down, --server asks its server."""
    from glue.providers import aliases, default, lookup
    from glue.providers import models as listing

    if server:
        import anyio

        names = anyio.run(listing.server_models, provider or default())
        print_json(names) if as_json else click.echo("\n".join(map(one_line, names)))
        return
    name = lookup(provider).name if provider else ""
    rows = listing.model_rows(name)
    heads = ("model", ">window?", ">input", ">output", ">cached?", "note?")
    print_rows(rows, heads, _model_cells, as_json, f"no models of {name} are known; any may be named")
    if as_json or not rows:
        return
    for alias, spec in sorted(aliases().items()) if not name else ():
        click.echo(f"{alias} = {spec}")
    click.echo(
        f"USD per million tokens, list prices of {listing.date()}; any other model may be named, without a cost."
    )


def _model_cells(row: dict[str, Any]) -> tuple[object, ...]:
    notes = ["default"] if row["default"] else []
    notes += [f"ends {row['ends']}"] if row["ends"] else ["deprecated"] if row["deprecated"] else []
    notes += [f"more above {tier[0]:,}" for tier in row["tiers"]]
    return (row["model"], row["window"], row["input"], row["output"], row["cached"], ", ".join(notes))


@models.command()
@click.argument("name")
@click.argument("model")
def alias(name: str, model: str) -> None:
    """Give a model a name of your own. `glue models alias fast groq:llama-3.1-8b-instant`, then `-m fast`."""
    from glue.cli.config import write_setting
    from glue.providers import known, lookup, split

    if not re.fullmatch(r"[A-Za-z][\w-]*", name) or name in known():
        raise ConfigError(f"{name!r} cannot be an alias; take a word of letters that names no provider")
    for each in split(model):
        lookup(each)  # a wrong name is said now
    write_setting(name, model, "aliases")


@models.command()
@click.argument("name")
def unalias(name: str) -> None:
    """Remove a name of your own."""
    from glue.cli.config import write_setting

    write_setting(name, None, "aliases")


# Prompts ------------------------------------------------------------------------------------------

_source = click.option(
    "--from",
    "source",
    metavar="FOLDER",
    callback=lambda ctx, _, path: path or ctx.obj,  # where the command does not name it, the group may have
    help="A folder of prompts, instead of those of glue.",
)


@click.group(cls=ListGroup)
@_source
@click.pass_context
def prompts(ctx: click.Context, source: str | None) -> None:
    """List, show and compare versions of prompts."""
    ctx.obj = source


@prompts.command(name="list")
@_source
@json_option
def list_prompts(source: str | None, as_json: bool) -> None:
    """List prompts with their versions; the default is marked."""
    rows: list[dict[str, Any]] = [
        {"name": each.name, "versions": list(each.versions()), "default": each.default, "hash": each.get().hash}
        for each in _catalogs(source).values()
    ]

    def cells(row: dict[str, Any]) -> tuple[object, ...]:
        versions = (f"{name}*" if name == row["default"] else name for name in row["versions"])
        return row["name"], ", ".join(versions), row["hash"]

    none = f"no prompts in {source}; a prompt is a folder of versions: NAME/v1.md"
    print_rows(rows, ("prompt", "versions", "hash"), cells, as_json, none)


@prompts.command(name="show")
@click.argument("name")
@click.argument("version", required=False, default="")
@_source
def show_prompt(name: str, version: str, source: str | None) -> None:
    """Print one version of a prompt; the default where none is named."""
    click.echo(_find(source, name).get(version).text, nl=False)


@prompts.command()
@click.argument("name")
@click.argument("old")
@click.argument("new")
@_source
def diff(name: str, old: str, new: str, source: str | None) -> None:
    """Compare two versions of a prompt."""
    click.echo(_find(source, name).diff(old, new), nl=False)


def _catalogs(source: str | None) -> dict[str, Catalog]:
    from glue.prompts import catalogs

    return {each.name: each for each in (catalogs(source) if source else catalogs())}


def _find(source: str | None, name: str) -> Catalog:
    found = _catalogs(source)
    if name not in found:
        raise ConfigError(f"there is no prompt {name!r}; there are: {', '.join(found) or 'none'}")
    return found[name]


def find_version(named: str) -> Prompt:
    """Find a prompt by NAME or NAME@VERSION in the catalog; a name with a slash is a folder of versions."""
    name, _, version = named.partition("@")
    if "/" in name:
        from glue.prompts import Catalog

        return Catalog(name).get(version)
    return _find(None, name).get(version)


# Tools --------------------------------------------------------------------------------------------

BUNDLES = {
    "fs": "read and search files below this folder",
    "edit": "fs, and write files, each with permission",
    "git": "read the history of this checkout",
    "shell": "run commands, each with permission",
    "coding": "edit, and git where there is a checkout",
}


@click.group(cls=ListGroup)
def tools() -> None:
    """Check tools before a model sees them, and list the ready-made ones."""


@tools.command(name="list")
@click.option("--sizes", is_flag=True, help="Print how many tokens each tool's schema takes in every request.")
@json_option
def list_tools(sizes: bool, as_json: bool) -> None:
    """List the ready-made tools that --tools takes."""
    found: list[dict[str, Any]]
    if sizes:
        import tempfile

        from glue.codec import to_plain
        from glue.limits import estimate_tokens
        from glue.tools import fs, git, shell

        with tempfile.TemporaryDirectory() as root:
            made = [*fs.tools(root, write=True), *git.tools(root, trust=True), *shell.tools(root)]
        rows = {each.name: estimate_tokens(json.dumps(to_plain(each.spec), ensure_ascii=False)) for each in made}
        rows |= {f"{len(rows)} tools": sum(rows.values())}
        found = [{"name": name, "tokens": size} for name, size in rows.items()]
        heads = ("tool", ">tokens, about")
    else:
        found = [{"name": name, "description": text} for name, text in BUNDLES.items()]
        heads = ("tools", "what they do")
    print_rows(found, heads, lambda row: tuple(row.values()), as_json)


@tools.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE|FILE.py...")
@json_option
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Say what is to mend in tools. Descriptions that are missing, what some provider would refuse. The files are run.

    Leaves with 1 where there is something to mend.
    """
    from glue.cli.agentfile import import_file
    from glue.tools.check import ToolProblem, check_tools, tools_of

    found: list[ToolProblem] = []
    checked = 0
    for name in modules:
        made = tools_of(import_file(name))
        checked += len(made)
        found += check_tools(made)
        if not made:
            click.echo(f"glue: {name} holds no tools", err=True)
    if as_json:
        print_json([{"tool": each.tool, "text": each.text, "wires": list(each.wires)} for each in found])
    else:
        for finding in found:
            click.echo(clean_text(str(finding)))
    click.echo(f"{count(checked, 'tool')}, {len(found) or 'nothing'} to mend", err=True)
    sys.exit(1 if found else 0)


def check_bundles(names: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """Give names of bundles as they are written, or say that there is no such bundle, nor a tool of the agent's own."""
    names = [name.strip().lower() for name in names]
    for name in names:
        if name not in BUNDLES:
            raise ConfigError(f"there are no tools {name!r}; there are: {', '.join((*own, *BUNDLES))}")
    return names


def make_tools(names: Iterable[str], own: Iterable[str] = ()) -> list[AnyTool]:
    """Make the tools of several bundles in this folder; one that two of them hold comes once."""
    found: dict[str, Any] = {}
    for name in check_bundles(names, own):
        module = import_module(f"glue.tools.{'fs' if name == 'edit' else name}")
        try:
            made = module.tools(".", write=True) if name == "edit" else module.tools(".")
        except ValueError as error:  # no checkout
            raise ConfigError(f"the tools of {name}: {error}") from None
        for tool in made:
            found.setdefault(tool.spec.name, tool)
    return list(found.values())
