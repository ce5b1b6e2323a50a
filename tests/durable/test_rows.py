"""Rows of a map: prompts from input lines, JSON of results, and the state file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import glue
from glue import Agent, AssistantMessage, Message, Request, Text, ToolMessage, Usage, user
from glue.durable import MapRow
from glue.durable.batch import MapRun
from glue.durable.rows import InputLine, Reader, Row, input_lines, row_result, spent
from glue.errors import ConfigError, NewerSchema
from glue.limits import StopReason
from glue.testing import Repeat, Reply, Script, say

COST = Usage(input=10, output=5, cost=0.01)


def echo(request: Request) -> Reply:
    return say(f"<{request.messages[-1].text}>", usage=COST)


def agent(*steps: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(steps or (Repeat(echo),))), **options)


async def rows(job: MapRun) -> list[MapRow]:
    return [row async for row in job]


async def test_a_template_is_filled_from_the_fields_of_a_row() -> None:
    job = glue.map(agent(), [{"who": "Ada", "n": [1]}], template="{{{who}}} has {n}")

    assert [row.text for row in await rows(job)] == ["<{Ada} has [1]>"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nope", "line 1: not valid JSON: Expecting value at column 1"),
        ('{"prompt": 3}', "line 1: 'prompt' must be a string, not int"),
        ('{"title": "x"}', "line 1: no 'prompt'; the row has: title"),
        ('{"prompt": " "}', "line 1: the prompt is empty"),
        ("[1]", "line 1: a row must be a JSON object or a string, not list"),
        ('{"messages": []}', "line 1: 'messages' is empty"),
        ('{"messages": [{"role": "x"}]}', "line 1: 'messages': "),
        (
            '{"messages": [], "attachments": ["a.txt"]}',
            "line 1: 'attachments' has no effect beside 'messages'; leave out one",
        ),
        (
            '{"prompt": "x", "attachments": "a.txt"}',
            "line 1: 'attachments' must be a list of file names",
        ),
        ('{"prompt": "x", "attachments": ["a.txt"]}', "line 1: only the command line reads"),
        ("\udcff", "line 1: not valid UTF-8"),
    ],
)
async def test_an_invalid_row_is_reported_with_its_line_and_others_run(
    text: str, error: str
) -> None:
    found = await rows(
        glue.map(agent(), [InputLine(number=1, text=text), InputLine(number=2, text='"fine"')])
    )

    assert [row.outcome for row in found] == ["invalid", "done"]
    assert found[0].error.startswith(error)


async def test_a_missing_template_field_is_named_in_the_error() -> None:
    (row,) = await rows(glue.map(agent(), [{"a": "x"}], template="{b}"))

    assert row.error == "line 1: the template needs 'b'; the row has: a"


async def test_an_invalid_row_keeps_its_id() -> None:
    (row,) = await rows(glue.map(agent(), [{"id": "T-1"}], template="{b}"))

    assert (row.id, row.outcome) == ("T-1", "invalid")


def test_a_row_is_the_same_after_encoding_and_decoding() -> None:
    row = MapRow(
        number=3,
        id="x",
        outcome="done",
        text="t",
        output=[1],
        usage=COST,
        requests=2,
        session="row-3",
    )

    assert MapRow.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert MapRow.from_json(MapRow(number=1, outcome="invalid", error="e").to_json()).error == "e"


def test_the_result_of_a_run_is_made_again_from_its_row_and_transcript() -> None:
    messages = (
        user("hi"),
        AssistantMessage(content=(Text(text="t"),), stop_reason=StopReason.END_TURN),
    )
    row = MapRow(number=1, outcome="failed", text="t", usage=COST, turns=2, error="no", notice="n")

    result = row_result(row, messages)

    assert (result.outcome, result.text, result.usage, result.turns) == ("failed", "t", COST, 2)
    assert (result.stop_reason, str(result.error), result.notice) == ("end_turn", "no", "n")
    assert result.messages == result.new_messages == messages


async def test_resume_rejects_an_input_that_has_changed(tmp_path: Path) -> None:
    await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db"))

    with pytest.raises(
        ConfigError, match=r"line 1 has changed since it was run; .*--overwrite on the"
    ):
        await rows(glue.map(agent(), ["b"], state=tmp_path / "s.db", resume=True))


async def test_a_state_file_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db"))
    import sqlite3

    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("UPDATE map SET value = '9' WHERE name = 'version'")
        connection.commit()

    with pytest.raises(NewerSchema, match="schema 9 of map, but this glue supports only 1"):
        await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db", resume=True))


def test_attachments_are_read_with_the_given_function(tmp_path: Path) -> None:
    read = Reader(attach=lambda name: glue.Text(text=f"file {name}"))

    _, (message,) = read.read(
        InputLine(number=1, text='{"prompt": "see", "attachments": ["a.txt"]}')
    )

    assert [part.text for part in message.content if isinstance(part, glue.Text)] == [
        "see",
        "file a.txt",
    ]


def test_an_input_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: folder))

    with pytest.raises(ConfigError, match=r"^stdin cannot be read: Is a directory$"):
        list(input_lines("-"))
    with pytest.raises(ConfigError, match=r"/rows\.jsonl cannot be read: No such file"):
        list(input_lines(str(tmp_path / "rows.jsonl")))

    os.close(folder)


def test_a_new_row_has_no_tries_turns_or_requests() -> None:
    row = Row(id="a", prompt="go")
    ended = row.ended("done")

    assert (row.number, row.retries, row.tries, row.lost) == (1, 1, 0, 0)
    assert not row.is_new
    assert not row.is_lost
    assert (ended.tries, ended.lost, ended.session) == (0, 0, "a")
    assert MapRow(number=1, outcome="done").to_json() == {
        "number": 1,
        "outcome": "done",
        "text": "",
        "cost": 0.0,
    }
    assert MapRow.from_json({"number": 1, "outcome": "done"}) == MapRow(
        number=1, outcome="done", turns=0, requests=0, tries=1, lost=0
    )


def test_the_usage_of_a_transcript_includes_failed_attempts_and_sub_agents() -> None:
    usage = {"input": 100, "output": 50, "cost": 0.5}
    messages: list[Message] = [
        replace(user("go"), meta={"usage": usage}),
        AssistantMessage(content=(), usage=COST, meta={"attempts": [{"usage": usage}, {}]}),
        ToolMessage(call_id="a", name="child", content=(), meta={"usage": usage}),
        ToolMessage(call_id="b", name="look", content=()),
        AssistantMessage(content=()),
    ]

    assert spent(messages) == Usage(input=210, output=105, cost=1.01)
