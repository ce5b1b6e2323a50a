"""The `glue view` command: its pages, its index and its errors."""

from __future__ import annotations

import json
import os
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
    assert re.fullmatch(r"page_files/session-[0-9a-f]{16}\.html", link)
    assert Path(link).is_file()


def test_an_index_cannot_be_written_to_stdout(cli: Callable[..., Any]) -> None:
    ran = cli("view", "-o", "-")

    assert (ran.code, ran.out) == (2, "")
    assert "-o - prints one page, so it needs SESSION" in ran.err


def shown_rows(path: Path) -> list[str]:
    """Return the links of an index page, in their order."""
    return [attrs["href"] or "" for tag, attrs in parse(path.read_text()).tags if tag == "a"]


def test_the_index_begins_with_the_newest_and_rewrites_only_pages_that_changed(
    cli: Callable[..., Any],
) -> None:
    for name in ("first", "second"):
        cli("run", "-m", "offline", "-s", name, f"the prompt of {name}")
    cli("view", "-o", "pages")
    newest, oldest = (Path("pages", link) for link in shown_rows(Path("pages/index.html")))
    assert 'class="listed problem"' not in Path("pages/index.html").read_text()
    assert "the prompt of second" in newest.read_text()
    newest.write_text("kept")
    os.utime(oldest, (0, 0))
    cli("run", "-m", "offline", "-s", "first", "one more prompt")

    cli("view", "-o", "pages")

    assert shown_rows(Path("pages/index.html")) == [oldest.name, newest.name]
    assert newest.read_text() == "kept"
    assert "one more prompt" in oldest.read_text()


def test_a_run_in_the_index_shows_its_tokens_its_cost_and_whether_it_failed(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")
    Path("dear.py").write_text(
        "from glue import Agent, Usage\nfrom glue.testing import Script, repeat, say\n"
        "usage = Usage(input=1000, output=50, cost=0.25)\n"
        "def answer(request):\n"
        "    is_refused = 'refused' in request.messages[-1].text\n"
        "    return say('No.', stop='refusal') if is_refused else say('hi', usage=usage)\n"
        "agent = Agent(Script(repeat(answer), name='acme', model='big'))\n"
    )
    cli("run", "dear.py", "a costly prompt")
    cli("run", "dear.py", "a refused prompt")

    cli("view", "-o", "page.html")

    text = Path("page.html").read_text()
    refused, costly = (text.index(f"a {word} prompt") for word in ("refused", "costly"))
    assert refused < costly
    assert re.findall('<article class="(.*?)"', text) == ["listed problem", "listed"]
    assert "done · 1,050 tokens · $0.25" in text[costly:]
    assert "refused · 1 token<" in text[refused:costly]


def test_a_damaged_session_is_left_out_of_the_index(cli: Callable[..., Any]) -> None:
    for name in ("whole", "damaged"):
        cli("run", "-m", "offline", "-s", name, "hi", "--store", "kept")
    (path,) = Path("kept").glob("damaged*")
    path.write_text("no JSON\n" + path.read_text())

    ran = cli("view", "-o", "pages", "--store", "kept")

    assert ran.code == 0
    assert len(shown_rows(Path("pages/index.html"))) == 1


def test_the_pages_of_an_index_need_a_folder(cli: Callable[..., Any]) -> None:
    Path("file").touch()
    Path("folder.html").mkdir()

    refused, inside = cli("view", "-o", "file"), cli("view", "-o", "folder.html")

    assert refused.err == "glue: file is a file; name a folder for the pages of the index\n"
    assert (refused.code, inside.out) == (2, "folder.html/index.html\n")


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("..-a b/c.jsonl", "c.html"),
        ("a b?.ndjson", "a-b-.html"),
        ("..hidden", "hidden.html"),
        ("x" * 120, "x" * 100 + ".html"),
        ("---", "transcript.html"),
    ],
)
def test_the_name_of_a_page_is_made_from_the_name_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, page: str
) -> None:
    source = saved_messages(tmp_path).read_text()
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    done = CliRunner().invoke(commands, ["view", "--", str(path)])

    assert done.output == f"{page}\n"
