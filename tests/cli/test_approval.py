"""Permission questions: the whole target is shown, and only a clear yes allows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from glue.cli.approval import change_of, parse_answer, parse_late_answer, question
from glue.cli.screen import Screen
from glue.permission import PermissionRequest, PermissionTarget


def test_a_question_shows_the_target_and_the_arguments() -> None:
    request = PermissionRequest(
        tool="write",
        action="write",
        target="a.txt",
        arguments={"path": "a.txt", "text": "x\x1b[0m\n" * 20, "n": 3},
    )

    text = question(request, Screen(io.StringIO(), {}))

    assert text.startswith("? write a.txt\n  text:\n    x␛[0m\n")
    assert "    … 8 more lines\n  n:\n    3" in text
    assert "path:" not in text


def test_a_question_shows_the_whole_target() -> None:
    command = "echo  a\tb\n" + "x" * 3000 + "; rm -rf ~"
    request = PermissionRequest(
        tool="shell", action="shell", target=command, arguments={"note": "y" * 400}
    )

    first, _, rest = question(request, Screen(io.StringIO(), {})).partition("\n")

    assert first == "? shell echo  a␉b␊" + "x" * 3000 + "; rm -rf ~"
    assert "y… 100 more characters" in rest


@pytest.mark.parametrize(("length", "end"), [(300, ""), (301, "… 1 more characters")])
def test_a_line_of_300_characters_is_shown_completely(length: int, end: str) -> None:
    request = PermissionRequest(
        tool="note", action="note", target="", arguments={"a": "y" * length}
    )

    text = question(request, Screen(io.StringIO(), {}))

    assert text.endswith(f"    {'y' * 300}{end}")


def test_a_question_shows_a_command_once_and_why_no_rule_decides() -> None:
    def shown(command: str, text: str) -> str:
        request = PermissionRequest(
            tool="shell",
            action="shell",
            target=f"{text} [no sandbox]",
            arguments={"command": command},
            touched=PermissionTarget(text=text, command=command),
            reason="the rule 'shell:rm *' may forbid it: the line contains rm",
        )
        return question(request, Screen(io.StringIO(), {}))

    reason = "  the rule 'shell:rm *' may forbid it: the line contains rm"
    assert shown("man rm", "man rm") == f"? shell man rm [no sandbox]\n{reason}"
    assert shown("a\nb", 'escaped: "a\\nb"').endswith("\n  command:\n    a\n    b")


def test_a_question_shows_controls_of_the_reading_direction() -> None:
    request = PermissionRequest(
        tool="shell", action="shell", target="rm \u200f1 2\u200e \u061c3\u202e", arguments={}
    )

    assert (
        question(request, Screen(io.StringIO(), {}))
        == "? shell rm ⟨U+200F⟩1 2⟨U+200E⟩ ⟨U+061C⟩3⟨U+202E⟩"
    )


@pytest.mark.parametrize(
    ("text", "allowed", "remember"),
    [("y", True, "call"), ("YES ", True, "call"), ("a", True, "target"), ("s", True, "session")]
    + [(text, False, "call") for text in ("", "n", "no", "yy", "ok", "\x03")],
)
def test_only_a_clear_yes_allows(text: str, allowed: bool, remember: str) -> None:
    decision = parse_answer(text)

    assert (decision.allowed, decision.remember) == (allowed, remember)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("y", True), (" Yes\n", True), ("n", False), ("NO", False)]
    + [(text, None) for text in ("", "later", "a", "s", "yy")],
)
def test_a_waiting_call_is_decided_only_by_yes_or_no(text: str, allowed: bool | None) -> None:
    decision = parse_late_answer(text)

    assert (decision.allowed if decision is not None else None) is allowed


def change(touched: PermissionTarget | None = None, **arguments: Any) -> list[str] | None:
    return change_of(
        PermissionRequest(
            tool="write", action="write", target="", arguments=arguments, touched=touched
        )
    )


def test_a_question_shows_the_diff_of_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one\ntwo\n")

    assert change(path="a.txt", content="one\n2\n") == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert change(path="a.txt", old="x", new="y") == ["@@ -1 +1 @@", "-x", "+y"]
    assert change(path="a.txt", content="one\ntwo\n") == []
    preview = PermissionTarget(text="a.txt", preview="-from\n+the tool")
    assert change(preview, path="a.txt", content="other") == ["-from", "+the tool"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "absent.txt", "content": "new"},
        {"path": "../outside.txt", "content": "new"},
        {"path": 5, "content": "new"},
        {"path": "a.txt", "content": 5},
        {"path": "a.txt"},
        {"old": "x"},
        {"old": "x", "new": 5},
    ],
)
def test_a_call_without_a_known_change_has_no_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one\n")

    assert change(**arguments) is None


def test_a_diff_in_a_question_is_cut_after_60_lines_and_replaces_its_arguments() -> None:
    def shown(old: str, new: str) -> list[str]:
        request = PermissionRequest(
            tool="edit", action="edit", target="a", arguments={"old": old, "new": new, "n": 1}
        )
        return question(request, Screen(io.StringIO(), {})).splitlines()

    long = shown("", "x\n" * 61)

    assert shown("x", "x") == ["? edit a", "    (the call changes nothing)", "  n:", "    1"]
    assert long[:3] == ["? edit a", "    @@ -0,0 +1,61 @@", "    +x"]
    assert long[-3:] == ["    … 2 more lines of the change", "  n:", "    1"]
    assert len(long) == 1 + 60 + 3


def test_a_diff_of_60_lines_is_shown_completely() -> None:
    request = PermissionRequest(
        tool="edit", action="edit", target="a", arguments={"old": "", "new": "x\n" * 59}
    )

    text = question(request, Screen(io.StringIO(), {}))

    assert text.splitlines()[1:] == ["    @@ -0,0 +1,59 @@", *["    +x"] * 59]


def test_a_diff_shows_two_lines_around_a_change() -> None:
    old = "".join(f"{number}\n" for number in range(1, 10))

    assert change(path="a.txt", old=old, new=old.replace("5", "five")) == [
        "@@ -3,5 +3,5 @@",
        *(" 3", " 4", "-5", "+five", " 6", " 7"),
    ]


def test_the_lines_of_a_diff_have_colours() -> None:
    preview = "@@ -1 +1 @@\n-a\n+b\n c\n\nd"
    request = PermissionRequest(
        tool="edit",
        action="edit",
        target="",
        arguments={},
        touched=PermissionTarget(text="", preview=preview),
    )

    lines = question(request, Screen(io.StringIO(), {"FORCE_COLOR": "1"})).splitlines()

    assert lines[1:] == [
        "\x1b[36m    @@ -1 +1 @@\x1b[0m",
        "\x1b[31m    -a\x1b[0m",
        "\x1b[32m    +b\x1b[0m",
        *("     c", "    ", "    d"),
    ]


def test_a_diff_compares_the_first_megabyte_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = "x" * 1024 * 1024
    Path("a.txt").write_text(first + "tail")

    assert change(path="a.txt", content=first) == []
    assert change(path="a.txt", content="new") == ["@@ -1 +1 @@", f"-{first}", "+new"]
