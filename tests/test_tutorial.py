"""The programs of the tutorial run, and its pages show their real output."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from fakes.pages import ROOT, blocks, checkout, commands, plain, run
from fakes.zygote import Zygote

from glue.testing import Script, call, calls, use_provider

PROGRAMS = ROOT / "examples" / "tutorial"
STEPS = sorted((ROOT / "docs" / "tutorial").glob("[1-6]-*.md"))


def test_the_tutorial_has_six_steps_with_one_program_each() -> None:
    shown = [blocks(page, "python") for page in STEPS]
    programs = {path.name: path.read_text() for path in PROGRAMS.glob("*.py")}
    index = (ROOT / "docs" / "tutorial" / "index.md").read_text()

    assert re.findall(r"\((\d-[\w-]+\.md)\)", index) == [page.name for page in STEPS]
    assert [len(each) for each in shown] == [1] * 6
    assert sorted(block for [block] in shown) == sorted(programs.values())
    assert all(text.startswith("# /// script\n") for text in programs.values())


@pytest.mark.parametrize("page", STEPS, ids=lambda page: page.stem)
def test_the_commands_of_a_step_print_the_shown_lines(
    page: Path, tmp_path: Path, zygote: Zygote
) -> None:
    folder = checkout(tmp_path)

    assert commands(page)
    for command, shown in commands(page):
        printed = run(command, folder, zygote)
        assert sorted(printed) == sorted(plain("\n".join(shown))), command


def test_an_order_is_corrected_until_it_is_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["order_form.py", "Send me forty books."])
    monkeypatch.setenv("GLUE_MODEL", "anthropic")
    order = {"title": "Emma", "copies": 40, "speed": "normal"}
    script = Script(
        calls(call("final_answer", order)), calls(call("final_answer", {**order, "copies": 20}))
    )

    with use_provider(script):
        runpy.run_path(str(PROGRAMS / "order_form.py"), run_name="__main__")

    assert capsys.readouterr().out == "20 x Emma, normal\n"
    assert "copies: got 40" in script.requests[1].messages[-1].text


def test_a_conversation_continues_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLUE_MODEL", "anthropic")
    script = Script("Good.", lambda request: " / ".join(each.text for each in request.messages))

    for prompt in ("I liked Emma.", "What did I like?"):
        monkeypatch.setattr(sys, "argv", ["desk_session.py", "ada", prompt])
        with use_provider(script):
            runpy.run_path(str(PROGRAMS / "desk_session.py"), run_name="__main__")

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "I liked Emma. / Good. / What did I like?",
        "(4 messages with ada)",
    ]
