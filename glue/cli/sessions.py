"""Stored conversations: `glue sessions` lists, prints, searches, exports and removes them, `glue view` makes pages."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click

from glue.cli.app import ListGroup
from glue.cli.config import settings
from glue.cli.options import TO_WRITE
from glue.cli.output import is_interactive, json_option, print_json, print_rows
from glue.errors import ConfigError, GlueError, ReplayError, StoreError
from glue.messages import AssistantMessage, Message, Thinking, ToolMessage, message_to_json
from glue.paths import state_dir, write_private
from glue.stores import is_address, open_store, store_name, store_path
from glue.text import clean_text, count, dollars, one_line

if TYPE_CHECKING:
    from glue.stores.store import SessionInfo, Store
    from glue.view.sources import Listed, Transcript


T = TypeVar("T")

_store = click.option(
    "--store",
    metavar="PATH",
    callback=lambda ctx, _, path: path or ctx.obj,  # where the command does not name it, the group may have
    help="The folder, the .db file or the postgresql:// address that keeps them.",
)


@click.group(cls=ListGroup)
@_store
@click.pass_context
def sessions(ctx: click.Context, store: str | None) -> None:
    """List, show, search, export and remove conversations."""
    ctx.obj = store


@sessions.command(name="list")
@_store
@json_option
def list_(store: str | None, as_json: bool) -> None:
    """List conversations, the last one first. Forks stand below their parents."""
    found = _with_store(store, lambda opened: opened.list())
    if as_json:
        print_json(_fields(found, "id", "created", "updated", "title", "parent", "forked_at"))
        return

    def cells(row: tuple[int, SessionInfo]) -> tuple[str, ...]:
        depth, info = row
        when = ""
        with suppress(ArithmeticError, OSError, ValueError):  # a damaged file may name a year that no calendar has
            when = datetime.fromtimestamp(info.updated).strftime("%Y-%m-%d %H:%M")
        return when, f"{'· ' * depth}{info.id}", one_line(info.title, 60)

    where = store_name(_named(store))
    none = f"no conversations in {where}; `glue run -s NAME ...` and `glue chat -s NAME` keep one"
    print_rows(sort_by_tree(found), ("changed", "name", "begins with"), cells, False, none)


def sort_by_tree(found: Sequence[SessionInfo]) -> list[tuple[int, SessionInfo]]:
    """Order conversations, each with its depth: forks below their parents, the tree that was changed last first."""
    from glue.stores.store import lineage

    trees: list[list[tuple[int, SessionInfo]]] = []
    for depth, info in lineage(found):
        if depth == 0:
            trees.append([])
        trees[-1].append((depth, info))
    trees.sort(key=lambda tree: max(info.updated for _, info in tree), reverse=True)
    return [row for tree in trees for row in tree]


def _fields(records: Iterable[Any], *names: str) -> list[dict[str, Any]]:
    return [{name: getattr(each, name) for name in names} for each in records]


@sessions.command()
@click.argument("name")
@_store
def show(name: str, store: str | None) -> None:
    """Print one conversation."""
    for message in _load(store, name):
        if isinstance(message, ToolMessage):
            lines = [f"[{message.name}{', an error' if message.is_error else ''}]", message.text]
        elif isinstance(message, AssistantMessage):
            lines = [f"assistant ({message.provider}:{message.model})".replace(" (:)", "")]
            lines += [f"({part.text})" for part in message.content if isinstance(part, Thinking) and part.text]
            lines += [message.text] if message.text else []
            lines += [f"-> {call.name} {call.arguments}" for call in message.calls]
        else:
            lines = ["user" if message.origin == "user" else f"user ({message.origin})", message.text]
        click.echo(clean_text("\n".join(lines) + "\n"))


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@_store
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Hits, at most.")
@click.option("--session", "session", metavar="NAME", help="Look in this one only.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Look at these messages only.")
@json_option
def search(words: tuple[str, ...], store: str | None, as_json: bool, **options: Any) -> None:
    """Find messages that hold every word. "a phrase" in quotes, a prefix as word*. Leaves with 1 where none does."""
    hits = _with_store(store, lambda opened: opened.search(" ".join(words), **options))
    rows = _fields(hits, "session", "message_id", "role", "snippet", "at")
    cells = itemgetter("session", "role", "snippet")
    print_rows(rows, ("session", "role", "found"), cells, as_json, "no message holds all of these words")
    sys.exit(0 if hits else 1)


@sessions.command()
@click.argument("name")
@_store
@click.option("-f", "--format", "form", type=click.Choice(["json", "jsonl", "md"]), default="json", show_default=True)
@click.option("-o", "--output", **TO_WRITE, help="Write it to a file instead.")
def export(name: str, store: str | None, form: str, output: str | None) -> None:
    """Write one conversation as JSON, JSON lines or Markdown."""
    messages = _load(store, name)
    rows = [message_to_json(message) for message in messages]
    if form == "md":
        text = "\n\n".join(_markdown(message) for message in messages)
    elif form == "jsonl":
        text = "\n".join(json.dumps(row) for row in rows)
    else:
        text = json.dumps({"session": name, "messages": rows}, indent=2)
    if output is None:
        click.echo(clean_text(text))
    else:
        write_private(Path(output), text + "\n")


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@_store
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(names: tuple[str, ...], store: str | None, yes: bool) -> None:
    """Remove conversations for good."""

    async def remove(store: Store) -> None:
        for name in names:
            await store.delete(name)

    for name in names:
        _load(store, name)
    if not yes:
        if not is_interactive():
            raise ConfigError("nobody can be asked here; --yes removes without asking")
        click.confirm(f"Remove {', '.join(map(one_line, names))}?", abort=True, err=True)
    _with_store(store, remove)


def _named(given: str | None) -> str:
    found = settings({"store": given}).get("store")
    return found.value if found is not None else ""


def _with_store(named: str | None, work: Callable[[Store], Awaitable[T]]) -> T:
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


def _markdown(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return f"### Result of {message.name}{' (an error)' if message.is_error else ''}\n\n{_fenced(message.text)}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n\n### Call of {call.name}\n\n{_fenced(call.arguments)}" for call in message.calls)
        return f"## Assistant\n\n{message.text}{calls}"
    return f"## User\n\n{message.text}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"


async def last_session(store: Store, named: str = "") -> str:
    """Give the id of the conversation that was changed last."""
    sessions = await store.list()
    if not sessions:
        raise ConfigError(f"there is no conversation to continue in {store_name(named)}; begin one with -s NAME")
    return sessions[0].id


# Pages --------------------------------------------------------------------------------------------


@click.command()
@click.argument("target", metavar="[SESSION|RUN|FILE]", required=False)
@click.option("-o", "--output", default="", metavar="OUT.html", help="Where to write it; - for stdout.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@_store
def view(target: str | None, output: str, show: bool, store: str | None) -> None:
    """Make one HTML page of a transcript, and say where it is; without a name, an index of sessions and runs.

    SESSION is the name of a conversation in the store, RUN a logged run (`last`, or a name that `glue runs --json`
    gives). FILE is a session file, a cassette (--record), the events that --json printed, or a JSON list of messages.
    The page is whole in itself and loads nothing; it holds all that the transcript holds, so look before you share it.
    """
    from glue.view.page import page

    if target is None:
        path = _index(Path(output) if output else state_dir() / "view", store)
    else:
        html = page(_transcript(target, store))
        if output == "-":
            sys.stdout.buffer.write(html.encode())
            return
        path = Path(output) if output else _beside(target)
        write_private(path, html)
    click.echo(str(path))
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


MOST = 200  # transcripts in an index, the last ones


def _index(folder: Path, named: str | None) -> Path:
    """Write a page for each session and logged run into a folder, and one that lists them."""
    from glue.view.page import index, page

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; an index is a folder of pages")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    listed: list[Listed] = []
    for each, read in _listed(named):
        path = folder / each.file
        with suppress(GlueError):  # a damaged one is for `glue doctor`
            if not path.exists() or path.stat().st_mtime < each.at:
                write_private(path, page(read()))
            listed.append(each)
    listed.sort(key=lambda each: each.at, reverse=True)
    write_private(folder / "index.html", index(listed))
    return folder / "index.html"


def _listed(named: str | None) -> Iterator[tuple[Listed, Callable[[], Transcript]]]:
    """Give each session and each logged run, with how to read it."""
    from glue.cli.runs import log_files, summary
    from glue.view.sources import Listed, read_file, read_session

    with suppress(ConfigError):  # none has been begun
        store = _existing_store("", named)
        for info in anyio.run(store.list)[:MOST]:
            file = f"session-{hashlib.sha256(info.id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.html"
            each = Listed(file=file, kind="session", title=info.id, at=info.updated, text=info.title)
            yield each, partial(anyio.run, read_session, store, info.id)
    for path in log_files()[-MOST:]:
        run = summary(path)
        sums = [run["outcome"], count(run["tokens"], "token"), *([] if run["cost"] is None else [dollars(run["cost"])])]
        each = Listed(
            file=f"run-{run['id']}.html",
            kind="run",
            title=run["prompt"],
            at=path.stat().st_mtime,
            text=run["model"],
            figures=" · ".join(sums),
            failed=run["outcome"] not in ("done", "wrapped_up"),
        )
        yield each, partial(read_file, path)


def _transcript(target: str, named: str | None) -> Transcript:
    from glue.cli.runs import find_run, runs_dir
    from glue.view.sources import read_file, read_session

    path = Path(target)
    try:
        if not named and path.is_file():
            return read_file(path)
        if target == "last" or (runs_dir() / f"{target}.jsonl").is_file():
            return read_file(find_run(target))
        return anyio.run(read_session, _existing_store(target, named), target)
    except (StoreError, ReplayError) as error:
        raise ConfigError(str(error)) from error


def _existing_store(target: str, named: str | None) -> Store:
    place = _named(named)
    if not is_address(place) and not store_path(place).exists():  # opening would make it
        missing = f"no store {store_path(place)}"
        raise ConfigError(
            f"there is {missing if named else f'no file {target!r}, and {missing}'}; name one with --store"
        )
    return open_store(place)


def _beside(target: str) -> Path:
    """Choose a name in the current folder; only a page of ours is written over."""
    from glue.view.page import MARK

    name = re.sub(r"[^\w.@+=,-]+", "-", Path(target).name).lstrip(".-") or "transcript"
    path = Path(re.sub(r"\.(jsonl|json|ndjson)$", "", name)[:100] + ".html")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(MARK)) != MARK.encode():
                raise ConfigError(f"{path} is there and is no page of glue view; name another file with -o")
    return path
