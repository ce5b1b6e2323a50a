"""Events as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import glue
from glue import Agent, Request, Usage, events, tool, user
from glue.codec import from_json, to_json, to_plain
from glue.events import GateList, RequestStart, ToolEnd, ToolUpdate, TurnStart
from glue.events.union import event_to_json, snake
from glue.messages import Text, ToolMessage, ToolSpec
from glue.testing import Script, call, calls


def test_events_and_objects_become_plain_json() -> None:
    usage = Usage(input=1, output=2)
    message = ToolMessage(call_id="1", name="look", content=(Text(text="x"),))

    event = event_to_json(ToolEnd(call=call("look", id="1"), message=message, seconds=0.5))

    assert event["type"] == "tool_end"
    assert event["message"]["role"] == "tool"
    assert event["call"]["name"] == "look"
    assert to_plain(usage)["output"] == 2
    assert to_plain({1: {2}, "path": object}) == {"1": [2], "path": "<class 'object'>"}
    json.dumps(event)


def test_the_json_of_a_request_counts_its_messages_and_names_its_tools() -> None:
    request = Request(messages=(user("a"), user("b")), tools=(ToolSpec(name="look"),))

    assert event_to_json(RequestStart(number=3, request=request)) == {
        "type": "request_start",
        "number": 3,
        "messages": 2,
        "tools": ["look"],
        "max_tokens": None,
    }


def test_the_event_of_a_sub_agent_is_nested_in_the_update_of_its_tool() -> None:
    update = ToolUpdate(call_id="1", name="helper", event=TurnStart(turn=2))

    assert event_to_json(update)["event"] == {"type": "turn_start", "turn": 2}


def test_a_gate_that_applied_is_written_without_the_field_abstained() -> None:
    data = {"name": "all", "allowed": ["look"], "priority": 0, "required": False}
    data |= {"reason": "", "dropped": False}

    gate = from_json(GateList, data)

    assert not gate.abstained
    assert to_json(gate) == data


def test_the_type_of_an_event_is_its_class_in_snake_case() -> None:
    assert snake("StopReasonObserved") == "stop_reason_observed"


def test_a_plain_run_does_not_load_the_events_that_explain() -> None:
    code = """
import sys, glue
from glue.testing import Script
glue.run_sync(Script("fine"), "go", on_event=print)
print([name for name in sys.modules if name.startswith("glue.events.")])
"""

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.splitlines()[-1] == "[]"


def test_every_public_name_of_the_package_exists() -> None:
    for name in glue.events.__all__:
        assert getattr(glue.events, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        glue.events.Nonsense  # type: ignore[attr-defined]  # noqa: B018


@tool(external=True)
def deploy() -> str:
    """Deploy."""
    return ""


def test_the_type_of_pending_calls_is_a_public_name() -> None:
    result = Agent(Script(calls(call("deploy"))), tools=[deploy]).run_sync("go", unwrap=False)

    assert "PendingCall" in events.__all__
    assert [type(each) for each in result.pending] == [events.PendingCall]
