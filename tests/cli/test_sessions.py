"""`glue sessions`: list, show, search, export and remove sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

import glue
from glue.testing import Script, call, calls, repeat, say

Cli = Callable[..., Any]


def test_sessions_are_listed_with_the_most_recent_first(stored: Cli) -> None:
    lines = stored("sessions").out.splitlines()[1:]

    assert [line.split()[2] for line in lines] == ["second", "first"]
    assert "Where is ␛[31mBergen?" in lines[0]
    assert [row["id"] for row in json.loads(stored("sessions", "list", "--json").out)] == [
        "second",
        "first",
    ]


def test_a_session_is_shown_searched_and_exported(stored: Cli) -> None:
    shown = stored("sessions", "show", "second").out
    found = stored("sessions", "search", "oslo")
    data = json.loads(stored("sessions", "export", "first").out)
    stored("sessions", "export", "first", "-f", "md", "-o", "first.md")

    assert shown.startswith("user\nWhere is ␛[31mBergen?\n\nassistant (offline:offline)\n")
    assert found.out == "session  role  found\nfirst    user  Where is [Oslo]?\n"
    assert stored("sessions", "search", "toronto").code == 1
    assert stored("sessions", "search", "toronto").err == "no message contains all of these words\n"
    assert data["messages"][0]["content"][0]["text"] == "Where is Oslo?"
    assert Path("first.md").read_text().startswith("## User\n\nWhere is Oslo?\n\n## Assistant\n")
    assert len(stored("sessions", "export", "first", "-f", "jsonl").out.splitlines()) == 2
    assert stored("sessions", "export", "second", "-f", "md").out.startswith(
        "## User\n\nWhere is ␛[31mBergen?\n"
    )


def test_a_session_is_removed_only_with_yes_if_no_user_can_be_asked(stored: Cli) -> None:
    refused = stored("sessions", "rm", "first")

    assert refused.code == 2
    assert "--yes removes the sessions without asking" in refused.err
    assert stored("sessions", "rm", "-y", "first").code == 0
    assert "first" not in stored("sessions").out


def test_an_empty_list_names_the_store(cli: Cli) -> None:
    ran = cli("sessions")

    assert (ran.code, ran.out) == (0, "")
    assert ".local/state/glue/sessions" in ran.err


def test_a_list_shows_60_characters_of_a_prompt_and_forks_below_their_parents(cli: Cli) -> None:
    store = glue.FileStore("kept")
    agent = glue.Agent(Script(repeat("ok")))
    for name in ("root", "other"):
        agent.session(name, store=store).run_sync("x" * 70)

    async def fork() -> None:
        await agent.session("root", store=store).fork(None, "copy")

    anyio.run(fork)

    lines = cli("sessions", "--store", "kept").out.splitlines()

    assert [line.split("  ")[1] for line in lines[1:]] == ["root", "· copy", "other"]
    assert lines[1].endswith("  " + "x" * 59 + "…")


def test_thinking_calls_and_errors_of_a_session_are_shown_and_exported(cli: Cli) -> None:
    @glue.tool
    def look(name: str) -> str:
        """Look at a thing."""
        raise glue.ToolError(f"no {name}")

    script = Script(
        calls(call("look", {"name": "red"}, id="c1")), say("None.", thinking="Hm."), name="acme"
    )
    glue.Agent(script, tools=[look]).session("s", store=glue.FileStore("kept")).run_sync("Which?")

    shown = cli("sessions", "show", "s", "--store", "kept").out
    exported = cli("sessions", "export", "s", "-f", "md", "--store", "kept").out

    assert shown == (
        "user\nWhich?\n\n"
        'assistant (acme:script-1)\n-> look {"name": "red"}\n\n'
        "[look, error]\nno red\n\n"
        "assistant (acme:script-1)\n(Hm.)\nNone.\n\n"
    )
    assert exported == (
        "## User\n\nWhich?\n\n"
        '## Assistant\n\n\n\n### Call of look\n\n```\n{"name": "red"}\n```\n\n'
        "### Result of look (error)\n\n```\nno red\n```\n\n"
        "## Assistant\n\nNone.\n"
    )


def test_the_result_of_a_call_is_shown_with_its_tool(cli: Cli, agent: str) -> None:
    cli("run", agent, "--yes", "-s", "s", "save it")

    assert "\n[save]\nsaved a.txt\n" in cli("sessions", "show", "s").out
    assert "\n### Result of save\n\n" in cli("sessions", "export", "s", "-f", "md").out
