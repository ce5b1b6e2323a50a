"""The `glue view` command: its pages, its index and its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from fakes.transcripts import parse, reply

import glue
from glue.cli.app import commands
from glue.messages import (
    Text,
    messages_to_json,
    user,
)
from glue.testing import Script
from glue.view.page import MARK


def saved_messages(folder: Path) -> Path:
    path = folder / "messages.json"
    path.write_text(json.dumps(messages_to_json([user("hi"), reply(Text(text="hello"))])))
    return path


def test_the_page_is_written_to_the_current_folder_and_its_path_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved_messages(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    first = CliRunner().invoke(commands, ["view", str(source)])
    again = CliRunner().invoke(commands, ["view", str(source)])

    assert first.output == again.output == "messages.html\n"
    assert (work / "messages.html").read_text().startswith(MARK)
    assert (work / "messages.html").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in work.iterdir()] == ["messages.html"]


def test_other_files_are_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved_messages(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "messages.html").write_text("mine")

    refused = CliRunner().invoke(commands, ["view", str(source)])
    named = CliRunner().invoke(commands, ["view", str(source), "-o", "other.html"])

    assert isinstance(refused.exception, glue.errors.ConfigError)
    assert (tmp_path / "messages.html").read_text() == "mine"
    assert named.output == "other.html\n"


def test_a_dash_writes_the_page_to_stdout(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["view", str(saved_messages(tmp_path)), "-o", "-"])

    assert done.output.startswith(MARK)


@pytest.mark.parametrize("kind", ["files", "sessions.db"])
def test_a_session_is_found_in_a_store(tmp_path: Path, kind: str) -> None:
    store = (
        glue.FileStore(tmp_path / kind) if kind == "files" else glue.SQLiteStore(tmp_path / kind)
    )
    anyio.run(glue.Agent(Script("Here.")).session("demo", store=store).prompt, "Hello?")

    found = CliRunner().invoke(
        commands, ["view", "demo", "--store", str(tmp_path / kind), "-o", "-"]
    )
    lost = CliRunner().invoke(commands, ["view", "other", "--store", str(tmp_path / kind)])

    assert "Here." in found.output
    assert "there is no session 'other'; there are: demo" in str(lost.exception)


def test_a_missing_store_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    done = CliRunner().invoke(commands, ["view", "demo"])

    assert isinstance(done.exception, glue.errors.ConfigError)
    assert "'demo' is not a file" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_index_lists_sessions_and_runs(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")
    opened = tmp_path / "opened"
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    (tmp_path / "browser").chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{tmp_path / 'browser'} %s")
    cli("run", "-m", "offline", "-s", "kept <b>", "the first")
    cli("run", "-m", "nobody:x", "lost")

    ran = cli("view", "--open")

    path = Path(ran.out.strip())
    parsed = parse(path.read_text())
    links = [attrs["href"] or "" for tag, attrs in parsed.tags if tag == "a"]
    assert len(links) == 2
    assert all(re.fullmatch(r"(session|run)-[0-9a-f-]+\.html", link) for link in links)
    assert all((path.parent / link).is_file() for link in links)
    assert "kept <b>" in parsed.text
    assert path.parent.stat().st_mode & 0o077 == 0
    assert opened.read_text().strip() == path.as_uri()
    assert cli("view").out == ran.out


def test_an_index_can_be_one_file_with_its_pages_beside_it(cli: Callable[..., Any]) -> None:
    cli("run", "-m", "offline", "-s", "kept", "the first")

    ran = cli("view", "-o", "page.html")

    assert ran.out == "page.html\n"
    assert Path("page.html").is_file()
    (link,) = [
        attrs["href"] or ""
        for tag, attrs in parse(Path("page.html").read_text()).tags
        if tag == "a"
    ]
    assert re.fullmatch(r"page_files/session-[0-9a-f]+\.html", link)
    assert Path(link).is_file()


def test_an_index_cannot_be_written_to_stdout(cli: Callable[..., Any]) -> None:
    ran = cli("view", "-o", "-")

    assert (ran.code, ran.out) == (2, "")
    assert "-o - needs SESSION, RUN or FILE" in ran.err
