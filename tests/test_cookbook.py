"""The programs of the cookbook work, and their pages show their real output."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import runpy
import socket
import socketserver
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fakes.checkouts import call as git
from fakes.documents import pdf, png
from fakes.pages import ROOT, blocks, checkout, commands, plain, run
from fakes.web import fetch
from fakes.zygote import Zygote

import glue
from glue.testing import Script, call, calls, fail, repeat, say, use_provider
from glue.tools import mcp
from glue.tools.sandbox import find_backend

EXAMPLES = ROOT / "examples"
PAGES = sorted(page for page in (ROOT / "docs" / "cookbook").glob("*.md") if page.stem != "index")
KEY = "not" + "-a-key"
FREE = glue.Usage(input=1, output=1, cost=0.0)  # for programs with a budget in dollars


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a program."""

    code: int
    out: str
    err: str


Play = Callable[..., Ran]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Enter an empty folder, without the keys and the settings of the user who runs the tests."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("GLUE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def play(bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Run a program in this process, with a script instead of each model."""

    def start(name: str, *words: str, model: Any = None, **variables: str) -> Ran:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        monkeypatch.setenv("GLUE_MODEL", "anthropic")
        monkeypatch.setenv("GLUE_PRICES", "script-1=0/0")  # of the script, for budgets
        for key, value in variables.items():
            monkeypatch.setenv(key, value)
        capsys.readouterr()
        end: object = 0
        try:
            if model is None:
                runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
            else:
                with use_provider(model):
                    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        except SystemExit as stop:
            end = stop.code or 0
        out, err = capsys.readouterr()
        return Ran(end, out, err) if isinstance(end, int) else Ran(1, out, f"{err}{end}\n")

    return start


def results(script: Script) -> list[str]:
    """Return the results of tools that the model got to read."""
    last = script.requests[-1].messages
    return [message.text for message in last if isinstance(message, glue.ToolMessage)]


def assert_shown(page: str, text: str) -> None:
    """Assert that a page shows this text in a block."""
    shown = blocks(ROOT / "docs" / "cookbook" / f"{page}.md", "text")
    assert text.strip() in [block.strip() for block in shown], text


# The pages


def test_every_program_has_a_page_and_a_row_in_the_table() -> None:
    index = (ROOT / "docs" / "cookbook" / "index.md").read_text()
    rows = re.findall(r"^\| \[[^]]+\]\(([\w-]+)\.md\) \|", index, re.MULTILINE)

    assert len(PAGES) == 21
    assert sorted(rows) == [page.stem for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_contains_its_program(page: Path) -> None:
    program = (EXAMPLES / f"{page.stem.replace('-', '_')}.py").read_text()

    assert blocks(page, "python")[0] == program
    assert len(program.splitlines()) <= 75
    assert re.match(r"# /// script\n# requires-python = .*\n# dependencies = \[.*\]\n", program)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda p: p.stem)
def test_the_commands_of_a_page_print_the_shown_lines(
    page: Path, tmp_path: Path, zygote: Zygote
) -> None:
    folder = checkout(tmp_path)

    for command, shown in commands(page):
        printed = run(command, folder, zygote)
        assert sorted(printed) == sorted(plain("\n".join(shown))), command


NEED_A_KEY = [
    ("changelog_writer", "HEAD~1"),
    ("csv_questions", "Which columns?"),
    ("image_captions", "red.png"),
    ("nightly_map", "in.csv", "out.jsonl"),
    ("approvals_by_mail", "ask", "Refund"),
    ("research_subagents", ".", "What is here?"),
    ("translation_glossary", "in.md"),
    ("release_notes", "in.md", "1.0"),
    ("pdf_extraction", "in.pdf"),
    ("web_page_summary", "http://127.0.0.1:1/"),
    ("prompt_in_ci", "prompt.md", "cases.jsonl"),
]


@pytest.mark.parametrize("words", NEED_A_KEY, ids=lambda words: words[0])
def test_a_missing_key_or_file_is_one_line(
    words: tuple[str, ...], bare: Path, zygote: Zygote
) -> None:
    name, *rest = words
    code = (
        f"import runpy, sys; runpy.run_path({str(EXAMPLES / name) + '.py'!r}, run_name='__main__')"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(bare)}

    exit_code, out, errors = zygote.run([sys.executable, "-c", code, *rest], bare, environ)

    assert exit_code != 0
    assert out == ""
    assert re.fullmatch(r"(error|glue): .+\n", errors)


# The programs


def test_csv_columns_are_summed_and_wrong_columns_are_reported(play: Play, bare: Path) -> None:
    (bare / "sales.csv").write_text("region,amount\nNorth,10\nSouth,5\nNorth,2.5\n")
    (bare / "bad.csv").write_text("region,amount\nNorth,ten\n")
    ask = [
        call("total", {"file": "sales.csv", "amount": "amount", "by": "region"}, id="1"),
        call("total", {"file": "sales.csv", "amount": "price", "by": "region"}, id="2"),
        call("total", {"file": "bad.csv", "amount": "amount", "by": "region"}, id="3"),
        call("columns", {"file": "../secret.csv"}, id="4"),
        call("columns", {"file": "none.csv"}, id="5"),
    ]
    script = Script(calls(*ask), "North 12.5")

    ran = play("csv_questions", "Total by region?", model=script)

    summed, unknown, wrong, outside, missing = results(script)
    assert ran.out == "North 12.5\n"
    assert json.loads(summed) == {"North": 12.5, "South": 5.0}
    assert unknown == "'price' is not a column; sales.csv has: region, amount"
    assert wrong == "line 2: 'ten' is not a number"
    assert "outside" in outside
    assert missing == "none.csv: No such file or directory"


HOSTILE = [
    "DELETE FROM items",
    "INSERT INTO items VALUES ('x')",
    "DROP TABLE items",
    "CREATE TABLE more (x)",
    "CREATE TEMP TABLE more (x)",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = WAL",
    "ATTACH DATABASE 'other.db' AS other",
    "VACUUM INTO 'copy.db'",
    "SELECT 1; DELETE FROM items",
    "BEGIN IMMEDIATE",
    "SELECT length(zeroblob(2000000))",
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_statement_that_is_not_a_small_select_is_refused(
    sql: str, play: Play, bare: Path
) -> None:
    with closing(sqlite3.connect(bare / "shop.db")) as db, db:
        db.execute("CREATE TABLE items (name TEXT)")
        db.execute("INSERT INTO items VALUES ('rice')")
    before = (bare / "shop.db").read_bytes()
    script = Script(calls(call("query", {"sql": sql})), "Refused.")

    play("sql_read_only", "Do it.", model=script)

    assert results(script)[0].startswith("SQLite: ")
    assert (bare / "shop.db").read_bytes() == before
    assert sorted(path.name for path in bare.iterdir() if path.is_file()) == ["shop.db"]


def test_a_select_returns_names_and_rows_and_an_endless_one_ends(
    play: Play, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(bare / "shop.db")) as db, db:
        db.execute("CREATE TABLE items (name TEXT)")
        db.executemany("INSERT INTO items VALUES (?)", [(f"item {n}",) for n in range(300)])
    clock = iter(range(0, 10_000, 3))  # each look at the clock is three seconds later
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
    program = runpy.run_path(str(EXAMPLES / "sql_read_only.py"))

    found = program["query"]("SELECT name FROM items")

    assert found[:2] == [("name",), ("item 0",)]
    assert len(found) == 101
    assert program["schema"]() == "CREATE TABLE items (name TEXT)"
    with pytest.raises(glue.ToolError, match="interrupted"):
        program["query"](endless)
    assert next(clock) < 20


def test_the_database_is_opened_for_reading_even_if_the_statements_are_not_checked(
    bare: Path,
) -> None:
    with closing(sqlite3.connect(bare / "shop.db")) as db:
        db.execute("CREATE TABLE items (name TEXT)")
    program = runpy.run_path(str(EXAMPLES / "sql_read_only.py"))
    program["READING"].update(range(100))  # the numbers of all actions

    with pytest.raises(glue.ToolError, match="attempt to write a readonly database"):
        program["query"]("INSERT INTO items VALUES ('x')")


def test_errors_of_a_log_are_grouped(play: Play, bare: Path) -> None:
    lines = ["INFO start", "ERROR order 1: timeout", "ERROR order 2: timeout", "WARN pool 9 of 10"]
    (bare / "app.log").write_text("\n".join(lines))
    script = Script(calls(call("group_errors", {"file": "app.log"})), "Timeouts.")

    play("log_triage", "What is wrong?", model=script)

    assert json.loads(results(script)[0]) == [
        "2 x, line 2: ERROR order #: timeout",
        "1 x, line 4: WARN pool # of #",
    ]


def http(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def summary(quote: str) -> dict[str, Any]:
    return {"title": "Oslo", "points": ["Founded around 1040.", "A capital."], "quote": quote}


def test_a_web_page_is_read_and_a_false_quote_is_left_out(
    play: Play, loopback: Callable[..., Any]
) -> None:
    page = "<html><body><h1>Oslo</h1><p>Capital of Norway since 1814.</p></body></html>"
    server = loopback(http(page.encode(), "text/html"))
    url = f"{server.url}/oslo"
    read = calls(call("fetch_url", {"url": url}))
    right = Script(read, calls(call("final_answer", summary("Capital of Norway since 1814."))))
    wrong = Script(read, calls(call("final_answer", summary("It is in Denmark."))))

    first = play("web_page_summary", url, "--private", model=right)
    second = play("web_page_summary", url, "--private", model=wrong)

    assert_shown("web-page-summary", first.out)
    assert "Denmark" not in second.out
    assert "The quote was left out" in second.err


def test_the_summary_of_a_page_that_was_not_read_is_not_printed(
    play: Play, loopback: Callable[..., Any]
) -> None:
    server = loopback(http(b"secret"))
    script = Script(
        calls(call("fetch_url", {"url": server.url})), calls(call("final_answer", summary("x")))
    )

    ran = play("web_page_summary", server.url, model=script)

    assert (ran.code, ran.out) == (1, "")
    assert f"error: {server.url} was not read: 127.0.0.1 has the address 127.0.0.1" in ran.err
    assert server.seen == []


# Slack


@pytest.fixture
def slack(
    bare: Path, monkeypatch: pytest.MonkeyPatch, loopback: Callable[..., Any]
) -> Iterator[tuple[Any, Any]]:
    """Load the app, with a server that plays the one that Slack names in `response_url`."""
    hooks = loopback(http(b"ok"))
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "s3cret")
    monkeypatch.setenv("SLACK_HOOKS", f"{hooks.url}/")
    monkeypatch.setenv("GLUE_MODEL", "anthropic")
    with use_provider(Script(repeat("It is <!channel> & dry."))):
        yield runpy.run_path(str(EXAMPLES / "slack_webhook.py"))["app"], hooks


def signed(body: bytes, *, at: float, secret: bytes = b"s3cret") -> dict[str, str]:
    stamp = str(int(at))
    digest = hmac.new(secret, b"v0:%b:%b" % (stamp.encode(), body), hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_slack_command_is_acknowledged_and_answered(slack: tuple[Any, Any]) -> None:
    app, hooks = slack
    body = urlencode({"text": "Weather?", "response_url": f"{hooks.url}/commands/1"}).encode()

    answer = await fetch(app, "/slack", body, headers=signed(body, at=time.time()))

    assert (answer.status, answer.json) == (200, {"text": "Looking it up ..."})
    [posted] = hooks.seen
    assert posted.line == "POST /commands/1 HTTP/1.1"
    assert json.loads(posted.body) == {"text": "It is &lt;!channel&gt; &amp; dry."}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_partial_text_of_a_run_is_not_posted_to_slack(slack: tuple[Any, Any]) -> None:
    app, hooks = slack
    body = urlencode({"text": "Weather?", "response_url": f"{hooks.url}/commands/1"}).encode()

    with use_provider(Script(repeat(say("It will rain unless", stop="max_tokens")))):
        await fetch(app, "/slack", body, headers=signed(body, at=time.time()))

    [posted] = hooks.seen
    assert json.loads(posted.body) == {"text": "No answer: truncated."}


@pytest.mark.parametrize("name", ["fastapi_stream", "slack_webhook"])
def test_a_server_without_a_key_does_not_start(name: str, bare: Path) -> None:
    with pytest.raises(glue.errors.MissingKey, match="ANTHROPIC_API_KEY"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wrong", ["secret", "old", "future", "body", "none", "letters"])
async def test_a_request_that_slack_did_not_sign_is_refused(
    wrong: str, slack: tuple[Any, Any]
) -> None:
    app, hooks = slack
    body = urlencode({"text": "Weather?", "response_url": f"{hooks.url}/commands/1"}).encode()
    late = {"old": -301, "future": 301}.get(wrong, 0)
    headers = signed(
        body, at=time.time() + late, secret=b"other" if wrong == "secret" else b"s3cret"
    )
    if wrong == "none":
        headers = {}
    if wrong == "letters":
        headers["x-slack-request-timestamp"] = "now"
    sent = body + b"&text=more" if wrong == "body" else body

    answer = await fetch(app, "/slack", sent, headers=headers)

    assert answer.status == 401
    assert hooks.seen == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_long_body_and_another_address_are_refused(slack: tuple[Any, Any]) -> None:
    app, hooks = slack
    elsewhere = urlencode({"text": "x", "response_url": "http://169.254.169.254/"}).encode()

    long = await fetch(app, "/slack", b"x" * 70_000)
    other = await fetch(app, "/slack", elsewhere, headers=signed(elsewhere, at=time.time()))

    assert long.status == 413
    assert other.json == {"text": "Usage: /ask QUESTION"}
    assert hooks.seen == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_nothing_is_signed_if_the_secret_is_empty(
    slack: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "")
    app = runpy.run_path(str(EXAMPLES / "slack_webhook.py"))["app"]
    body = b"text=x"

    answer = await fetch(app, "/slack", body, headers=signed(body, at=time.time(), secret=b""))

    assert answer.status == 401


def test_the_server_for_slack_does_not_start_without_a_secret(play: Play) -> None:
    ran = play("slack_webhook", model=Script())

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "SLACK_SIGNING_SECRET" in ran.err


# FastAPI


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_fastapi_streams_the_answer_and_keeps_the_conversation(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_MODEL", "anthropic")
    said = Script(calls(call("weather", {"city": "Oslo"})), "Dry.", "As I said.")
    with use_provider(said):
        app = runpy.run_path(str(EXAMPLES / "fastapi_stream.py"))["app"]

        first = await fetch(app, "/ask?q=Weather+in+Oslo&conversation=demo")
        await fetch(app, "/ask?q=Again&conversation=demo")
        refused = await fetch(app, "/ask?q=x&conversation=../etc")

    kinds = [event["type"] for event in first.data]
    assert kinds.count("tool_end") == 1
    assert (first.data[-1]["type"], first.data[-1]["text"]) == ("result", "Dry.")
    assert [message.text for message in said.requests[-1].messages][::2] == [
        "Weather in Oslo",
        "Oslo: 21 degrees, dry",
        "Again",
    ]
    assert refused.status == 422


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_page_about_fastapi_shows_the_lines_of_the_response(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_MODEL", "offline")
    app = runpy.run_path(str(EXAMPLES / "fastapi_stream.py"))["app"]

    answer = await fetch(app, "/ask?q=Weather+in+Oslo%3F&conversation=demo")

    [shown] = blocks(ROOT / "docs" / "cookbook" / "fastapi-stream.md", "text")
    lines = answer.body.decode().splitlines()
    assert [line for line in lines if '"text_delta"' in line or '"result"' in line] == (
        shown.splitlines()
    )


# Telegram


def test_the_telegram_bot_answers_allowed_chats_and_remembers_them(
    play: Play, loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(number: int, chat: int, text: str) -> dict[str, Any]:
        return {"update_id": number, "message": {"chat": {"id": chat}, "text": text}}

    def ok(result: Any) -> bytes:
        return http(json.dumps({"ok": True, "result": result}).encode())

    updates = [message(7, 42, "I am Ada."), message(8, 666, "Hello?"), message(9, 42, "Who am I?")]
    refused = json.dumps({"ok": False, "description": "Unauthorized"}).encode()
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server = loopback(
        lambda connection: False,
        ok(updates),
        ok({}),
        ok({}),
        http(refused, status="401 Unauthorized"),
    )
    script = Script("Hello Ada.", lambda request: " / ".join(m.text for m in request.messages))

    ran = play(
        "telegram_bot",
        model=script,
        TELEGRAM_TOKEN="1:abc",
        TELEGRAM_BASE_URL=server.url,
        ALLOWED_CHATS="42",
    )

    sent = [json.loads(seen.body) for seen in server.seen]
    asked = [seen.line.split()[1].removeprefix("/bot1:abc/") for seen in server.seen]
    assert asked == ["getUpdates", "getUpdates", "sendMessage", "sendMessage", "getUpdates"]
    assert waits == [5]
    assert sent[2] == {"chat_id": "42", "text": "Hello Ada."}
    assert sent[3]["text"] == "I am Ada. / Hello Ada. / Who am I?"
    assert sent[4]["offset"] == 10
    assert "1:abc" not in ran.err
    assert ran.code == 1
    assert_shown("telegram-bot", ran.err)


# Maps, mail, failover


def ticket(request: glue.Request) -> Any:
    text = request.messages[0].text
    if "log in" in text:
        return fail("invalid_request", "too long")
    team = "billing" if "card" in text else "shipping"
    return calls(call("final_answer", {"value": team}), usage=FREE)


def test_the_nightly_map_continues_with_the_rows_that_failed(play: Play, bare: Path) -> None:
    source = str(EXAMPLES / "data" / "tickets.csv")
    first = Script(repeat(ticket))
    second = Script(calls(call("final_answer", {"value": "support"}), usage=FREE))

    failed = play("nightly_map", source, "sorted.jsonl", model=first)
    lines_before = (bare / "sorted.jsonl").read_text().splitlines()
    resumed = play("nightly_map", source, "sorted.jsonl", model=second)

    assert (failed.code, failed.out) == (1, "billing: 1, failed: 1, shipping: 1\n")
    assert failed.err == "T-3: failed: script: too long\n"
    assert len(lines_before) < 3
    assert (resumed.code, resumed.out) == (0, "billing: 1, shipping: 1, support: 1\n")
    assert len(second.requests) == 1
    rows = [json.loads(line) for line in (bare / "sorted.jsonl").read_text().splitlines()]
    assert rows == [
        {"id": "T-1", "team": "billing"},
        {"id": "T-2", "team": "shipping"},
        {"id": "T-3", "team": "support"},
    ]


class Mailbox(socketserver.StreamRequestHandler):
    """A mail server that keeps the received mails in `server.mails`."""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper().strip()
            if word == b"DATA":
                self.wfile.write(b"354 go\r\n")
                text = b""
                while (line := self.rfile.readline()) != b".\r\n":
                    text += line
                self.server.mails.append(text.decode())  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with socketserver.TCPServer(("127.0.0.1", 0), Mailbox) as server:
        server.mails = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        monkeypatch.setenv("SMTP_SERVER", f"127.0.0.1:{server.server_address[1]}")
        yield server.mails  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


ASK = calls(call("refund", {"order": "1042", "euros": 40}), text="I refund it.")


@pytest.mark.parametrize(
    ("word", "told"),
    [("yes", "refunded 40 euros for order 1042"), ("no", "the refund was refused")],
)
def test_a_refund_waits_for_the_answer_to_a_mail(
    word: str, told: str, play: Play, mails: list[str]
) -> None:
    asked = play("approvals_by_mail", "ask", "Refund order 1042", model=Script(ASK))
    [mail] = mails
    command = re.search(rf"approvals_by_mail.py {word} (refund-\w+)", mail)
    assert command is not None
    decided = Script(lambda request: request.messages[-1].text)

    answered = play("approvals_by_mail", word, command[1], model=decided)
    again = play("approvals_by_mail", word, command[1], model=Script())

    assert asked.code == 6
    assert asked.out.startswith("paused: ")
    body = mail.replace("\r\n", "\n").partition("\n\n")[2]
    assert_shown("approvals-by-mail", body.replace(command[1], "refund-1f0c9a7e"))
    assert answered.code == 0
    assert told in answered.out
    assert again.err == f"error: no tool call waits in session {command[1]}\n"


def test_a_refund_still_waits_if_the_mail_server_cannot_be_reached(play: Play) -> None:
    ran = play(
        "approvals_by_mail", "ask", "Refund", model=Script(ASK), SMTP_SERVER=f"127.0.0.1:{closed()}"
    )

    assert ran.code == 1
    assert re.fullmatch(
        r"error: 127.0.0.1 did not accept the mail \(.*\); session refund-\w+ still waits\n",
        ran.err,
    )


def closed() -> int:
    """Return a port on which no program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def stream_of(text: str) -> bytes:
    """Return a reply in the format of OpenAI's API and of local servers."""
    deltas: list[tuple[Mapping[str, str], str | None]] = [({"content": text}, None), ({}, "stop")]
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return http("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")


def test_the_local_model_answers_if_the_cloud_cannot_be_reached(
    play: Play, loopback: Callable[..., Any]
) -> None:
    local = loopback(stream_of("It is noon."))

    ran = play(
        "failover_local",
        "What time is it?",
        GLUE_MODEL="",
        ANTHROPIC_API_KEY=KEY,
        ANTHROPIC_BASE_URL=f"http://127.0.0.1:{closed()}",
        OLLAMA_BASE_URL=f"{local.url}/v1",
    )

    assert (ran.code, ran.out) == (0, "It is noon.\n")
    assert json.loads(local.seen[0].body)["model"] == "qwen3:0.6b"
    lines = re.sub(r"127.0.0.1:\d+", "api.anthropic.com:443", ran.err).splitlines()
    [shown] = blocks(ROOT / "docs" / "cookbook" / "failover-local.md", "text")
    assert shown.splitlines() == [*lines, "It is noon."]


# Texts


def test_the_changelog_drops_invented_commits_and_lists_those_left_out(
    play: Play, bare: Path
) -> None:
    git(bare, "init", "-q", "-b", "main", "--template=")
    for subject in ("start", "feat: export as CSV", "fix: dates in exports", "chore: tidy"):
        git(bare, "commit", "-q", "--allow-empty", "-m", subject)
    hashes = git(bare, "log", "--format=%h", "--abbrev=8").split()
    entries = [
        {"kind": "Fixed", "text": "Write dates correctly in exports", "commits": [hashes[1]]},
        {"kind": "Added", "text": "Export tables as CSV", "commits": [hashes[2], "deadbeef"]},
        {"kind": "Added", "text": "Fly to the moon", "commits": ["deadbeef"]},
    ]
    script = Script(calls(call("final_answer", {"value": entries})))

    ran = play("changelog_writer", hashes[3], model=script)

    assert_shown("changelog-writer", ran.out)
    assert f"Export tables as CSV ({hashes[2]})" in ran.out
    assert "moon" not in ran.out
    assert ran.err == f"left out: {hashes[0]} chore: tidy\n"
    page = (ROOT / "docs" / "cookbook" / "changelog-writer.md").read_text()
    assert f"`{ran.err.strip()}`" in page


def test_release_notes_with_invented_names_are_sent_back(play: Play, bare: Path) -> None:
    (bare / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.1.0\n\n- `shop export --csv` writes tables.\n\n## 1.0.0\n\n- First.\n"
    )
    good = "Tables can be exported.\n\n- `shop export --csv` writes a table as CSV."
    script = Script("Use `shop export --xml`.", good)

    ran = play("release_notes", "CHANGELOG.md", "1.1.0", model=script)
    missing = play("release_notes", "CHANGELOG.md", "9.9.9", model=Script())

    assert_shown("release-notes", ran.out)
    assert script.requests[0].messages[0].text == "- `shop export --csv` writes tables."
    assert "not in the changelog: shop export --xml." in script.requests[1].messages[-1].text
    assert missing.err == "error: section 9.9.9 is not in the changelog\n"


def test_a_translation_without_a_word_of_the_glossary_is_sent_back_once(
    play: Play, bare: Path
) -> None:
    (bare / "guide.md").write_text("A session keeps the transcript.")
    glossary = ("--glossary", str(EXAMPLES / "data" / "glossary.csv"))
    corrected = Script("Eine Sitzung.", "Eine Sitzung speichert das Protokoll.")
    stubborn = Script(repeat("Eine Session."))

    good = play("translation_glossary", "guide.md", *glossary, model=corrected)
    bad = play("translation_glossary", "guide.md", *glossary, model=stubborn)

    assert_shown("translation-glossary", good.out)
    assert corrected.requests[1].messages[-1].text.endswith("glossary: transcript -> Protokoll")
    assert (good.code, bad.code) == (0, 1)
    assert "the translation lacks a word of the glossary: session -> Sitzung" in bad.err
    assert len(stubborn.requests) == 2


# Pictures and PDFs


def test_captions_are_written_for_pictures_and_others_are_reported(play: Play, bare: Path) -> None:
    (bare / "red.png").write_bytes(png(8, 8))
    (bare / "notes.txt").write_text("x")
    script = Script(calls(call("final_answer", {"alt": "A red rectangle.", "text": ""})))

    ran = play("image_captions", "red.png", "notes.txt", "none.png", model=script)

    [_, picture] = script.requests[0].messages[0].content
    assert isinstance(picture, glue.Image)
    assert (picture.media_type, picture.data) == ("image/png", png(8, 8))
    assert_shown("image-captions", ran.out)
    assert ran.code == 1
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["notes.txt", "none.png"]


def test_the_fields_of_a_pdf_are_extracted_and_added_up(play: Play) -> None:
    def answer(total: float) -> Script:
        lines = [{"text": "Paper", "amount": 12.5}, {"text": "Ink", "amount": 30.0}]
        invoice = {"number": "R-17", "date": "2026-03-02", "lines": lines, "total": total}
        return Script(calls(call("final_answer", invoice)))

    right, wrong = answer(42.5), answer(45.2)
    file = str(EXAMPLES / "data" / "invoice.pdf")

    good = play("pdf_extraction", file, model=right)
    bad = play("pdf_extraction", file, model=wrong)

    assert "Paper 12.50, Ink 30.00. Total 42.50" in right.requests[0].messages[0].text
    assert_shown("pdf-extraction", good.out)
    assert (good.code, good.err) == (0, "")
    assert (bad.code, bad.err) == (1, "check the sum: the lines add up to 42.50, not 45.20\n")


def test_the_binary_files_of_the_examples_have_the_described_content() -> None:
    text = "Invoice R-17, 2026-03-02. Paper 12.50, Ink 30.00. Total 42.50"

    assert (EXAMPLES / "data" / "invoice.pdf").read_bytes() == pdf(text)
    assert (EXAMPLES / "data" / "red.png").read_bytes() == png(64, 48)
    with closing(sqlite3.connect(EXAMPLES / "data" / "shop.db")) as db:
        assert db.execute("SELECT name, price FROM items").fetchall() == [
            ("rice", 2.5),
            ("beans", 3.0),
            ("olive oil", 11.9),
        ]


# MCP, review, models, sub-agents, sandbox


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_another_program_uses_the_mcp_server(bare: Path) -> None:
    words = ["-c", "from glue.cli.app import main; main()", "mcp"]
    words += [str(EXAMPLES / "mcp_server.py"), "--only-tools", "--allow", "sell"]
    ask = calls(
        call("shop__sell", {"title": "Emma"}, id="1"), call("shop__sell", {"title": "X"}, id="2")
    )
    script = Script(ask, "Sold.")

    async with mcp.connect_stdio("shop", sys.executable, words, {"HOME": str(bare)}) as server:
        names = [tool.name for tool in server.tools]
        await glue.Agent(script, tools=server.tools, permission=glue.AllowAll()).run("Sell Emma.")

    assert names == ["shop__stock", "shop__sell"]
    sold, unknown = results(script)
    assert json.loads(sold) == {"title": "Emma", "copies": 2}
    assert unknown == "'X' is not in the shop, which has: emma, persuasion"


def test_a_review_annotates_the_change_and_fails_on_grave_findings(play: Play, bare: Path) -> None:
    git(bare, "init", "-q", "-b", "main", "--template=")
    for branch, text in (("main", "x = 1\n"), ("work", "x = 1\n<<<<<<< main\ny\n=======\n")):
        git(bare, "checkout", "-q", "-B", branch)
        (bare / "shop.py").write_text(text + (">>>>>>> work\n" if branch == "work" else ""))
        git(bare, "add", "shop.py")
        git(bare, "commit", "-q", "-m", branch)

    ran = play("review_in_ci", "--base", "main")
    clean = play("review_in_ci", "--base", "work")

    assert (ran.code, clean.code) == (1, 0)
    assert_shown("review-in-ci", ran.out + ran.err)
    assert clean.err == "findings: 0, files: 0\n"


def test_two_models_are_compared_on_the_same_cases(play: Play, bare: Path) -> None:
    (bare / "cases.jsonl").write_text(
        '{"id": "emma", "prompt": "Is Emma there?", "contains": "3"}\n'
        '{"id": "hello", "prompt": "Say hello", "contains": "hello"}\n'
    )
    good = {"Is Emma there?": "3 copies", "Say hello": "hello"}

    def model(name: str) -> Script:
        paid = glue.Usage(input=400, output=20, cost=0.0004 if name == "groq" else 0.0012)
        if name == "groq":
            return Script(repeat(say("I do not know.", usage=paid)), name=name)
        answer = repeat(lambda request: say(good[request.messages[0].text], usage=paid))
        return Script(answer, name=name)

    # Without prices of the user, which would replace the costs above.
    ran = play("compare_two_models", "cases.jsonl", "openai", "groq", model=model, GLUE_PRICES="")
    same = play(
        "compare_two_models", "cases.jsonl", "openai", "openai", model=model, GLUE_PRICES=""
    )

    assert_shown("compare-two-models", ran.out)
    assert (ran.code, same.code) == (0, 0)
    assert "better in 2 cases, worse in 0" in ran.out


def test_a_prompt_is_tested_on_recorded_replies_and_compared_with_its_baseline(
    play: Play, bare: Path, loopback: Callable[..., Any]
) -> None:
    (bare / "prompt.md").write_text("Be brief.")
    (bare / "cases.jsonl").write_text(
        '{"id": "emma", "prompt": "Is Emma there?", "contains": "3"}\n'
        '{"id": "hello", "prompt": "Say hello", "contains": "hello"}\n'
    )

    good, rude = stream_of("hello, 3 copies"), stream_of("3 copies")
    server = loopback(good, good, rude, rude)
    words = ("prompt_in_ci", "prompt.md", "cases.jsonl")
    model = {"GLUE_MODEL": "ollama:qwen3:0.6b", "OLLAMA_BASE_URL": f"{server.url}/v1"}
    missing = play(*words)
    recorded = play(*words, "--record", **model)
    accepted = play(*words, "--accept")
    (bare / "prompt.md").write_text("Be rude.")
    changed = play(*words)
    worse = play(*words, "--record", **model)
    kept = play(*words, "--accept")

    assert missing.err.startswith("error: the cassette prompt.cassette.jsonl cannot be read")
    assert recorded.out.endswith("there is no baseline; --accept creates it\n")
    assert accepted.out == "2 of 2 trials passed\nbetter: none; worse: none\n"
    failed = changed.out.splitlines()[2]  # the requests of both cases are sent at the same time
    assert_shown("prompt-in-ci", re.sub(r"request \d differs", "request 1 differs", failed))
    assert_shown("prompt-in-ci", worse.out)
    assert [ran.code for ran in (recorded, accepted, changed, worse, kept)] == [1, 0, 1, 1, 0]
    assert len(server.seen) == 4  # the other runs replayed the replies


def test_the_researchers_read_the_notes_and_a_false_source_is_reported(play: Play) -> None:
    def answer(request: glue.Request) -> Any:
        last = request.messages[-1]
        if any(tool.name == "researcher" for tool in request.tools):
            if isinstance(last, glue.ToolMessage):
                return "Oslo is older [oslo.md], Bergen is wetter [bergen.md] [rome.md]."
            return calls(
                call("researcher", {"prompt": "oslo"}, id="1"),
                call("researcher", {"prompt": "bergen"}, id="2"),
            )
        if isinstance(last, glue.ToolMessage):
            return f"{last.text} [x.md]"
        return calls(call("read_file", {"path": f"{last.text}.md"}))

    script = Script(repeat(answer))

    ran = play("research_subagents", str(EXAMPLES / "data" / "notes"), "Compare.", model=script)

    oslo, bergen = results(script)
    assert "Founded around 1040" in oslo
    assert "240 days" in bergen
    assert (ran.code, ran.out) == (
        1,
        "Oslo is older [oslo.md], Bergen is wetter [bergen.md] [rome.md].\n",
    )
    assert ran.err.splitlines()[-1] == "unknown source: rome.md"


@pytest.mark.skipif(find_backend("") is None, reason="no sandbox works on this machine")
def test_the_coding_agent_writes_below_its_folder_and_nowhere_else(
    play: Play, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = bare / "project"
    project.mkdir()
    (bare / "secret.txt").write_text("hidden")
    monkeypatch.chdir(project)
    script = Script(
        calls(call("write_file", {"path": "made.py", "content": "print(6 * 7)\n"}), usage=FREE),
        calls(call("shell", {"command": f"{sys.executable} made.py"}), usage=FREE),
        calls(call("shell", {"command": "cat ../secret.txt; echo x > ../secret.txt"}), usage=FREE),
        "Done.",
    )

    ran = play("coding_agent_sandbox", "--yes", "Write it.", model=script)

    _, printed, blocked = results(script)
    assert ran.out == "Done.\n"
    assert (project / "made.py").read_text() == "print(6 * 7)\n"
    assert "42" in printed
    assert "hidden" not in blocked
    assert (bare / "secret.txt").read_text() == "hidden"


def test_the_coding_agent_writes_nothing_without_permission(
    play: Play, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_backend("") is None:
        pytest.skip("no sandbox works on this machine")
    write = calls(call("write_file", {"path": "made.py", "content": "x"}), usage=FREE)
    script = Script(write, "Denied.")

    play("coding_agent_sandbox", "Write it.", model=script)

    assert "permission denied" in results(script)[0]
    assert not (bare / "made.py").exists()
