"""Wrong settings are refused before anything is sent, and say what would have been right."""

from __future__ import annotations

from typing import Any

import pytest

from glue import AssistantMessage, Limits, Policy, Request, run, tool
from glue.messages import Text, user
from glue.testing import Script


@pytest.mark.parametrize(
    ("name", "value", "error", "allowed"),
    [
        ("max_turns", -1, ValueError, "0 or more"),
        ("max_turns", "3", TypeError, "None for no limit"),
        ("max_turns", True, TypeError, "a whole number"),
        ("max_turns", 2.5, TypeError, "a whole number"),
        ("max_requests", -1, ValueError, "0 or more"),
        ("grace", None, TypeError, "a whole number"),
        ("token_budget", -5, ValueError, "0 or more"),
        ("usd_budget", "1", TypeError, "a number"),
        ("usd_budget", float("nan"), ValueError, "0 or more"),
        ("seconds", -0.5, ValueError, "0 or more"),
        ("parallel_tools", 0, ValueError, "1 or more"),
        ("repeat_halt", 0, ValueError, "1 or more"),
        ("truncated_batch", "stop", ValueError, "'run' or 'void'"),
        ("tool_choice", "", TypeError, "'auto'"),
        ("tool_choice", 3, TypeError, "'auto'"),
        ("estimator", 4, TypeError, "callable"),
        ("continuation_max_attempts", None, TypeError, "a whole number"),
    ],
)
def test_a_wrong_limit_names_itself_and_what_is_allowed(
    name: str, value: Any, error: type[Exception], allowed: str
) -> None:
    with pytest.raises(error, match=f"^{name} must be .*{allowed}"):
        Limits(**{name: value})


def test_every_limit_but_the_counts_may_be_none() -> None:
    limits = Limits(max_turns=None, max_requests=None, seconds=None, repeat_halt=None, error_nudge=None)

    assert limits.max_turns is None


def reply(text: str) -> AssistantMessage:
    return AssistantMessage(content=(Text(text=text),))


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"provider": "openai"}, TypeError, "provider must"),
        ({"messages": ["hi"]}, TypeError, "messages must"),
        ({"messages": []}, ValueError, "messages must"),
        ({"messages": 5}, TypeError, "messages must"),
        ({"messages": user("hi")}, TypeError, "messages must"),
        ({"messages": ""}, ValueError, "messages must .* empty"),
        ({"messages": [user("hi"), reply("x"), user(" ")]}, ValueError, "messages must .* empty"),
        ({"tools": noop}, TypeError, "tools must"),
        ({"request": Request(max_tokens=0)}, ValueError, "max_tokens must"),
        ({"policies": Policy()}, TypeError, "policies must"),
        ({"cancel": True}, TypeError, "cancel must"),
        ({"host": {"deps": 1}}, TypeError, "host must"),
        ({"journal": []}, TypeError, "journal must"),
        ({"tools": [print]}, TypeError, "tools must"),
        ({"tools": [noop, noop]}, ValueError, "'noop' is there twice"),
        ({"limits": 3}, TypeError, "limits must"),
        ({"limits": lambda: None}, TypeError, "limits must"),
        ({"limits": Limits(tool_choice="read")}, ValueError, "tool_choice must"),
        ({"request": {"model": "x"}}, TypeError, "request must"),
        ({"policies": [print]}, TypeError, "policies must"),
        ({"on_event": 3}, TypeError, "on_event must"),
    ],
)
async def test_a_wrong_argument_is_named_before_any_request(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    provider = Script("x")
    given: dict[str, Any] = {"provider": provider, "messages": "hi", "tools": [noop], **options}

    with pytest.raises(error, match=says):
        await run(given.pop("provider"), given.pop("messages"), **given)

    assert provider.requests == []


async def test_the_template_of_a_request_is_used() -> None:
    provider = Script("x")

    await run(provider, [user("hi")], request=Request(system="be brief", model="m", temperature=0.5))

    sent = provider.requests[0]
    assert (sent.system, sent.model, sent.temperature) == ("be brief", "m", 0.5)
