"""`glue sessions`: list, print, search, export and remove stored conversations."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from glue.errors import ConfigError, StoreError
from glue.paths import state_dir
from glue.text import clean_text, one_line

if TYPE_CHECKING:
    from glue.messages import Message
    from glue.stores.store import Store


T = TypeVar("T")

_store = click.option(
    "--store", metavar="PATH", help="The folder, the .db file or the postgresql:// address that keeps them."
)


@click.group(invoke_without_command=True)
@_store
@click.pass_context
def sessions(ctx: click.Context, store: str | None) -> None:
    """List, show, search, export and remove conversations."""
    ctx.obj = store
    if ctx.invoked_subcommand is None:
        show_list(store, as_json=False)


@sessions.command(name="list")
@_store
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_(given: str | None, store: str | None, as_json: bool) -> None:
    """List conversations, the last one first; forks stand below their parents."""
    show_list(store or given, as_json=as_json)


@sessions.command()
@click.argument("name")
@_store
@click.pass_obj
def show(given: str | None, name: str, store: str | None) -> None:
    """Print one conversation."""
    for message in _load(store or given, name):
        click.echo(_plain_text(message))


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@_store
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Hits, at most.")
@click.option("--session", "session", metavar="NAME", help="Look in this one only.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Look at these messages only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def search(given: str | None, /, words: tuple[str, ...], store: str | None, as_json: bool, **options: Any) -> None:
    """Find messages that hold every word; "a phrase" in quotes, a prefix as word*. Leaves with 1 where none does."""
    hits = _with_store(store or given, lambda opened: opened.search(" ".join(words), **options))
    if as_json:
        fields = ("session", "message_id", "role", "snippet", "at")
        click.echo(json.dumps([{name: getattr(hit, name) for name in fields} for hit in hits], indent=2))
    else:
        for hit in hits:
            click.echo(f"{one_line(hit.session)}  {hit.role}  {one_line(hit.snippet)}")
    sys.exit(0 if hits else 1)


@sessions.command()
@click.argument("name")
@_store
@click.option("-f", "--format", "form", type=click.Choice(["json", "jsonl", "md"]), default="json", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write it to a file instead.")
@click.pass_obj
def export(given: str | None, name: str, store: str | None, form: str, output: str | None) -> None:
    """Write one conversation as JSON, JSON lines or Markdown."""
    from glue.messages import message_to_json

    messages = _load(store or given, name)
    rows = [message_to_json(message) for message in messages]
    if form == "md":
        text = "\n\n".join(_markdown(message) for message in messages)
    elif form == "jsonl":
        text = "\n".join(json.dumps(row) for row in rows)
    else:
        text = json.dumps({"session": name, "messages": rows}, indent=2)
    if output is None:
        click.echo(text)
        return
    with open(output, "w", encoding="utf-8") as file:
        file.write(text + "\n")


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@_store
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def rm(given: str | None, names: tuple[str, ...], store: str | None, yes: bool) -> None:
    """Remove conversations for good."""
    from glue.cli.output import is_interactive

    for name in names:
        _load(store or given, name)
    if not yes:
        if not is_interactive():
            raise ConfigError("nobody can be asked here; --yes removes without asking")
        click.confirm(f"Remove {', '.join(names)}?", abort=True, err=True)
    for name in names:
        _with_store(store or given, lambda opened, name=name: opened.delete(name))  # type: ignore[misc]


def show_list(named: str | None, *, as_json: bool) -> None:
    from glue.cli.output import print_table
    from glue.stores.store import lineage

    found = _with_store(named, lambda opened: opened.list())
    if as_json:
        fields = ("id", "created", "updated", "title", "parent", "forked_at")
        click.echo(json.dumps([{name: getattr(info, name) for name in fields} for info in found], indent=2))
        return
    if not found:
        where = store_name(_named(named))
        click.echo(f"no conversations in {where}; `glue run -s NAME ...` and `glue chat -s NAME` keep one", err=True)
    newest = {info.id: info.updated for info in found}
    trees: list[list[tuple[int, Any]]] = []
    for depth, info in lineage(found):
        if depth == 0:
            trees.append([])
        trees[-1].append((depth, info))
    trees.sort(key=lambda tree: max(newest[info.id] for _, info in tree), reverse=True)
    rows = []
    for depth, info in (row for tree in trees for row in tree):
        when = datetime.fromtimestamp(info.updated).strftime("%Y-%m-%d %H:%M")
        rows.append((when, f"{'· ' * depth}{one_line(info.id)}", one_line(info.title, 60)))
    print_table(rows, ("changed", "name", "begins with"))


def _named(given: str | None) -> str:
    from glue.cli.config import settings

    found = settings({"store": given}).get("store")
    return found.value if found is not None else ""


def _with_store(named: str | None, work: Callable[[Store], Awaitable[T]]) -> T:
    import anyio

    store = open_store(_named(named))

    async def main() -> T:
        try:
            return await work(store)
        except ValueError as error:  # a name that no store can keep
            raise ConfigError(str(error)) from None

    return anyio.run(main)


def _load(named: str | None, name: str) -> tuple[Message, ...]:
    async def load(store: Store) -> tuple[Message, ...]:
        try:
            return await store.load(name)
        except StoreError as error:
            if name in {info.id for info in await store.list()}:
                raise
            raise ConfigError(str(error)) from None

    return _with_store(named, load)


def _plain_text(message: Message) -> str:
    from glue.messages import AssistantMessage, Thinking, ToolMessage

    if isinstance(message, ToolMessage):
        return clean_text(f"[{message.name}{', an error' if message.is_error else ''}]\n{message.text}\n")
    if isinstance(message, AssistantMessage):
        lines = [f"assistant ({message.provider}:{message.model})".replace(" (:)", "")]
        lines += [f"({part.text})" for part in message.content if isinstance(part, Thinking) and part.text]
        lines += [message.text] if message.text else []
        lines += [f"-> {call.name} {call.arguments}" for call in message.calls]
        return clean_text("\n".join(lines) + "\n")
    origin = "" if message.origin == "user" else f" ({message.origin})"
    return clean_text(f"user{origin}\n{message.text}\n")


def _markdown(message: Message) -> str:
    from glue.messages import AssistantMessage, ToolMessage

    if isinstance(message, ToolMessage):
        return f"### Result of {message.name}{' (an error)' if message.is_error else ''}\n\n{_fenced(message.text)}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n\n### Call of {call.name}\n\n{_fenced(call.arguments)}" for call in message.calls)
        return f"## Assistant\n\n{message.text}{calls}"
    return f"## User\n\n{message.text}"


def _fenced(text: str) -> str:
    import re

    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"


def store_path(named: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    return Path(named).expanduser() if named else state_dir(environ) / "sessions"


def is_address(named: str) -> bool:
    """Tell whether a store is named by the address of a server."""
    return "://" in named


def store_name(named: str = "") -> str:
    """Name a store in a message; an address without its user and password."""
    if not is_address(named):
        return str(store_path(named))
    scheme, _, rest = named.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def open_store(named: str = "") -> Store:
    """Open the store that was named, or the usual one: an address is Postgres, a .db file SQLite, the rest folders."""
    if is_address(named):
        from glue.stores.postgres import PostgresStore

        return PostgresStore(named)
    path = store_path(named)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        if path.is_dir():
            raise ConfigError(f"the store {path} is a folder; a name that ends in {path.suffix} is a file")
        from glue.stores.sqlite import SQLiteStore

        path.parent.mkdir(parents=True, exist_ok=True)
        return SQLiteStore(path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"the store {path} is a file; name a folder, or a file that ends in .db")
    from glue.stores.jsonl import FileStore

    return FileStore(path)


async def last_session(store: Store, named: str = "") -> str:
    """Give the id of the conversation that was changed last."""
    sessions = await store.list()
    if not sessions:
        raise ConfigError(f"there is no conversation to continue in {store_name(named)}; begin one with -s NAME")
    return sessions[0].id
