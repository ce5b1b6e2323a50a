"""`glue sessions`: list, show, search, export, remove and prune sessions, and answer calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import click

from glue.cli.answer import answer, pending
from glue.cli.groups import ListGroup
from glue.cli.options import FILE_TO_WRITE
from glue.cli.retention import dry_run_option, older_option, outcome_option, prune_sessions
from glue.cli.screen import is_interactive
from glue.cli.storage import configured_store, load_session, store_option, with_store
from glue.cli.tables import json_option, print_json, print_rows
from glue.errors import ConfigError
from glue.markdown import code_block
from glue.messages import AssistantMessage, Message, Thinking, ToolMessage, message_to_json
from glue.paths import write_private
from glue.pending import pending_calls
from glue.stores import store_name
from glue.stores.store import SessionInfo, Store, lineage
from glue.text import clean_text, count, one_line


@click.group(cls=ListGroup)
@store_option
@click.pass_context
def sessions(ctx: click.Context, store: str | None) -> None:
    """List, show, search, export and remove sessions; answer calls that wait in them."""
    ctx.obj = store


sessions.add_command(pending)
sessions.add_command(answer)


@sessions.command(name="list")
@store_option
@json_option
def list_(store: str | None, as_json: bool) -> None:
    """List sessions, the most recent first. Forks are listed below their parents."""
    found = with_store(store, lambda opened: opened.list())
    if as_json:
        print_json(_fields(found, "id", "created", "updated", "title", "parent", "forked_at"))
        return

    def cells(row: tuple[int, SessionInfo]) -> tuple[str, ...]:
        depth, info = row
        when = ""
        with suppress(ArithmeticError, OSError, ValueError):  # a damaged file: a date out of range
            when = datetime.fromtimestamp(info.updated).strftime("%Y-%m-%d %H:%M")
        return when, f"{'· ' * depth}{info.id}", one_line(info.title, 60)

    where = store_name(configured_store(store))
    empty = f"no sessions in {where}; `glue run -s NAME ...` and `glue chat -s NAME` store sessions"
    print_rows(sort_by_tree(found), ("changed", "name", "begins with"), cells, False, empty)


def sort_by_tree(found: Sequence[SessionInfo]) -> list[tuple[int, SessionInfo]]:
    """Sort sessions so that forks follow their parents; return each with its depth.

    The tree with the most recent change is first.
    """
    trees: list[list[tuple[int, SessionInfo]]] = []
    for depth, info in lineage(found):
        if depth == 0:
            trees.append([])
        trees[-1].append((depth, info))
    trees.sort(key=lambda tree: max(info.updated for _, info in tree), reverse=True)
    return list(chain.from_iterable(trees))


def _fields(records: Iterable[Any], *names: str) -> list[dict[str, Any]]:
    values = attrgetter(*names)
    return [dict(zip(names, values(each), strict=True)) for each in records]


@sessions.command()
@click.argument("name")
@store_option
def show(name: str, store: str | None) -> None:
    """Print the messages of a session."""
    messages = load_session(store, name)
    waiting = {call.id.partition("/")[0] for call in pending_calls(messages)}
    for message in messages:
        if isinstance(message, ToolMessage):
            lines = [f"[{message.name}{', error' if message.is_error else ''}]", message.text]
        elif isinstance(message, AssistantMessage):
            lines = [f"assistant ({message.provider}:{message.model})".replace(" (:)", "")]
            thinking = [part.text for part in message.content if isinstance(part, Thinking)]
            lines += [f"({text})" for text in thinking if text]
            lines += [message.text] if message.text else []
            for call in message.calls:
                waits = " (this call waits for an answer)" if call.id in waiting else ""
                lines.append(f"-> {call.name} {call.arguments}{waits}")
        else:
            author = "user" if message.origin == "user" else f"user ({message.origin})"
            lines = [author, message.text]
        click.echo(clean_text("\n".join(lines) + "\n"))


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@store_option
@click.option(
    "-n",
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of messages to list.",
)
@click.option("--session", metavar="NAME", help="Search only this session.")
@click.option(
    "--role",
    type=click.Choice(["user", "assistant", "tool"]),
    help="Search only messages of this role.",
)
@json_option
def search(words: tuple[str, ...], store: str | None, as_json: bool, **options: Any) -> None:
    """Find messages that contain all of WORDS. Exits with 1 if no message does.

    Put "a phrase" in quotes; word* matches every word with this beginning.
    """
    hits = with_store(store, lambda opened: opened.search(" ".join(words), **options))
    rows = _fields(hits, "session", "message_id", "role", "snippet", "at")
    cells = itemgetter("session", "role", "snippet")
    empty = "no message contains all of these words"
    print_rows(rows, ("session", "role", "found"), cells, as_json, empty)
    sys.exit(0 if hits else 1)


@sessions.command()
@click.argument("name")
@store_option
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["json", "jsonl", "md"]),
    default="json",
    show_default=True,
    help="One JSON object, one JSON object per line, or Markdown.",
)
@click.option("-o", "--output", **FILE_TO_WRITE, help="Write to this file instead of stdout.")
def export(name: str, store: str | None, form: str, output: str | None) -> None:
    """Print a session as JSON, JSON lines or Markdown, or write it to a file."""
    messages = load_session(store, name)
    rows = [message_to_json(message) for message in messages]
    if form == "md":
        waiting = {call.id.partition("/")[0] for call in pending_calls(messages)}
        text = "\n\n".join(_markdown(message, waiting) for message in messages)
    elif form == "jsonl":
        text = "\n".join(json.dumps(row) for row in rows)
    else:
        text = json.dumps({"session": name, "messages": rows}, indent=2)
    if output is None:
        click.echo(clean_text(text))
    else:
        write_private(Path(output), text + "\n")


def _markdown(message: Message, waiting: Collection[str]) -> str:
    if isinstance(message, ToolMessage):
        title = f"### Result of {message.name}{' (error)' if message.is_error else ''}"
        return f"{title}\n\n{code_block(message.text)}"
    if isinstance(message, AssistantMessage):
        text = f"## Assistant\n\n{message.text}"
        for call in message.calls:
            waits = " (this call waits for an answer)" if call.id in waiting else ""
            text += f"\n\n### Call of {call.name}{waits}\n\n{code_block(call.arguments)}"
        return text
    return f"## User\n\n{message.text}"


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@store_option
@click.option("-y", "--yes", is_flag=True, help="Remove the sessions without asking.")
def rm(names: tuple[str, ...], store: str | None, yes: bool) -> None:
    """Ask for confirmation, then remove sessions permanently."""

    async def remove(store: Store) -> None:
        for name in names:
            await store.delete(name)

    for name in names:
        load_session(store, name)
    if not yes:
        if not is_interactive():
            raise ConfigError(
                "no user can be asked, because stdin or stderr is not a terminal; "
                "--yes removes the sessions without asking"
            )
        click.confirm(f"Remove {', '.join(map(one_line, names))}?", abort=True, err=True)
    with_store(store, remove)


@sessions.command()
@older_option
@outcome_option
@dry_run_option
@store_option
def prune(older: float, outcomes: tuple[str, ...], dry_run: bool, store: str | None) -> None:
    """Delete sessions that have not changed for AGE, except paused ones, and free their space.

    Sessions that wait for an answer are kept, unless --outcome names `paused`.

    \b
    glue sessions prune --older 30d --outcome done
    """
    deleted, skipped = with_store(
        store, lambda opened: prune_sessions(opened, older, outcomes, dry_run=dry_run)
    )
    click.echo(f"{'would delete' if dry_run else 'deleted'} {count(len(deleted), 'session')}")
    if dry_run:
        click.echo("".join(f"  {one_line(name)}\n" for name in deleted), nl=False)
    if skipped:
        names = ", ".join(one_line(name) for name in skipped[:8])
        more = f" and {len(skipped) - 8} more" if len(skipped) > 8 else ""
        click.echo(
            f"glue: these sessions are in use or unreadable and were not deleted: {names}{more}",
            err=True,
        )
