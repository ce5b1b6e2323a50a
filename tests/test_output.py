"""Structured output: replies are parsed as objects, and the model may correct invalid ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue import (
    Agent,
    Limits,
    Outcome,
    ToolResult,
    Usage,
    tool,
)
from glue.errors import (
    MaxTurnsExceeded,
    OutputError,
)
from glue.events import Nudge
from glue.function.validation import ValidationError
from glue.output import Output
from glue.provider import Capabilities, capabilities
from glue.providers import new
from glue.testing import Script, call, calls, repeat, say, shape


@dataclass
class Forecast:
    city: str
    degrees: int


class Row(TypedDict):
    name: str
    count: int


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


JSON = '{"city": "Toronto", "degrees": 21}'


TORONTO = Forecast("Toronto", 21)


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        f"  {JSON}\n",
        f"```json\n{JSON}\n```",
        f"```\n{JSON}\n```",
        f"~~~json\n{JSON}\n~~~",
        f"Here you are:\n\n```json\n{JSON}\n```\n\nAnything else?",
        f"Sure! The answer is {JSON}. Let me know {{if}} you need more.",
        f"I considered [1] and {{not this}}, then chose:\n{JSON}",
        f'First {{"city": "Oslo"}} (incomplete), then {JSON}',
        '{"city": "Toronto", "degrees": "21"}',
        f"<answer>{JSON}</answer>",
        f"  ```json\n  {JSON}\n  ```",
    ],
)
def test_json_surrounded_by_text_is_parsed(text: str) -> None:
    assert Output(Forecast).parse(text) == TORONTO


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Row, '{"name": "a", "count": 2}', {"name": "a", "count": 2}),
        (list[Forecast], f"[{JSON}]", [TORONTO]),
        (list[Forecast], f'{{"value": [{JSON}]}}', [TORONTO]),
        (list[Row], 'Here: [{"name": "a", "count": 1}]', [{"name": "a", "count": 1}]),
        (Mood, '"good"', Mood.GOOD),
        (Mood, "good", Mood.GOOD),
        (Mood, "**good**.", Mood.GOOD),
        (Mood, '{"value": "bad"}', Mood.BAD),
        (Literal["a", "b"], "b", "b"),
        (int, "7", 7),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (dict[str, int], 'It was {} before; now it is {"a": 1}, not {}.', {"a": 1}),
        (SCHEMA, '{"x": 1}', {"x": 1}),
    ],
)
def test_values_of_many_types_are_parsed(kind: Any, text: str, value: Any) -> None:
    assert Output(kind).parse(text) == value


def test_a_pydantic_model_is_parsed() -> None:
    pydantic = pytest.importorskip("pydantic")
    Model = pydantic.create_model("Model", city=(str, ...), degrees=(int, ...))

    assert Output(Model).parse(JSON) == Model(city="Toronto", degrees=21)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("No idea.", "the reply contains no JSON"),
        ("", "the reply contains no JSON"),
        ('{"city": "Toronto"}', "degrees"),
        ('{"city": "Toronto", "degrees": "warm"}', "degrees"),
        ("[" * 5000, "the reply contains no JSON"),
    ],
)
def test_the_fault_of_an_invalid_reply_is_reported(text: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Output(Forecast).parse(text)


def test_the_schema_is_always_an_object() -> None:
    assert Output(Forecast).schema["required"] == ["city", "degrees"]
    wrapped = Output(list[Forecast]).schema
    assert wrapped["type"] == "object"
    assert wrapped["properties"]["value"]["type"] == "array"


@given(st.text())
def test_any_text_is_parsed_or_rejected_without_other_errors(text: str) -> None:
    try:
        Output(Row).parse(text)
    except ValidationError:
        pass


@given(st.text(alphabet="abc \n.,:!"), st.text(alphabet="abc \n.,:!"))
def test_json_is_found_between_any_texts(before: str, after: str) -> None:
    assert Output(Forecast).parse(before + JSON + after) == TORONTO


def answer(**arguments: Any) -> Any:
    return calls(call("final_answer", arguments))


async def test_the_answer_can_be_given_through_the_final_tool() -> None:
    script = Script(answer(city="Toronto", degrees=21))

    result = await Agent(script, output=Forecast).run("x")

    assert result.output == TORONTO
    assert result.outcome is Outcome.DONE
    assert json.loads(result.text) == {"city": "Toronto", "degrees": 21}
    (spec,) = script.requests[0].tools
    assert spec.name == "final_answer"
    assert spec.parameters["required"] == ["city", "degrees"]
    assert script.requests[0].output_schema is None


async def test_the_answer_can_be_given_as_a_plain_reply() -> None:
    result = await Agent(Script(f"Here: {JSON}"), output=Forecast).run("x")

    assert result.output == TORONTO
    assert shape(result.messages) == "u a"


async def test_output_can_be_set_for_a_single_run() -> None:
    agent = Agent(Script(JSON, '"good"'), output=Forecast)

    assert (await agent.run("x")).output.degrees == 21
    assert (await agent.run("x", output=Mood)).output is Mood.GOOD


async def test_other_tools_can_be_called_before_the_answer() -> None:
    @tool
    def look() -> str:
        """Return ok."""
        return "21"

    script = Script(calls("look"), answer(city="Toronto", degrees=21))

    result = await Agent(script, tools=[look], output=Forecast).run("x")

    assert result.output == TORONTO
    assert shape(result.messages) == "u a t a t"


async def test_an_answer_given_with_another_call_ends_the_run() -> None:
    @tool
    def look() -> str:
        """Return ok."""
        return "21"

    both = calls(call("final_answer", {"city": "Toronto", "degrees": 21}), call("look"))
    script = Script(both, "All done.")

    result = await Agent(script, tools=[look], output=Forecast).run("x")

    assert result.output == TORONTO
    assert result.text == "All done."
    assert len(script.requests) == 2


async def test_an_answer_between_two_calls_does_not_keep_them_from_running_in_parallel() -> None:
    seen: list[str] = []

    @tool
    async def look(at: str) -> str:
        """Note the begin and the end of the call."""
        seen.append(f"begin {at}")
        await anyio.lowlevel.checkpoint()
        seen.append(f"end {at}")
        return "21"

    given = call("final_answer", {"city": "Toronto", "degrees": 21})
    step = calls(call("look", {"at": "a"}, id="1"), given, call("look", {"at": "b"}, id="2"))

    result = await Agent(Script(step, "ok"), tools=[look], output=Forecast).run("x")

    assert result.output == TORONTO
    assert [each.split()[0] for each in seen] == ["begin", "begin", "end", "end"]


async def test_the_final_tool_is_renamed_if_its_name_is_taken() -> None:
    @tool(name="final_answer")
    def mine() -> str:
        """Mine."""
        return "mine"

    script = Script(calls(call("final_answer_", {"city": "Toronto", "degrees": 21})))

    assert (await Agent(script, tools=[mine], output=Forecast).run("x")).output == TORONTO


async def test_the_faults_of_a_reply_are_sent_back_to_the_model() -> None:
    script = Script("No idea.", '{"city": "Toronto"}', JSON)

    result = await Agent(script, output=Forecast).run("x")

    assert result.output == TORONTO
    assert shape(result.messages) == "u a u+ a u+ a"
    assert result.turns == 2
    assert "the reply contains no JSON" in script.requests[1].messages[-1].text
    assert "degrees" in script.requests[2].messages[-1].text


async def test_the_faults_of_a_final_tool_call_are_sent_back_to_the_model() -> None:
    script = Script(answer(city="Toronto"), answer(city="Toronto", degrees=21))

    result = await Agent(script, output=Forecast).run("x")

    assert result.output == TORONTO
    assert "degrees" in script.requests[1].messages[-1].text


@pytest.mark.parametrize(
    "step", ["No idea.", answer(city="Toronto"), calls(call("final_answer", "[1"))]
)
async def test_a_run_fails_after_the_third_invalid_answer(step: Any) -> None:
    script = Script(repeat(step))

    with pytest.raises(OutputError, match="no answer of the required form") as caught:
        await Agent(script, output=Forecast).run("x")

    assert len(script.requests) == 3
    assert caught.value.faults
    assert caught.value.result is not None
    assert caught.value.result.outcome is Outcome.FAILED


async def test_each_run_counts_its_own_invalid_answers() -> None:
    agent = Agent(Script("a", "b", JSON, "a", "b", JSON), output=Forecast)

    assert (await agent.run("x")).output == TORONTO
    assert (await agent.run("x")).output == TORONTO


async def test_an_invalid_reply_fails_the_run_if_no_request_is_left() -> None:
    with pytest.raises(OutputError):
        await Agent(Script("no"), output=Forecast, limits=Limits(max_turns=1)).run("x")
    assert (
        await Agent(Script(JSON), output=Forecast, limits=Limits(max_turns=1)).run("x")
    ).output == TORONTO


async def test_a_truncated_answer_has_an_output_error_and_the_outcome_truncated() -> None:
    limits = Limits(continuation_max_attempts=0)

    result = await Agent(
        Script(say('{"city": "To', stop="max_tokens")), output=Forecast, limits=limits
    ).run("x", unwrap=False)

    assert result.outcome is Outcome.TRUNCATED
    assert isinstance(result.error, OutputError)
    assert result.error.faults == ("the reply contains no JSON",)


async def test_the_error_names_the_faults_of_the_last_answer() -> None:
    script = Script("No idea.", '{"city": "Toronto"}', '{"city": "Toronto", "degrees": "warm"}')

    with pytest.raises(OutputError) as caught:
        await Agent(script, output=Forecast).run("x")

    [fault] = caught.value.faults
    assert "warm" in fault
    assert str(caught.value) == f"the model gave no answer of the required form: {fault}"


async def test_each_request_for_a_correction_is_reported_as_an_event() -> None:
    nudges: list[Nudge] = []

    def collect(event: object) -> None:
        if isinstance(event, Nudge):
            nudges.append(event)

    await Agent(Script("No idea.", JSON), output=Forecast).run("x", on_event=collect)

    [nudge] = nudges
    assert nudge.policy == "output"
    assert nudge.text.startswith("Your answer does not have the required form:\n- the reply")


async def test_a_run_that_a_tool_ends_without_an_answer_has_failed() -> None:
    @tool
    def leave() -> ToolResult:
        """End the run."""
        return ToolResult(content=(), terminate=True)

    script = Script(calls("leave"))
    result = await Agent(script, tools=[leave], output=Forecast).run("x", unwrap=False)

    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, OutputError)
    # An invalid answer beside the call keeps the run alive.
    both = calls(call("final_answer", {"city": "Toronto"}), call("leave", {}))
    script = Script(both, answer(city="Toronto", degrees=21))
    assert (await Agent(script, tools=[leave], output=Forecast).run("x")).output == TORONTO


def test_json_is_looked_for_at_a_hundred_places() -> None:
    assert Output(Forecast).parse("[x " * 99 + JSON) == TORONTO
    with pytest.raises(ValidationError, match="the reply contains no JSON"):
        Output(Forecast).parse("[x " * 100 + JSON)


def test_a_value_that_is_not_an_object_is_wrapped_in_one() -> None:
    assert Output(int).schema == {
        "type": "object",
        "properties": {"value": {"type": "integer"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert Output(int).read({"value": 3}) == Output(int).read(3) == 3
    with pytest.raises(ValidationError):
        Output(int).read({"value": 3, "more": 4})


async def test_an_answer_continued_over_two_requests_is_parsed_as_one() -> None:
    script = Script(say('{"city": "Toronto", ', stop="max_tokens"), '"degrees": 21}')

    assert (await Agent(script, output=Forecast).run("x")).output == TORONTO


async def test_another_error_of_the_run_is_not_replaced() -> None:
    @tool
    def noop() -> str:
        """Do nothing."""
        return ""

    script = Script(repeat(calls("noop", usage=Usage(output=1))))

    with pytest.raises(MaxTurnsExceeded):
        await Agent(script, tools=[noop], output=Forecast, limits=Limits(max_turns=2)).run("x")


class Native(Script):
    capabilities = Capabilities(takes_output=lambda schema, *, tools=False: True)


async def test_the_json_mode_of_a_wire_is_used() -> None:
    script = Native(JSON, "no", JSON)
    agent = Agent(script, output=Forecast)

    result = await agent.run("x")
    again = await agent.run("x")

    assert result.output == again.output == TORONTO
    assert script.requests[0].tools == ()
    assert script.requests[0].output_schema == Output(Forecast).schema
    assert "Reply with the corrected JSON alone." in script.requests[2].messages[-1].text


@pytest.mark.parametrize(
    ("name", "native"),
    [
        ("openai:gpt-5-nano", True),
        ("anthropic:claude-haiku-4-5", True),
        ("anthropic:claude-3-haiku-20240307", False),
        ("gemini:gemini-2.5-flash", True),
        ("deepseek:deepseek-chat", False),  # can be asked for JSON, but not with a schema
        (
            "openai:gpt-5-nano,anthropic:claude-3-haiku-20240307",
            False,
        ),  # a failover list needs it in every model
        ("offline", True),
    ],
)
def test_the_json_mode_is_used_only_if_every_model_has_one(
    name: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK"):
        monkeypatch.setenv(f"{provider}_API_KEY", "no" + "-key")

    assert capabilities(new(name)).takes_output(Output(Forecast).schema) is native


async def test_a_session_returns_structured_output() -> None:
    session = Agent(Script(answer(city="Toronto", degrees=21), "plain")).session()

    result = await session.prompt("x", output=Forecast)

    assert result.output == TORONTO
    assert (await session.prompt("y")).text == "plain"


@dataclass
class Bill:
    total: Decimal
    due: timedelta


async def test_decimals_and_durations_are_parsed() -> None:
    script = Script(calls(call("final_answer", {"total": "12.30", "due": "P1DT2H"})))

    result = await Agent(script, output=Bill).run("go")

    assert result.output == Bill(Decimal("12.30"), timedelta(days=1, hours=2))


@pytest.mark.parametrize(
    ("total", "due", "expected"),
    [
        (12.3, 90, Bill(Decimal("12.3"), timedelta(seconds=90))),
        (-3, -1.5, Bill(Decimal(-3), timedelta(seconds=-1.5))),
        ("1e3", "-PT5M", Bill(Decimal(1000), -timedelta(minutes=5))),
    ],
)
async def test_numbers_are_accepted_for_decimals_and_durations(
    total: Any, due: Any, expected: Bill
) -> None:
    script = Script(calls(call("final_answer", {"total": total, "due": due})))

    result = await Agent(script, output=Bill).run("go")

    assert result.output == expected


async def test_a_tool_may_return_a_decimal_and_a_timedelta() -> None:
    @tool
    def pay(bill: Bill) -> Bill:
        """Pay."""
        return bill

    script = Script(calls(call("pay", {"bill": {"total": "12.30", "due": "-PT90S"}})), "paid")

    result = await Agent(script, tools=[pay]).run("go")

    assert result.messages[2].text == '{"total": "12.30", "due": "-PT90S"}'


@pytest.mark.parametrize(
    "wrong",
    [
        "int",
        3,
        object(),
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1/x"},
        {"required": 5},
    ],
)
async def test_output_is_checked_before_the_first_request(wrong: Any) -> None:
    script = Script("x")

    with pytest.raises(TypeError, match="output must be a type or a JSON schema"):
        await Agent(script).run("go", output=wrong)

    assert script.requests == []


@dataclass
class Branch:
    name: str
    below: list[Branch]


def test_a_wrapped_schema_keeps_the_definitions_at_its_top() -> None:
    schema = Output(list[Branch]).schema

    assert list(schema["$defs"]) == ["Branch"]
    assert "$defs" not in schema["properties"]["value"]
    assert Output(list[Branch]).parse('{"value": [{"name": "a", "below": []}]}') == [
        Branch("a", [])
    ]
