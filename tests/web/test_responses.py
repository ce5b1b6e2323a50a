"""`glue.web.sse`: a run as server-sent events, cancelled if the client hangs up."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fakes.web import fetch

import glue
from glue.errors import Cancelled
from glue.testing import Script, call, calls, fail, say
from glue.web import sse


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: dry"


async def test_the_events_of_a_run_are_sent_and_then_its_result() -> None:
    agent = glue.Agent(Script(calls(call("weather", {"city": "Oslo"})), "Dry."), tools=[weather])

    answer = await fetch(sse(agent.stream("Weather?")), "/")

    kinds = [message["type"] for message in answer.data]
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert kinds[0] == "run_start"
    assert kinds[-2:] == ["run_end", "result"]
    assert {"text_delta", "tool_start", "tool_end"} <= set(kinds)
    assert answer.data[-1] == {
        "type": "result",
        "outcome": "done",
        "text": "Dry.",
        "cost": None,
        "pending": [],
    }
    assert answer.ended


async def test_an_error_of_the_run_is_the_last_message() -> None:
    agent = glue.Agent(Script(fail("overloaded", "the server is busy")))

    answer = await fetch(sse(agent.stream("hi")), "/")

    assert answer.data[-1]["type"] == "error"
    assert "the server is busy" in answer.data[-1]["message"]
    assert answer.ended


async def test_a_client_that_hangs_up_cancels_the_run() -> None:
    ended: list[str] = []

    @glue.tool
    async def slow() -> str:
        """Wait until the run is cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("slow")
        return "never"

    agent = glue.Agent(Script(calls(call("slow"))), tools=[slow])
    events = agent.stream("go")

    answer = await fetch(sse(events), "/", hang_up_at='"tool_start"')

    assert ended == ["slow"]
    assert not answer.ended
    with pytest.raises(Cancelled):
        _ = events.result


async def test_a_text_with_half_a_character_is_sent_with_a_replacement() -> None:
    agent = glue.Agent(Script(say("a\ud800b")))

    answer = await fetch(sse(agent.stream("hi")), "/")

    assert answer.ended


async def test_texts_are_sent_as_utf_8() -> None:
    response = sse(glue.Agent(Script("Zürich")).stream("hi"))

    answer = await fetch(response, "/")

    assert '"text": "Zürich"'.encode() in answer.body
    assert (response.status_code, answer.headers["x-accel-buffering"]) == (200, "no")


@pytest.mark.parametrize("wrong", ["prompt", None, 3])
def test_anything_but_a_stream_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"agent\.stream"):
        sse(wrong)
