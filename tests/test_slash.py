"""Slash commands: parsed once, for the chat and for editors."""

from __future__ import annotations

from typing import Any

import pytest

from glue import Agent, Limits, Usage, tool
from glue.errors import ConfigError
from glue.slash import COMMANDS, answer, change_limits, parse
from glue.testing import Script


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/model  openai:gpt-5 ", ("model", "openai:gpt-5")),
        (" /tools", ("tools", "")),
        ("/etc/passwd is a file", ("", "")),
        ("say /tools", ("", "")),
        ("/", ("", "")),
        ("/x", ("x", "")),
        ("/1a", ("", "")),
    ],
)
def test_a_command_is_a_slash_and_a_word(text: str, found: tuple[str, str]) -> None:
    assert parse(text) == found


def test_each_command_is_listed_once() -> None:
    names = [each.name for each in COMMANDS]

    assert len(set(names)) == len(names)


async def test_limits_are_set_by_name() -> None:
    session = Agent(Script("hi")).session()

    assert "max_turns=7, " in (
        await answer(session, "limits", "max_turns=7 token_budget=none") or ""
    )
    assert (session.limits.max_turns, session.limits.token_budget) == (7, None)


def test_an_unknown_limit_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there is no limit 'depth'; there are: max_turns"):
        change_limits(Limits(), {"depth": "3"})
    with pytest.raises(ValueError, match=r"max_turns must be a whole number or none, not '1\.5'"):
        change_limits(Limits(), {"max_turns": "1.5"})
    with pytest.raises(ValueError, match="seconds must be a number or none, not 'many'"):
        change_limits(Limits(), {"seconds": "many"})


async def test_commands_of_the_chat_return_none() -> None:
    assert await answer(Agent(Script("hi")).session(), "quit", "") is None


async def test_usage_shows_requests_tokens_and_cost() -> None:
    session = Agent(Script("hi")).session()
    await session.prompt("hello")
    used = Usage(input=1_200, output=1, cache_read=300, cost=1.5)

    told = "2 requests, 1,200 tokens in (300 cached), 1 out, $1.50, 2 messages"
    assert await answer(session, "usage", "", 2, used) == told
    assert (
        await answer(session, "usage", "", 1, Usage())
        == "1 request, 0 tokens in, 0 out, cost unknown, 2 messages"
    )


async def test_the_model_is_shown_and_changed() -> None:
    session = Agent(Script("hi")).session()

    assert await answer(session, "model", "") == "The model is script."
    assert await answer(session, "model", "offline") == "The model is offline."
    assert session.settings.model == "offline"
    with pytest.raises(ConfigError):  # a wrong name is an error at once, and changes nothing
        await answer(session, "model", "no-such-provider:x")
    assert session.settings.model == "offline"


async def test_tools_are_listed_with_those_that_need_permission() -> None:
    @tool(needs_permission=True)
    def send() -> str:
        """Send a message."""
        return ""

    @tool
    def look() -> str:
        """Look around."""
        return ""

    helper = Agent(Script("hi"), name="helper").as_tool(description="Help.")
    session = Agent(Script("hi"), tools=[send, look, helper]).session()

    assert await answer(session, "tools", "") == (
        "- send (asks): Send a message.\n- look: Look around.\n- helper: Help."
    )
    assert await answer(Agent(Script("hi")).session(), "tools", "") == "There are no tools."


async def test_nothing_was_used_by_default() -> None:
    told = await answer(Agent(Script("hi")).session(), "usage", "")

    assert told == "0 requests, 0 tokens in, 0 out, $0.0000, 0 messages"


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("usd_budget", "0.5", 0.5),
        ("seconds", " 2.5 ", 2.5),
        ("max_turns", "7", 7),
        ("token_budget", "None", None),
        ("max_requests", 9, 9),
    ],
)
def test_amounts_may_have_decimals_and_counts_may_not(name: str, value: Any, limit: Any) -> None:
    assert getattr(change_limits(Limits(), {name: value}), name) == limit


def test_editors_offer_the_commands_for_which_they_have_no_button() -> None:
    offered = [each.name for each in COMMANDS if each.in_editor]

    assert offered == ["model", "tools", "usage", "limits"]
