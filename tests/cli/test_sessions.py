"""`glue sessions`: list, show, search, export and remove sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    assert "--yes removes without asking" in refused.err
    assert stored("sessions", "rm", "-y", "first").code == 0
    assert "first" not in stored("sessions").out


def test_an_empty_list_names_the_store(cli: Cli) -> None:
    ran = cli("sessions")

    assert (ran.code, ran.out) == (0, "")
    assert ".local/state/glue/sessions" in ran.err
