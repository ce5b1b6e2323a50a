"""Permission questions: the whole target is shown, and only a clear yes allows."""

from __future__ import annotations

import io

import pytest

from glue.cli.approval import parse_answer, question
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
