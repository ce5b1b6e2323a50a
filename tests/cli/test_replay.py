"""`glue replay`: print a recorded run, or run an agent against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_a_recorded_run_is_replayed_without_the_model(cli: Cli, agent: str) -> None:
    first = cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    text = Path(agent).read_text()
    Path(agent).write_text(text.replace("def answer(request):", "def answer(request):\n    1 / 0"))

    again = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "save it")

    assert again.out == first.out
    assert cli("replay", "cassette.jsonl", agent, "--yes").out == first.out
    assert "· save" in cli("replay", "cassette.jsonl").err
    other = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "something else")
    assert other.code == 1
    assert "differs from request 1 of the cassette" in other.err


THINKER = """
from glue import Agent, tool
from glue.testing import Script, call, calls, repeat, say

@tool
def look(name: str) -> str:
    "Look."
    return f"it is {name}"

def answer(request):
    last = request.messages[-1]
    if last.__class__.__name__ == "UserMessage":
        return calls(call("look", {"name": "red"}), text="One moment.")
    return say("Red.", thinking="Hm, a colour. ")

agent = Agent(Script(repeat(answer), name="acme", model="big"), tools=[look])
"""


def test_a_recording_is_printed_request_by_request(cli: Cli) -> None:
    Path("thinker.py").write_text(THINKER)
    cli("run", "thinker.py", "--record", "cassette.jsonl", "which colour?")

    short, long = cli("replay", "cassette.jsonl"), cli("replay", "cassette.jsonl", "-v")

    assert short.out == long.out == "One moment.\nRed.\n"
    assert short.err.splitlines() == [
        "request 1: acme:big, 1 message",
        '· look {"name": "red"}',
        "request 2: acme:big, 3 messages",
    ]
    assert long.err.splitlines() == [
        *short.err.splitlines(),
        '  look: [{"type": "text", "text": "it is red"}]',
        "Hm, a colour. ",
    ]


def test_a_recording_without_a_prompt_needs_one(cli: Cli, agent: str) -> None:
    cli("run", agent, "--yes", "--record", "cassette.jsonl", "hello")
    text = Path("cassette.jsonl").read_text()
    head = text.splitlines()[0]
    Path("empty.jsonl").write_text(f"{head}\n")
    Path("none.jsonl").write_text(text.replace('"role": "user"', '"role": "tool"'))

    for name in ("empty.jsonl", "none.jsonl"):
        assert cli("replay", name, agent).err == (
            f"glue: {name} contains no prompt; add a PROMPT to the command\n"
        )


def test_a_recorded_prompt_that_begins_with_an_at_sign_is_not_a_file(cli: Cli, agent: str) -> None:
    first = cli("run", agent, "--record", "cassette.jsonl", "@@ada, mail bob@example.org")

    ran = cli("replay", "cassette.jsonl", agent)

    assert (ran.code, ran.out) == (0, first.out)


def test_a_failed_request_of_a_recording_is_printed(cli: Cli) -> None:
    Path("broken.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, fail\n"
        "agent = Agent(Script(fail('auth', 'the key is wrong'), name='acme', model='big'))\n"
    )
    cli("run", "broken.py", "--record", "cassette.jsonl", "hello")

    ran = cli("replay", "cassette.jsonl")

    assert ran.err.splitlines()[0] == "request 1:, 1 message"
    assert "✗ " in ran.err
    assert "the key is wrong" in ran.err


def test_a_damaged_cassette_prints_one_line(cli: Cli, agent: str) -> None:
    cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    text = Path("cassette.jsonl").read_text()

    for old, new, args in (
        ('"done", "message"', '"done", "m"', ()),
        ('"content": [', '"content": 5, "x": [', (agent,)),
    ):
        Path("damaged.jsonl").write_text(text.replace(old, new))
        ran = cli("replay", "damaged.jsonl", *args)
        assert (ran.code, ran.err.startswith("glue: damaged.jsonl is damaged: ")) == (2, True), (
            ran.err
        )


def test_an_at_sign_inside_a_recorded_prompt_is_kept(cli: Cli, agent: str) -> None:
    first = cli("run", agent, "--record", "cassette.jsonl", "mail ada@example.org")

    ran = cli("replay", "cassette.jsonl", agent)

    assert (ran.code, ran.out) == (0, first.out)
    assert "ada@example.org" in ran.out
