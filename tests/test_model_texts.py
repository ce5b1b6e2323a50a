"""Snapshots of every text of the core that a model sees.

To accept a deliberate change: pytest tests/test_model_texts.py --snapshot-update
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from syrupy.assertion import SnapshotAssertion

import glue
from glue import Agent, Context, Field, Limits, UserMessage
from glue.compaction import INTRODUCTION, PROMPT
from glue.errors import ToolError
from glue.loop.transcript import NO_RESULT
from glue.policies import AutoContinue, Delivery, Gate, Gates
from glue.provider import Capabilities
from glue.testing import Script, call, calls, fail, partial, repeat, say


@dataclass
class Forecast:
    """The forecast of one day."""

    city: str
    degrees: Annotated[int, Field("In Celsius", ge=-90, le=60)]
    sky: Literal["dry", "wet"] = "dry"


@glue.tool
def look_up(
    city: Annotated[str, Field(min_length=2)],
    days: Annotated[int, Field("How many days", ge=1, le=14)] = 1,
    units: Literal["metric", "imperial"] = "metric",
) -> str:
    """Return the forecast for a city.

    Args:
        city: The name of a city.
    """
    return f"{city}: dry"


class NativeScript(Script):
    """A script of a provider that forces a reply to match a JSON schema."""

    capabilities = Capabilities(takes_output=lambda schema, *, tools=False: True)


def texts_sent(script: Script) -> str:
    """Return the texts of the last request that the core has written: origin, then text."""
    request = script.requests[-1]
    lines = [f"(system) {request.system}"] if request.system else []
    for message in request.messages:
        if isinstance(message, UserMessage) and message.origin != "user":
            lines.append(f"({message.origin}) {message.text}")
        elif isinstance(message, glue.ToolMessage):
            lines.append(f"({'error' if message.is_error else 'result'}) {message.text}")
        elif isinstance(message, glue.AssistantMessage) and "(truncated)" in message.text:
            lines.append(f"(assistant) {message.text}")
    return re.sub(r"spool:[0-9a-f]{16}", "spool:NAME", "\n".join(lines))


def specs(script: Script) -> str:
    """Return the tools of the last request, as the model receives them."""
    tools = script.requests[-1].tools
    return "\n\n".join(
        f"{tool.name}\n{tool.description}\n{json.dumps(tool.parameters, indent=1)}"
        for tool in tools
    )


async def test_a_cut_reply_is_continued(snapshot: SnapshotAssertion) -> None:
    script = Script(say("one and", stop="max_tokens"), "two")

    await Agent(script).run("go")

    assert texts_sent(script) == snapshot


@pytest.mark.parametrize("text", ["", "I look it up."])
async def test_a_cut_call_is_repaired(text: str, snapshot: SnapshotAssertion) -> None:
    script = Script(calls(partial("look_up"), text=text, stop="max_tokens"), "done")

    await Agent(script, tools=[look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_a_malformed_call_is_repaired(snapshot: SnapshotAssertion) -> None:
    script = Script(say("", stop="malformed_call"), "done")

    await Agent(script, tools=[look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_a_repeated_call_is_nudged(snapshot: SnapshotAssertion) -> None:
    same = calls(call("look_up", {"city": "Oslo"}))
    script = Script(same, same, same, "done")

    await Agent(script, tools=[look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_a_series_of_errors_is_nudged(snapshot: SnapshotAssertion) -> None:
    wrong = [calls(call("look_up", {"city": "Oslo", "days": days})) for days in (15, 16, 17)]
    script = Script(*wrong, "done")

    await Agent(script, tools=[look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_the_last_turn_is_announced(snapshot: SnapshotAssertion) -> None:
    script = Script(calls(call("look_up", {"city": "Oslo"})), "done")

    await Agent(script, tools=[look_up], limits=Limits(max_turns=2, grace=1)).run("go")

    assert texts_sent(script) == snapshot


async def test_an_announcement_is_nudged(snapshot: SnapshotAssertion) -> None:
    script = Script("I will now look it up.", "done")

    await Agent(script, tools=[look_up], policies=[AutoContinue()]).run("go")

    assert texts_sent(script) == snapshot


async def test_a_plain_answer_is_sent_back_to_the_delivery_tool(
    snapshot: SnapshotAssertion,
) -> None:
    @glue.tool(terminates=True)
    def deliver(text: str) -> str:
        """Deliver the result."""
        return "delivered"

    script = Script("It is dry.", calls(call("deliver", {"text": "dry"})))

    await Agent(script, tools=[deliver, look_up], policies=[Delivery("deliver", eager=True)]).run(
        "go"
    )

    assert texts_sent(script) == snapshot


async def test_a_tool_that_a_gate_removed_is_named(snapshot: SnapshotAssertion) -> None:
    gate = Gate(name="plan first", allow=["think"])
    script = Script(calls(call("look_up", {"city": "Oslo"})), "done")

    @glue.tool
    def think(thought: str) -> str:
        """Write down a thought."""
        return thought

    await Agent(script, tools=[look_up, think], policies=[Gates(gate)]).run("go")

    assert texts_sent(script) == snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"city": 5},
        {"city": "O"},
        {"city": "Oslo", "days": "many"},
        {"city": "Oslo", "days": 99},
        {"city": "Oslo", "units": "kelvin"},
        {"city": "Oslo", "unit": "metric"},
        {"town": "Oslo"},
        '{"city": "Oslo"',
        '["Oslo"]',
        "",
    ],
    ids=str,
)
async def test_wrong_arguments_are_explained(
    arguments: Mapping[str, Any] | str, snapshot: SnapshotAssertion
) -> None:
    script = Script(calls(call("look_up", arguments)), "done")

    await Agent(script, tools=[look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_failures_of_tools_are_explained(
    snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str]
) -> None:
    @glue.tool
    def divide(number: int) -> float:
        """Divide one by a number."""
        return 1 / number

    @glue.tool
    def refuse() -> str:
        """Refuse."""
        raise ToolError("there is no article 'x'; search for it first")

    @glue.tool
    def odd() -> Any:
        """Return a value without JSON."""
        return object()

    @glue.tool
    def nothing() -> None:
        """Return nothing."""

    @glue.tool(max_output=100)
    def long() -> str:
        """Return a long text."""
        return "word " * 100

    @glue.tool(timeout=0.01)
    async def slow() -> None:
        """Wait too long."""
        await anyio.sleep_forever()

    asked = [
        call("divide", {"number": 0}),
        *map(call, ("refuse", "odd", "nothing", "long", "slow")),
    ]
    script = Script(calls(*asked, call("lookup"), call("anything")), "done")

    await Agent(script, tools=[divide, refuse, odd, nothing, long, slow, look_up]).run("go")

    assert texts_sent(script) == snapshot


async def test_refusals_of_permission_and_hooks_are_explained(snapshot: SnapshotAssertion) -> None:
    @glue.tool(needs_permission=True, target="path")
    def write(path: str) -> str:
        """Write a file."""
        return "written"

    def broken(request: Any) -> Any:
        raise ValueError("the dialog was closed")

    hook = glue.ToolHook(before=lambda step: glue.Skip("a cached forecast"))
    found = []
    for settings in (
        {"tools": [write]},
        {"tools": [write], "permission": glue.Rules(deny=["write:*.lock"])},
        {"tools": [write], "permission": glue.Ask(lambda request: glue.deny("not on a Friday"))},
        {"tools": [write], "permission": glue.Ask(broken)},
        {"tools": [write], "permission": glue.AllowAll(), "hooks": [hook]},
    ):
        script = Script(calls(call("write", {"path": "a.lock"})), "done")
        await Agent(script, **settings).run("go")
        found.append(texts_sent(script))

    assert "\n".join(found) == snapshot


async def test_calls_without_a_result_are_explained(snapshot: SnapshotAssertion) -> None:
    dear = calls(call("look_up", {"city": "Oslo"}), usage=glue.Usage(output=1, cost=0.9))
    limited = await Agent(Script(dear), tools=[look_up], limits=Limits(usd_budget=0.8)).run(
        "go", unwrap=False
    )
    reply = glue.AssistantMessage(content=(call("look_up", {"city": "Bern"}, id="c1"),))
    again = Script("done")

    await Agent(again, tools=[look_up]).run(
        "And now?", message_history=[*limited.messages, glue.user("Bern?"), reply]
    )

    assert texts_sent(again) == snapshot
    assert snapshot == NO_RESULT


async def test_a_cancelled_call_is_explained(snapshot: SnapshotAssertion) -> None:
    @glue.tool
    async def stop(context: Context[Any]) -> None:
        """Cancel the run."""
        context.cancel.cancel()
        await anyio.sleep_forever()

    script = Script(calls("stop"))
    cancelled = await Agent(script, tools=[stop]).run("go", unwrap=False)
    again = Script("done")

    await Agent(again, tools=[stop]).run("And now?", message_history=cancelled.messages)

    assert texts_sent(again) == snapshot


async def test_results_of_sub_agents(snapshot: SnapshotAssertion) -> None:
    finished = Agent(Script("It is dry."), name="weather").as_tool()
    typed = Agent(
        Script(calls(call("final_answer", {"city": "Oslo", "degrees": 3}))),
        name="forecast",
        output=Forecast,
    ).as_tool()
    stuck = Agent(
        Script(repeat(calls(call("look_up", {"city": "Oslo"}), text="I look it up."))),
        name="stuck",
        tools=[look_up],
        limits=Limits(max_turns=1),
    ).as_tool()
    failing = Agent(Script(fail("auth", "wrong key")), name="failing").as_tool(
        description="Fail at once."
    )
    asked = [
        call(name, {"prompt": "Oslo?"}) for name in ("weather", "forecast", "stuck", "failing")
    ]
    script = Script(calls(*asked, call("weather", {"prompt": ""})), "done")

    await Agent(script, tools=[finished, typed, stuck, failing]).run("go")

    assert texts_sent(script) == snapshot
    assert specs(script) == snapshot


@pytest.mark.parametrize("kind", [Forecast, list[int], {"type": "object", "required": ["city"]}])
async def test_the_tool_for_the_answer(kind: Any, snapshot: SnapshotAssertion) -> None:
    wrong = calls(call("final_answer"))
    script = Script(wrong, "It is dry.", "done")

    await Agent(script).run("go", output=kind, unwrap=False)

    assert texts_sent(script) == snapshot
    assert specs(script) == snapshot


async def test_a_native_answer_that_is_invalid_is_sent_back(snapshot: SnapshotAssertion) -> None:
    script = NativeScript('{"city": "Oslo", "degrees": 99}', '{"city": "Oslo", "degrees": 9}')

    await Agent(script).run("go", output=Forecast)

    assert texts_sent(script) == snapshot


async def test_a_summary_of_earlier_messages(snapshot: SnapshotAssertion) -> None:
    summarizer = Script("Goal: the weather of Oslo.")
    script = Script(fail("context_overflow"), "done")
    reply = glue.AssistantMessage(
        content=(glue.Text(text="I look it up."), call("look_up", {"city": "Oslo"}, id="c1"))
    )
    result = glue.ToolMessage(call_id="c1", name="look_up", content=(glue.Text(text="dry"),))
    failed = glue.ToolMessage(
        call_id="c1", name="look_up", content=(glue.Text(text="no such city"),), is_error=True
    )
    answer = glue.AssistantMessage(content=(glue.Text(text="It is dry."),))
    history: list[glue.Message] = [
        glue.user("Oslo?"),
        reply,
        result,
        answer,
        glue.user("Bern?"),
        reply,
        failed,
        answer,
    ]
    keep = glue.keep_recent(2)

    await Agent(script, compaction=glue.summarize(summarizer, keep=keep)).run(
        "And now?", message_history=history
    )

    assert texts_sent(script) == snapshot
    asked = summarizer.requests[-1]
    assert f"{asked.system}\n----\n{asked.messages[0].text}" == snapshot
    assert snapshot == (PROMPT, INTRODUCTION)


async def test_a_project_with_a_skill(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "AGENTS.md").write_text("Answer in one line.\n")
    skill = tmp_path / ".agents" / "skills" / "forecasts"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: forecasts\ndescription: How to read one.\n---\nLook at the sky.\n"
    )
    script = Script(calls(call("skill", {"name": "forecasts"})), "done")

    await Agent(script, instructions="Help.", project=tmp_path).run("go")

    assert texts_sent(script).replace(str(tmp_path), "ROOT") == snapshot
    assert specs(script) == snapshot


def test_the_schema_of_a_tool(snapshot: SnapshotAssertion) -> None:
    script = Script("done")

    Agent(script, tools=[look_up]).run_sync("go")

    assert specs(script) == snapshot
