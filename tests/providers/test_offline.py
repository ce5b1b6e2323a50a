"""The offline provider, with rules and without."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest

from glue import Agent, Ask, RunResult, allow, providers, tool
from glue.errors import MissingKey
from glue.limits import Outcome
from glue.loop.run import run
from glue.messages import (
    AssistantMessage,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    user,
)
from glue.provider import ask
from glue.providers.offline import NOTE, NOTICE, STAND_IN, Offline, StandIn, is_watched, play

ASK = user("What is in a.txt?")


async def test_without_rules_it_explains_itself_and_marks_the_result() -> None:
    result = await run(providers.new("offline"), [ASK])

    assert (result.text, result.outcome, result.cost) == (STAND_IN, Outcome.DONE, 0.0)
    assert (result.model, result.notice) == ("offline", NOTICE)
    assert "not a model" in STAND_IN
    assert "ANTHROPIC_API_KEY" in NOTICE


async def test_a_result_of_several_replies_has_the_notice_once() -> None:
    result = await Agent("offline", tools=[weather]).run("What is the weather in Toronto?")

    assert result.requests == 2
    assert result.notice == NOTICE


async def test_rules_get_the_request_and_return_the_answer() -> None:
    def rules(request: Request) -> str:
        return f"{len(request.messages)} message, system {request.system!r}"

    result = await run(Offline(rules), [ASK], request=Request(system="brief"))

    assert result.text == "1 message, system 'brief'"


async def test_rules_may_be_async_and_may_call_tools() -> None:
    async def rules(request: Request) -> str | tuple[Thinking | ToolCall, ...]:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return f"it says: {last.text}"
        return (Thinking(text="read it"), ToolCall(id="c1", name="nope", arguments="{}"))

    result = await run(providers.new("offline", rules=rules), [ASK])

    assert result.text.startswith("it says: ")
    assert result.turns == 1


async def test_rules_may_return_a_complete_reply() -> None:
    reply = AssistantMessage(
        content=(Text(text="two\nlines"),), provider="offline", model="rules-1"
    )

    result = await run(Offline(lambda request: reply), [ASK])

    assert (result.text, result.model, result.notice) == ("two\nlines", "rules-1", "")


# Playing an agent


@tool
def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"{city}: 21 degrees, dry"


@tool
def clock(place: str, style: Literal["short", "long"] = "short") -> str:
    """Say the time somewhere."""
    return f"12:00 in {place}, {style}"


@tool
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError("a stand-in ran a command")


def asked(result: RunResult[Any]) -> list[tuple[str, Any]]:
    return [
        (call.name, json.loads(call.arguments))
        for message in result.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]


async def test_it_calls_the_tool_that_the_prompt_names_and_answers_with_its_result() -> None:
    result = await Agent("offline", tools=[clock, weather]).run("What is the weather in Toronto?")

    assert asked(result) == [("weather", {"city": "Toronto"})]
    assert result.text.splitlines() == ["weather: Toronto: 21 degrees, dry", NOTE]
    assert result.outcome is Outcome.DONE
    assert "stand-in" in NOTE


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("the clock in Rome", [("clock", {"place": "Rome"})]),
        (
            "Weather, please: Oslo and Bergen",
            [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})],
        ),
        ("a long clock for 'New York'", [("clock", {"place": "New York", "style": "long"})]),
        ("please run ls and rm -rf", [("clock", {"place": "rf"})]),
        ("hi", []),
    ],
)
async def test_arguments_are_taken_from_prompt_enums_and_defaults(prompt: str, calls: Any) -> None:
    agent = Agent("offline", tools=[shell, clock, weather])

    first, second = await agent.run(prompt), await agent.run(prompt)

    assert asked(first) == calls
    assert asked(second) == calls
    assert first.text == second.text
    assert "stand-in" in first.text


async def test_a_tool_is_also_chosen_by_the_names_of_its_parameters() -> None:
    @tool
    def first(colour: str) -> str:
        """Look it up."""
        return colour

    @tool
    def second(planet: str) -> str:
        """Look it up."""
        return planet

    result = await Agent("offline", tools=[first, second]).run("is Mars a red planet")

    assert [name for name, _ in asked(result)] == ["second"]


async def test_a_shell_tool_is_never_called_even_if_the_prompt_asks_for_it() -> None:
    @tool
    def bash(script: str) -> str:
        """Run a script."""
        raise AssertionError("a stand-in ran a command")

    result = await Agent("offline", tools=[shell, bash]).run(
        "Run the shell command 'ls' in bash, now"
    )

    assert asked(result) == []


async def test_a_tool_that_needs_permission_runs_only_with_permission() -> None:
    saved: list[str] = []

    @tool(needs_permission=True)
    def save(name: str) -> str:
        """Save a note under a name."""
        saved.append(name)
        return "saved"

    denied = await Agent("offline", tools=[save]).run("Save the note under Paris")
    allowed = await Agent("offline", tools=[save], permission=Ask(lambda request: allow())).run(
        "Save it as Rome"
    )

    assert "permission denied" in denied.text
    assert saved == ["Rome"]
    assert allowed.text.startswith("save: saved")


async def test_the_next_prompt_of_a_session_calls_tools_again() -> None:
    session = Agent("offline", tools=[weather, clock]).session()

    await session.prompt("Weather in Oslo?")
    result = await session.prompt("And the clock in Rome?")

    assert result.text.startswith("clock: 12:00 in Rome")
    calls = [
        call.id
        for message in result.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    assert len(set(calls)) == 2


@dataclass
class Place:
    name: str
    latitude: Annotated[float, "between -90 and 90"]


@dataclass
class Everything:
    title: str
    severity: Literal["low", "high"]
    count: int
    when: datetime
    place: Place
    places: list[Place]
    tags: set[str]
    pair: tuple[int, str]
    other: Place | None
    either: int | str
    path: Path
    options: dict[str, int]
    note: str = "none"


async def test_with_an_output_type_it_returns_a_valid_object() -> None:
    found = (
        await Agent("offline", output=Everything).run(
            "The printer in Berlin burns: severity high, 3 times"
        )
    ).output

    assert (found.severity, found.count, found.place.name, found.note) == (
        "high",
        3,
        "Berlin",
        "none",
    )


async def test_an_output_is_filled_from_the_tool_results() -> None:
    @dataclass
    class Forecast:
        city: str
        degrees: int

    result = await Agent("offline", tools=[weather], output=Forecast).run("Weather in Toronto?")

    assert asked(result) == [("weather", {"city": "Toronto"})]
    assert result.output == Forecast("Toronto", 21)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 3, "maxLength": 5},
        {"type": "string", "format": "uuid"},
        {"type": "integer", "minimum": 5, "maximum": 9},
        {"type": "integer", "exclusiveMinimum": 3},
        {"type": "number", "maximum": 0},
        {"type": "array", "items": {"type": "string"}, "minItems": 3},
        {"type": "array", "maxItems": 0},
        {"type": ["null", "boolean"]},
        {"const": {"a": 1}},
        {"enum": [None, "x"]},
        {
            "oneOf": [
                {"type": "null"},
                {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "b"}]},
            ]
        },
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
    ],
)
async def test_the_answer_fits_any_schema(schema: Any) -> None:
    from jsonschema import Draft202012Validator

    wanted = {
        "type": "object",
        "properties": {"it": schema},
        "required": ["it"],
        "$defs": schema.get("$defs", {}),
    }
    text = play(Request(messages=(user("Give me 3 of 'these' in Rome"),), output_schema=wanted))

    assert isinstance(text, str)
    Draft202012Validator(wanted).validate(json.loads(text))


async def test_a_long_text_without_spaces_is_handled_quickly() -> None:
    started = time.process_time()

    result = await Agent("offline").run("a" * 100_000)

    assert result.outcome is Outcome.DONE
    assert time.process_time() - started < 10  # quadratic work would take minutes


async def test_values_come_from_the_examples_of_the_schema_if_the_prompt_has_none() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "examples": ["Lima"]},
            "days": {"type": "integer", "examples": [7]},
            "unit": {"enum": ["C", "F"], "default": "F"},
        },
        "required": ["city", "days", "unit"],
    }

    text = play(Request(messages=(user("please look it up"),), output_schema=schema))

    assert json.loads(str(text)) == {"city": "Lima", "days": 7, "unit": "F"}


def filled(schema: Any, prompt: str = "please look it up") -> str:
    return str(play(Request(messages=(user(prompt),), output_schema=schema)))


def test_a_reference_is_resolved_in_the_whole_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}},
        "required": ["a"],
        "$defs": {"B": {"const": 5}},
    }
    schema["properties"]["a"]["required"] = ["b"]  # type: ignore[index]

    assert json.loads(filled(schema)) == {"a": {"b": 5}}


def test_a_schema_that_contains_itself_is_filled_down_to_twenty_levels() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}

    text = filled(schema)

    assert text == '{"a": ' * 11 + "null" + "}" * 11  # an object and its reference are two levels


@pytest.mark.parametrize(
    ("schema", "start", "end", "levels"),
    [
        ({"type": "array", "items": {"$ref": "#"}}, "[", "]", 11),
        ({"type": "array", "prefixItems": [{"$ref": "#"}]}, "[", "]", 11),
        (
            {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}]},
            '{"a": ',
            "}",
            7,
        ),
    ],
)
def test_lists_and_choices_are_levels_too(schema: Any, start: str, end: str, levels: int) -> None:
    assert filled(schema) == start * levels + "null" + end * levels


@pytest.mark.parametrize(
    ("schema", "prompt", "text"),
    [
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "look", "1"),
        ({"enum": ["x", "y"]}, "look", '"x"'),
        ({"enum": ["x", "y"]}, "look at y", '"y"'),
        ({"enum": ["x"]}, "look", '"x"'),
        ({"type": "boolean"}, "look", "false"),
        ({"type": "integer", "exclusiveMinimum": 3}, "look", "4"),
        ({"type": ["null", "integer"]}, "look", "1"),
        ({"type": "array", "items": {"type": "integer"}}, "look", "[1]"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 5}, "look", "[1]"),
        ({"type": "string"}, "a trip to Zürich", '"Zürich"'),
        ({"properties": {"unit": {"enum": ["Kelvin"]}}}, "in Kelvin", '{"unit": "Kelvin"}'),
        ({"properties": {"unit": {"enum": ["Kelvin"]}}}, "in Celsius", "{}"),
    ],
)
def test_a_value_fits_its_schema_and_the_prompt(schema: Any, prompt: str, text: str) -> None:
    assert filled(schema, prompt) == text


def test_a_tool_that_must_be_called_is_called_whatever_the_prompt() -> None:
    tools = (ToolSpec(name="weather"), ToolSpec(name="clock"))

    def called(choice: str) -> Any:
        request = Request(messages=(user("weather"),), tools=tools, tool_choice=choice)
        reply = play(request)
        return reply if isinstance(reply, str) else [getattr(part, "name", "") for part in reply]

    assert called("clock") == ["clock"]
    assert called("required") == called("auto") == ["weather"]
    assert called("none") == STAND_IN


def test_calls_are_numbered_through_the_whole_history() -> None:
    tools = (ToolSpec(name="weather"),)
    first = play(Request(messages=(user("weather"),), tools=tools))
    assert isinstance(first, tuple)
    history = (
        user("weather"),
        AssistantMessage(content=first),
        ToolMessage(call_id="call_1", name="weather", content=(Text(text="dry"),)),
        user("weather again"),
    )
    second = play(Request(messages=history, tools=tools))

    assert isinstance(second, tuple)
    assert [getattr(call, "id", "") for call in (*first, *second)] == ["call_1", "call_2"]


def test_the_offline_provider_is_local_and_free() -> None:
    found = Offline().capabilities

    assert (found.local, found.input_price, found.output_price) == (True, 0.0, 0.0)
    assert found.takes_output({}, tools=True)


def test_a_tool_that_needs_a_path_is_called_only_if_the_prompt_has_one() -> None:
    schema = {"properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = (ToolSpec(name="read", parameters=schema),)

    assert isinstance(play(Request(messages=(user("read a.txt now"),), tools=tools)), tuple)
    assert play(Request(messages=(user("read it now"),), tools=tools)) == STAND_IN


def test_a_request_without_messages_gets_the_text_of_the_stand_in() -> None:
    assert play(Request()) == STAND_IN


@pytest.mark.parametrize(
    ("prompt", "is_called"),
    [("forecast", True), ("hi", False), ("hi there", False), ("greet her kindly", True)],
)
def test_a_short_prompt_calls_a_tool_only_if_they_share_a_word(
    prompt: str, is_called: bool
) -> None:
    tool = ToolSpec(name="weather", description="Return the forecast.")

    reply = play(Request(messages=(user(prompt),), tools=(tool,)))

    assert isinstance(reply, tuple) == is_called


def test_a_property_of_any_type_is_null() -> None:
    assert filled({"properties": {"a": True}, "required": ["a"]}) == '{"a": null}'


def test_each_field_gets_the_next_number_of_the_prompt() -> None:
    fields = {name: {"type": "integer"} for name in "abc"}

    text = filled({"properties": fields, "required": list(fields)}, "give me 3 and 5")

    assert json.loads(text) == {"a": 3, "b": 5, "c": 1}


async def test_a_cancelled_task_gets_no_answer() -> None:
    events = []

    with anyio.CancelScope() as scope:
        scope.cancel()
        async for event in Offline(lambda _: "hi").stream(Request()):
            events.append(event)  # noqa: PERF401

    assert (scope.cancelled_caught, events) == (True, [])


def test_a_whole_number_has_no_decimal_point() -> None:
    integer, number = ({"type": kind} for kind in ("integer", "number"))

    assert (filled(integer, "give me 3"), filled(number, "give me 3")) == ("3", "3.0")


@pytest.mark.parametrize(("size", "found"), [(20_000, "7"), (20_001, "1")])
def test_a_long_prompt_is_searched_up_to_a_limit(size: int, found: str) -> None:
    assert filled({"type": "integer"}, "add " + "x" * (size - 6) + " 7") == found


async def test_an_answer_with_a_call_stops_for_the_tool_and_another_one_ends_the_turn() -> None:
    call = ToolCall(id="c1", name="look", arguments="{}")

    stops = [
        (await ask(Offline(lambda _, given=given: given), Request())).stop_reason  # type: ignore[misc, union-attr]
        for given in ("hi", (Text(text="hi"),), (Text(text="hi"), call))
    ]

    assert stops == ["end_turn", "end_turn", "tool_use"]


# The stand-in of a program whose user has set no key


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the program's output a terminal."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("os.isatty", lambda fd: True)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal())


MISSING = MissingKey("", ["ACME_API_KEY"], "no key is set; set ACME_API_KEY")


def test_a_pipe_is_not_watched() -> None:
    assert not is_watched({})
    with pytest.raises(MissingKey, match="set ACME_API_KEY"):
        StandIn(MISSING)


def test_a_terminal_is_watched_unless_it_is_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)

    assert is_watched({})
    assert is_watched({"CI": "false"})
    assert not is_watched({"CI": "true"})


def test_a_terminal_with_only_one_stream_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", io.StringIO())

    assert not is_watched({})


@pytest.mark.parametrize(("terminal", "watched"), [(1, True), (2, False)])
def test_output_that_is_redirected_to_stderr_is_not_watched(
    monkeypatch: pytest.MonkeyPatch, terminal: int, watched: bool
) -> None:
    open_terminal(monkeypatch)
    monkeypatch.setattr("os.isatty", lambda fd: fd == terminal)

    assert is_watched({}) is watched


async def test_on_a_terminal_the_stand_in_answers_and_marks_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_terminal(monkeypatch)

    result = await run(StandIn(MISSING), [ASK])

    assert (result.text, result.model, result.notice) == (STAND_IN, "offline", NOTICE)


async def test_the_stand_in_does_not_invent_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)

    with pytest.raises(MissingKey, match="set ACME_API_KEY"):
        await Agent(StandIn(MISSING), output=Place).run("Where is Oslo?")


@pytest.mark.parametrize("code", ["Agent('offline')", "Agent(default())"])
def test_a_program_prints_once_that_no_model_answered(code: str) -> None:
    program = f"""
from glue import Agent
from glue.providers import default
agent = {code}
for _ in range(2):
    print(agent.run_sync("How old is Ada?", output=int).output)
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GLUE_MODEL": "offline"},
    )

    assert (done.stdout, done.stderr) == ("1\n1\n", f"glue: {NOTICE}\n")


def test_the_command_prints_once_that_no_model_answered() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glue", "run", "-m", "offline", "hello"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == f"glue: {NOTICE}\n"
