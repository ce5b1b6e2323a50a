"""`glue view`: write a transcript as one HTML page."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from glue.errors import ConfigError, GlueError, ReplayError, StoreError
from glue.paths import state_dir
from glue.text import count, dollars

if TYPE_CHECKING:
    from glue.stores.store import Store
    from glue.view.transcript import Transcript


@click.command()
@click.argument("target", metavar="[SESSION|RUN|FILE]", required=False)
@click.option("-o", "--output", default="", metavar="OUT.html", help="Where to write it; - for stdout.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@click.option("--store", metavar="PATH", help="The folder, or the .db file, that keeps the session.")
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
        _write(path, html)
    click.echo(str(path))
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


MOST = 200  # transcripts in an index, the last ones


def _index(folder: Path, named: str | None) -> Path:
    """Write a page for each session and logged run into a folder, and one that lists them."""
    import anyio

    from glue.cli.runs import log_files, summary
    from glue.view.page import index, page
    from glue.view.sources import read_file, read_session
    from glue.view.transcript import Listed

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; an index is a folder of pages")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    listed: list[Listed] = []

    def add(each: Listed, transcript: Callable[[], Transcript]) -> None:
        path = folder / each.file
        try:
            if not path.exists() or path.stat().st_mtime < each.at:
                _write(path, page(transcript()))
        except GlueError:
            return  # a damaged one is for `glue doctor`
        listed.append(each)

    try:
        store = _store("", named)
    except ConfigError:
        store = None  # none has been begun
    for info in anyio.run(store.list)[:MOST] if store is not None else ():
        file = f"session-{hashlib.sha256(info.id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.html"
        each = Listed(file=file, kind="session", title=info.id, at=info.updated, text=info.title)
        add(each, lambda store=store, name=info.id: anyio.run(read_session, store, name))  # type: ignore[misc]
    for path in reversed(log_files()[-MOST:]):
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
        add(each, lambda path=path: read_file(path))  # type: ignore[misc]
    listed.sort(key=lambda each: each.at, reverse=True)
    _write(folder / "index.html", index(listed))
    return folder / "index.html"


def _transcript(target: str, named: str | None) -> Transcript:
    import anyio

    from glue.cli.runs import find_run, runs_dir
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
    from glue.cli.sessions import is_address, open_store, store_path

    found = settings({"store": named}).get("store")
    place = str(found.value) if found is not None else ""
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
