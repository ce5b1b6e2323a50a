"""`glue view`: write a transcript as one HTML page."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from glue.stores.store import Store
    from glue.view.transcript import Transcript


@click.command()
@click.argument("target", metavar="SESSION|FILE")
@click.option("-o", "--output", default="", metavar="OUT.html", help="Where to write it; - for stdout.")
@click.option("--store", metavar="PATH", help="The folder, or the .db file, that keeps the session.")
def view(target: str, output: str, store: str | None) -> None:
    """Make one HTML page of a transcript, and say where it is.

    SESSION is the name of a conversation in the store. FILE is a session file, a recording
    (--record), the events that --json printed, or a JSON list of messages. The page is whole in
    itself and loads nothing; it holds all that the transcript holds, so look before you share it.
    """
    from glue.view.page import page

    html = page(_transcript(target, store))
    if output == "-":
        sys.stdout.buffer.write(html.encode())
        return
    path = Path(output) if output else _beside(target)
    _write(path, html)
    click.echo(str(path))


def _transcript(target: str, named: str | None) -> Transcript:
    import anyio

    from glue.cli.runs import find_run, runs_dir
    from glue.errors import ConfigError, ReplayError, StoreError
    from glue.view.sources import read_file, read_session

    path = Path(target)
    try:
        if not named and path.is_file():
            return read_file(path)
        if target == "last" or (runs_dir() / f"{target}.jsonl").is_file():
            return read_file(find_run(target))
        return anyio.run(read_session, _store(target, named), target)
    except (StoreError, ReplayError) as error:
        raise ConfigError(str(error)) from error


def _store(target: str, named: str | None) -> Store:
    from glue.cli.config import settings
    from glue.cli.sessions import open_store, store_path
    from glue.errors import ConfigError

    found = settings({"store": named}).get("store")
    place = str(found.value) if found is not None else ""
    if not store_path(place).exists():  # opening would make it
        missing = f"no store {store_path(place)}"
        raise ConfigError(
            f"there is {missing if named else f'no file {target!r}, and {missing}'}; name one with --store"
        )
    return open_store(place)


def _beside(target: str) -> Path:
    """Choose a name in the current folder; only a page of ours is written over."""
    from glue.errors import ConfigError
    from glue.view.page import MARK

    name = re.sub(r"[^\w.@+=,-]+", "-", Path(target).name).lstrip(".-") or "transcript"
    path = Path(re.sub(r"\.(jsonl|json|ndjson)$", "", name)[:100] + ".html")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(MARK)) != MARK.encode():
                raise ConfigError(f"{path} is there and is no page of glue view; name another file with -o")
    return path


def _write(path: Path, html: str) -> None:
    """Write the whole page or nothing, readable by its owner alone like the transcript."""
    fd, name = tempfile.mkstemp(prefix=".glue-view-", dir=path.parent)
    try:
        with open(fd, "w", encoding="utf-8", newline="\n") as file:
            file.write(html)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
