"""`glue view`: write a session, a logged run or a file as an HTML page, or write an index page."""

from __future__ import annotations

import hashlib
import re
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import click

from glue.cli.runs import find_run, log_files, runs_dir, summary
from glue.cli.storage import configured_store, store_option
from glue.errors import ConfigError, GlueError, ReplayError, StoreError
from glue.paths import state_dir, write_private
from glue.stores import is_address, open_store, store_path
from glue.stores.store import Store
from glue.text import count, format_dollars
from glue.view.page import MARK, index, page
from glue.view.sources import read_file, read_session
from glue.view.transcript import Listed, Transcript

MAX_LISTED = 200  # sessions, and runs, in an index: the most recent ones


@click.command()
@click.argument("target", metavar="[SESSION|RUN|FILE]", required=False)
@click.option("-o", "--output", default="", metavar="OUT.html", help="File to write; - for stdout.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@store_option
def view(target: str | None, output: str, show: bool, store: str | None) -> None:
    """Write a transcript, or an index of sessions and runs, as HTML, and print the path.

    Without an argument, write pages of the newest sessions and runs, and an index of the pages.

    SESSION is the name of a stored session. RUN is a logged run: `last`, or an id from
    `glue runs --json`. FILE is a session file, a cassette (--record), the events that --json
    printed, or a JSON list of messages.

    The page is a single file that loads nothing. It contains the whole transcript, so check it for
    secrets before you share it.
    """
    if target is None:
        if output == "-":
            raise click.UsageError(
                "-o - prints one page, so it needs SESSION, RUN or FILE; an index is several files"
            )
        path = _write_index(output, store)
    else:
        html = page(_transcript(target, store))
        if output == "-":
            sys.stdout.buffer.write(html.encode())
            return
        path = Path(output) if output else _default_output(target)
        write_private(path, html)
    click.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())


def _write_index(output: str, named: str | None) -> Path:
    """Write pages of the newest sessions and runs, and an index page; return its path.

    If the output is a file such as page.html, the index is that file, and the pages are in the
    folder page_files in the same place. Otherwise the output is the folder for index and pages.
    """
    folder = Path(output) if output else state_dir() / "view"
    main, links = folder / "index.html", ""
    if folder.suffix in (".html", ".htm") and not folder.is_dir():
        main, folder = folder, folder.with_name(f"{folder.stem}_files")
        links = f"{folder.name}/"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder for the pages of the index")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    listed: list[Listed] = []
    for each, read in (*_listed_sessions(named), *_listed_runs()):
        path = folder / each.file
        with suppress(GlueError):  # `glue doctor` reports damaged sessions
            if not path.exists() or path.stat().st_mtime < each.at:
                write_private(path, page(read()))
            listed.append(replace(each, file=links + each.file))
    listed.sort(key=lambda each: each.at, reverse=True)
    write_private(main, index(listed))
    return main


def _listed_sessions(named: str | None) -> Iterator[tuple[Listed, Callable[[], Transcript]]]:
    """Yield the newest sessions for the index page, each with a function that reads it."""
    with suppress(ConfigError):  # the store does not exist yet
        store = _existing_store("", named)
        for info in anyio.run(store.list)[:MAX_LISTED]:
            # A session's name may contain characters that a file's name cannot.
            digest = hashlib.sha256(info.id.encode("utf-8", "surrogatepass")).hexdigest()
            each = Listed(
                file=f"session-{digest[:16]}.html",
                kind="session",
                title=info.id,
                at=info.updated,
                text=info.title,
            )
            yield each, partial(anyio.run, read_session, store, info.id)


def _listed_runs() -> Iterator[tuple[Listed, Callable[[], Transcript]]]:
    """Yield the newest logged runs for the index page, each with a function that reads it."""
    for path in log_files()[-MAX_LISTED:]:
        run = summary(path)
        figures = [run["outcome"], count(run["tokens"], "token")]
        if run["cost"] is not None:
            figures.append(format_dollars(run["cost"]))
        each = Listed(
            file=f"run-{run['id']}.html",
            kind="run",
            title=run["prompt"],
            at=path.stat().st_mtime,
            text=run["model"],
            figures=" · ".join(figures),
            failed=run["outcome"] not in ("done", "wrapped_up", "paused"),
        )
        yield each, partial(read_file, path)


def _transcript(target: str, named: str | None) -> Transcript:
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
    """Open the named or configured store; raise ConfigError if it does not exist.

    Without this check, opening the store would create it.
    """
    place = configured_store(named)
    if not is_address(place) and not store_path(place).exists():
        missing = f"the store {store_path(place)} does not exist"
        if not named:
            missing = f"{target!r} is not a file, and {missing}"
        raise ConfigError(f"{missing}; select a store with --store")
    return open_store(place)


def _default_output(target: str) -> Path:
    """Return a file name in the current folder for the page of a session, run or file.

    Raise ConfigError if a file with this name exists and was not written by `glue view`.
    """
    name = re.sub(r"[^\w.@+=,-]+", "-", Path(target).name).lstrip(".-") or "transcript"
    path = Path(re.sub(r"\.(jsonl|json|ndjson)$", "", name)[:100] + ".html")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(MARK)) != MARK.encode():
                raise ConfigError(
                    f"{path} exists and was not written by glue view; choose a file with -o"
                )
    return path
