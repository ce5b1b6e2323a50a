"""@tool: what the model sees of a function, and how one call of it goes."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import gc
import json
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glue
from glue.context import Spending
from glue.testing import Script, call, calls

if TYPE_CHECKING:
    from decimal import Decimal


def context_of(asked: glue.ToolCall, reports: list[Any] | None = None, **host: Any) -> glue.Context[Any]:
    return glue.Context(
        call=asked,
        host=glue.Host(**host),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None if reports is None else reports.append((*said, threading.get_ident())),
    )


async def invoke(
    tool: glue.Tool[..., Any], arguments: Any = "", reports: list[Any] | None = None, **host: Any
) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    return await tool.invoke(asked, context_of(asked, reports, **host))


class Mode(enum.Enum):
    FAST = "fast"


@dataclasses.dataclass
class Order:
    item: str
    due: datetime.date


@glue.tool
def weather(city: str, days: Annotated[int, glue.Field("days ahead", ge=1)] = 3, *, metric: bool = True) -> str:
    """Say what the weather
    will be.

    The second paragraph is for people.

    Args:
        city (str): the city's name,
            in English
        days: not used, the annotation says it already
        metric: Celsius: yes or no

    Returns:
        nothing: of interest
    """
    return f"{city} {days} {metric}"


# What the model sees -------------------------------------------------------------------------------------


def test_the_model_sees_name_description_and_parameters() -> None:
    spec = weather.spec

    assert spec.name == "weather"
    assert spec.description == "Say what the weather will be."
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "the city's name, in English"},
            "days": {"type": "integer", "minimum": 1, "description": "days ahead", "default": 3},
            "metric": {"type": "boolean", "description": "Celsius: yes or no", "default": True},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_tool_is_still_the_function_it_was() -> None:
    assert weather("Rome", 2, metric=False) == "Rome 2 False"
    assert weather.__name__ == "weather"
    assert weather.__doc__ is not None


def test_options_go_to_the_tool() -> None:
    @glue.tool(
        name="other", description="Do it.", timeout=2, alone=True, terminates=True, advisory=True, max_output=None
    )
    def one() -> None: ...

    assert (one.spec.name, one.spec.description) == ("other", "Do it.")
    assert (one.timeout, one.alone, one.terminates, one.advisory, one.max_output) == (2, True, True, True, None)
    assert one.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_type_that_cannot_be_described_names_the_parameter() -> None:
    with pytest.raises(TypeError, match="tool bad: parameter 'then': cannot describe Callable"):

        @glue.tool
        def bad(first: int, then: Callable[[], int]) -> None: ...


def test_an_annotation_that_cannot_be_resolved_names_the_parameter() -> None:
    with pytest.raises(TypeError, match=r"tool bad: parameter 'price': .*Decimal"):

        @glue.tool
        def bad(price: Decimal) -> None: ...


@pytest.mark.parametrize(
    "options",
    [{"timeout": 0}, {"max_output": 5}, {"target": "nothing"}],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool one:"):

        @glue.tool(**options)
        def one(path: str) -> None: ...


def test_generators_and_star_arguments_are_refused() -> None:
    def numbers() -> Any:
        yield 1

    def many(*names: str) -> None: ...

    with pytest.raises(TypeError, match="cannot yield"):
        glue.tool(numbers)
    with pytest.raises(TypeError, match="tool many: parameter 'names'"):
        glue.tool(many)
    with pytest.raises(TypeError, match="a tool is made from a function"):
        glue.tool(3)  # type: ignore[call-overload]


# Which functions -----------------------------------------------------------------------------------------


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @glue.tool
    def sell(self, item: str) -> str:
        """Sell something."""
        return f"{self.name} sold {item}"

    @glue.tool(timeout=5)
    async def buy(self, context: glue.Context[str], item: str) -> str:
        return f"{self.name} bought {item} for {context.deps}"

    @staticmethod
    @glue.tool
    def close(hour: int) -> str:
        return f"closed at {hour}"

    def plain(self, item: str) -> str:
        return f"{self.name} has {item}"


class Adder:
    """Add to a number."""

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.timeout = "not the tool's"

    def __call__(self, number: int) -> int:
        return self.amount + number


class AsyncAdder(Adder):
    async def __call__(self, number: int) -> int:  # type: ignore[override]
        """Add later."""
        return self.amount + number


async def test_methods_are_tools_of_their_instance() -> None:
    one, two = Shop("one"), Shop("two")

    assert (await invoke(one.sell, {"item": "tea"})).text == "one sold tea"
    assert (await invoke(two.sell, {"item": "tea"})).text == "two sold tea"
    assert (await invoke(one.buy, {"item": "tea"}, deps="Ann")).text == "one bought tea for Ann"
    assert (await invoke(Shop.close, {"hour": 7})).text == "closed at 7"
    assert (await invoke(one.close, {"hour": 7})).text == "closed at 7"
    assert (await invoke(glue.tool(one.plain), {"item": "tea"})).text == "one has tea"
    assert one.sell("milk") == "one sold milk"
    assert one.sell.spec is two.sell.spec
    assert list(one.buy.spec.parameters["properties"]) == ["item"]


async def test_a_bound_method_stays_with_its_instance() -> None:
    class Street:
        sell = Shop("one").sell

    assert (await invoke(Street().sell, {"item": "tea"})).text == "one sold tea"


async def test_partials_and_callable_objects_are_tools() -> None:
    def scale(factor: int, number: int, unit: str = "m") -> str:
        """Scale a number."""
        return f"{factor * number}{unit}"

    double = glue.tool(functools.partial(scale, 2))
    later = glue.tool(AsyncAdder(5))
    adder = glue.tool(Adder(5))

    assert double.spec.name == "scale"
    assert double.spec.description == "Scale a number."
    assert list(double.spec.parameters["properties"]) == ["number", "unit"]
    assert (await invoke(double, {"number": 4})).text == "8m"
    assert adder.spec.name == "adder"
    assert adder.spec.description == "Add to a number."
    assert adder.timeout is None
    assert (await invoke(adder, {"number": 4})).text == "9"
    assert later.spec.name == "async_adder"
    assert later.spec.description == "Add later."
    assert (await invoke(later, {"number": 4})).text == "9"


async def test_classes_and_functions_inside_functions_resolve() -> None:
    @dataclasses.dataclass
    class Local:
        number: int
        inner: Inner | None = None

    @dataclasses.dataclass
    class Inner:
        text: str

    def make() -> glue.Tool[..., Any]:
        @glue.tool
        def show(local: Local, mode: Mode) -> Unknown:  # type: ignore[name-defined]  # noqa: F821
            return [local.number, local.inner.text if local.inner else None, mode.name]

        return show

    result = await invoke(make(), {"local": {"number": 1, "inner": {"text": "x"}}, "mode": "fast"})

    assert result.text == '[1, "x", "FAST"]'


async def test_positional_only_parameters_and_extra_names_are_passed() -> None:
    @glue.tool
    def mixed(first: int, second: int = 2, third: int = 3, /, *, last: int = 4, **more: int) -> list[Any]:
        return [first, second, third, last, more]

    assert (await invoke(mixed, {"first": 1, "third": 9, "x": "5"})).text == '[1, 2, 9, 4, {"x": 5}]'


async def test_a_ready_schema_gives_the_function_one_dict() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def plain(arguments: dict[str, Any]) -> Any:
        return arguments

    async def informed(context: glue.Context[str], arguments: dict[str, Any]) -> str:
        return f"{context.deps} {arguments['n']}"

    one = glue.Tool.from_schema("one", "Do one.", schema, plain)
    two = glue.Tool.from_schema("two", "Do two.", schema, informed, terminates=True)

    assert one.spec.parameters is schema
    assert (await invoke(one, {"n": "3", "other": 1})).text == '{"n": 3, "other": 1}'
    assert (await invoke(one, {})).text == "n: missing, expected an integer"
    assert (await invoke(two, {"n": 1}, deps="d")).text == "d 1"
    assert (await invoke(two, {"n": 1}, deps="d")).terminate


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": ["a"]},
        {"required": 3},
        {"minProperties": "many"},
        {"allOf": 3},
    ],
)
async def test_a_broken_ready_schema_is_an_error_result(schema: dict[str, Any]) -> None:
    broken = glue.Tool.from_schema("one", "", schema, lambda arguments: arguments)

    assert (await invoke(broken, {"a": 1})).is_error


async def test_a_ready_schema_of_an_older_dialect_is_read_by_its_own_rules() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
    }
    old = glue.Tool.from_schema("old", "", schema, lambda arguments: arguments)

    assert (await invoke(old, {"pair": [1, "a"]})).text == '{"pair": [1, "a"]}'
    assert (await invoke(old, {"pair": ["a", 1]})).is_error


# Arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "Rome 1 True"),
        ("  \n", "Rome 1 True"),
        ("{}", "Rome 1 True"),
        (' {"days": 2} ', "Rome 2 True"),
        ('"{\\"days\\": 2}"', "Rome 2 True"),
        ('{"days": null}', "Rome 1 True"),
    ],
)
async def test_arguments_in_every_form_are_read(text: str, expected: str) -> None:
    @glue.tool
    def ask(city: str = "Rome", days: int = 1, metric: bool = True) -> str:
        return f"{city} {days} {metric}"

    assert (await invoke(ask, text)).text == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{bad", "not valid JSON: Expecting property name enclosed in double quotes at line 1 column 2 near '{bad'"),
        ('{"city": "x"', "not valid JSON"),
        ('{"city": NaN}', "not valid JSON: NaN"),
        ('{"city": "x"} trailing', "not valid JSON: Extra data"),
        ("[1]", "must be one JSON object, got a list"),
        ("3", "must be one JSON object, got a number"),
        ('"x"', "must be one JSON object, got a string"),
        ("null", "must be one JSON object, got null"),
        ("true", "must be one JSON object, got true or false"),
        ("[" * 100_000, "nested too deeply"),
        ('{"days": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
async def test_bad_arguments_are_error_results(text: str, said: str) -> None:
    result = await invoke(weather, text)

    assert result.is_error
    assert said in result.text


async def test_faults_are_one_line_each() -> None:
    result = await invoke(weather, {"days": "many", "dayz": 1})

    assert result.is_error
    assert sorted(result.text.splitlines()) == [
        "city: missing, expected a string",
        'days: got "many", expected an integer of at least 1',
        "dayz: unknown name; there are: city, days, metric",
    ]


async def test_arguments_are_python_objects() -> None:
    got: list[Any] = []

    @glue.tool
    def place(orders: list[Order], mode: Mode = Mode.FAST) -> None:
        got.append((orders, mode))

    await invoke(place, {"orders": [{"item": "tea", "due": "2026-01-02"}], "mode": "fast"})

    assert got == [([Order("tea", datetime.date(2026, 1, 2))], Mode.FAST)]


async def test_the_validator_is_built_once() -> None:
    await invoke(weather, {"city": 1})
    first = weather.signature.shape.validator.judge()

    await invoke(weather, {"city": 2})

    assert weather.signature.shape.validator.judge() is first


async def test_a_call_that_was_cut_off_is_never_run() -> None:
    ran: list[int] = []

    @glue.tool
    def one() -> None:
        ran.append(1)

    asked = glue.ToolCall(id="c", name="one", arguments="", complete=False)
    result = await one.invoke(asked, context_of(asked))

    assert result.is_error
    assert ran == []


def test_a_tool_keeps_nothing_of_the_place_where_it_was_made() -> None:
    class Large:
        pass

    def make() -> tuple[glue.Tool[..., Any], weakref.ref[Large]]:
        large = Large()

        @glue.tool
        def one(value: int | datetime.date) -> None: ...

        return one, weakref.ref(large)

    made, large = make()
    gc.collect()

    assert made.signature.parse('{"value": "2026-01-02"}') == {"value": datetime.date(2026, 1, 2)}
    assert large() is None


# Context -------------------------------------------------------------------------------------------------


async def test_context_is_injected_and_hidden() -> None:
    @glue.tool
    async def one(context: glue.Context[int], number: int) -> str:
        context.progress("half", {"done": 1})
        return f"{context.deps + number} {context.session_id} {context.cancelled} {context.call.id}"

    reports: list[Any] = []
    result = await invoke(one, {"number": 2}, reports, deps=40, session_id="s")

    assert list(one.spec.parameters["properties"]) == ["number"]
    assert result.text == "42 s False c1"
    assert [said[:3] for said in reports] == [("half", {"done": 1}, None)]


async def test_context_may_be_bare_and_its_deps_a_name_for_type_checkers() -> None:
    @glue.tool
    def bare(context: glue.Context) -> str:  # type: ignore[type-arg]
        return context.session_id

    @glue.tool
    def typed(context: glue.Context[Decimal]) -> str:
        return context.session_id

    assert (await invoke(bare, session_id="s")).text == "s"
    assert (await invoke(typed, session_id="s")).text == "s"


def test_context_must_come_first() -> None:
    with pytest.raises(TypeError, match="parameter 'context': a Context must be the first"):

        @glue.tool
        def one(number: int, context: glue.Context[int]) -> None: ...


async def test_progress_of_a_sync_tool_is_reported_in_the_event_loop() -> None:
    @glue.tool
    def one(context: glue.Context[None]) -> int:
        context.progress("here")
        return threading.get_ident()

    reports: list[Any] = []
    result = await invoke(one, "", reports)

    assert result.text != str(threading.get_ident())
    assert reports == [("here", None, None, threading.get_ident())]


# Running -------------------------------------------------------------------------------------------------


async def test_a_sync_tool_does_not_block_the_event_loop() -> None:
    gate = threading.Event()

    @glue.tool
    def wait() -> str:
        return "opened" if gate.wait(30) else "never opened"

    async with anyio.create_task_group() as tasks:
        results: list[glue.ToolResult] = []

        async def run() -> None:
            results.append(await invoke(wait))

        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        gate.set()

    assert results[0].text == "opened"


async def test_a_raising_tool_says_type_and_message_and_keeps_the_traceback_apart() -> None:
    @glue.tool
    def sync() -> None:
        raise KeyError("sync")

    @glue.tool
    async def grouped() -> None:
        async with anyio.create_task_group():
            raise RuntimeError("alone in a group")

    @glue.tool
    async def several() -> None:
        raise ExceptionGroup("2 of them", [ValueError("the first"), OSError("the second")])

    @glue.tool
    async def told() -> None:
        raise glue.ToolError("use another name")

    @glue.tool
    def stops() -> None:
        raise StopIteration

    results = [await invoke(tool) for tool in (sync, grouped, several, told, stops)]

    assert all(result.is_error and not result.terminate for result in results)
    assert [result.text for result in results] == [
        "KeyError: 'sync'",
        "RuntimeError: alone in a group",
        "ValueError: the first",
        "use another name",
        "StopIteration",
    ]
    assert all("Traceback" in result.traceback for result in results)
    assert "the second" in results[2].traceback


async def test_timeout_is_an_error_result_that_says_the_limit() -> None:
    gate = threading.Event()

    @glue.tool(timeout=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    @glue.tool(timeout=0.01)
    def stuck() -> None:
        gate.wait(30)

    try:
        results = [await invoke(slow), await invoke(stuck)]
    finally:
        gate.set()

    assert all(result.is_error for result in results)
    assert [result.text for result in results] == [
        "slow timed out after 0.01 seconds",
        "stuck timed out after 0.01 seconds",
    ]


async def test_a_tool_s_own_timeout_error_is_its_own() -> None:
    @glue.tool(timeout=30)
    async def own() -> None:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    assert (await invoke(own)).text == "TimeoutError"


async def test_cancellation_is_raised_and_never_a_result() -> None:
    gate = threading.Event()

    @glue.tool(timeout=30)
    async def slow() -> None:
        await anyio.sleep_forever()

    @glue.tool
    def stuck() -> None:
        gate.wait(30)

    try:
        for tool in (slow, stuck):
            results: list[glue.ToolResult] = []
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def run(tool: glue.Tool[..., Any] = tool, results: list[glue.ToolResult] = results) -> None:
                        results.append(await invoke(tool))

                    tasks.start_soon(run)
                    await anyio.lowlevel.checkpoint()
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
            assert scope.cancelled_caught
            assert results == []
    finally:
        gate.set()


async def test_an_abandoned_thread_reports_nothing_afterwards() -> None:
    gate, done = threading.Event(), threading.Event()

    @glue.tool(timeout=0.01)
    def stuck(context: glue.Context[None]) -> None:
        gate.wait(30)
        context.progress("too late")
        done.set()

    reports: list[Any] = []
    result = await invoke(stuck, "", reports)
    gate.set()
    await anyio.to_thread.run_sync(done.wait, 30)

    assert "timed out" in result.text
    assert reports == []


async def test_a_tool_that_terminates_votes_only_with_success() -> None:
    @glue.tool(terminates=True)
    async def finish(well: bool) -> str:
        if not well:
            raise ValueError("not yet")
        return "done"

    assert (await invoke(finish, {"well": True})).terminate
    assert not (await invoke(finish, {"well": False})).terminate
    assert not (await invoke(finish, {"well": "x"})).terminate


# What comes back -----------------------------------------------------------------------------------------


PICTURE = glue.Image(data=b"png")


class Strange:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "(no output)"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({"ü": "ü"}, '{"ü": "ü"}'),
        (["a", "b"], '["a", "b"]'),
        ({"b", "a"}, '["a", "b"]'),
        (Order("tea", datetime.date(2026, 1, 2)), '{"item": "tea", "due": "2026-01-02"}'),
        (Mode.FAST, '"fast"'),
        (b"hi", '"aGk="'),
        (glue.Text(text="part"), "part"),
        ([glue.Text(text="a"), "b", PICTURE], "ab"),
        (glue.text_result("ready"), "ready"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
    ],
)
async def test_whatever_a_tool_returns_becomes_a_result(value: Any, text: str) -> None:
    @glue.tool
    async def give() -> Any:
        return value

    result = await invoke(give)

    assert not result.is_error
    assert result.text == text


async def test_parts_are_kept_as_parts() -> None:
    @glue.tool
    def look() -> Any:
        return ["a picture:", PICTURE]

    assert (await invoke(look)).content == (glue.Text(text="a picture:"), PICTURE)


async def test_a_value_without_json_form_is_an_error_that_names_the_type() -> None:
    @glue.tool
    def give() -> Any:
        return [Strange()]

    result = await invoke(give)

    assert result.is_error
    assert "Strange has no JSON form" in result.text


async def test_a_sync_function_may_return_an_awaitable() -> None:
    async def later() -> str:
        return "later"

    def start() -> Awaitable[str]:
        return later()

    assert (await invoke(glue.tool(start))).text == "later"


# Hooks ---------------------------------------------------------------------------------------------------


def hooks_log() -> tuple[list[str], Callable[..., glue.ToolHook]]:
    log: list[str] = []

    def named(name: str, answer: Any = None, final: Any = None) -> glue.ToolHook:
        def before(step: glue.Step) -> Any:
            log.append(f"{name} before {step.arguments}")
            return answer

        async def after(step: glue.Step, result: glue.ToolResult) -> Any:
            log.append(f"{name} after {result.text}")
            return final

        return glue.ToolHook(before=before, after=after)

    return log, named


@glue.tool
def double(number: int) -> int:
    return 2 * number


async def test_hooks_add_up_and_each_sees_what_the_others_left() -> None:
    log, named = hooks_log()
    hooks = (named("a", glue.Replace({"number": 5})), named("b", None, glue.text_result("changed")), named("c"))

    result = await invoke(double, {"number": 1}, hooks=hooks)

    assert result.text == "changed"
    assert log == [
        "a before {'number': 1}",
        "b before {'number': 5}",
        "c before {'number': 5}",
        "a after 10",
        "b after 10",
        "c after changed",
    ]


async def test_a_hook_may_have_one_side_only() -> None:
    seen: list[str] = []
    before = glue.ToolHook(before=lambda step: seen.append(f"before {step.name}"))
    after = glue.ToolHook(after=lambda step, result: seen.append(f"after {result.text}"))

    result = await invoke(double, {"number": 1}, hooks=(after, before))

    assert result.text == "2"
    assert seen == ["before double", "after 2"]


async def test_a_skipped_tool_does_not_run() -> None:
    log, named = hooks_log()

    result = await invoke(double, {"number": 1}, hooks=(named("a", glue.Skip("instead")), named("b")))

    assert result.text == "instead"
    assert log == ["a before {'number': 1}", "a after instead", "b after instead"]


async def test_a_hook_that_fails_stops_the_call() -> None:
    def broken(step: glue.Step) -> None:
        raise OSError("no log")

    result = await invoke(double, {"number": 1}, hooks=(glue.ToolHook(before=broken),))

    assert result.is_error
    assert result.text == "OSError: no log"


async def test_a_hook_may_end_the_run() -> None:
    def stop(step: glue.Step) -> glue.Abort:
        return glue.Abort("enough")

    provider = Script(calls(call("double", {"number": 1})), "never asked")
    result = await glue.run(
        provider, [glue.user("go")], tools=[double], host=glue.Host(hooks=(glue.ToolHook(before=stop),))
    )

    assert result.outcome is glue.Outcome.CANCELLED
    assert result.messages[-1].text == "enough"


async def test_permission_is_asked_for_what_the_hooks_leave() -> None:
    seen: list[Any] = []

    class Policy:
        def decide(self, request: glue.PermissionRequest) -> glue.Decision:
            seen.append((request.target, request.arguments))
            return glue.allow()

    @glue.tool(needs_permission=True, target="path")
    def save(path: str) -> str:
        return path

    hook = glue.ToolHook(before=lambda step: glue.Replace({"path": "safe"}))
    result = await invoke(save, {"path": "unsafe"}, hooks=(hook,), permission=Policy())

    assert result.text == "safe"
    assert seen == [("safe", {"path": "safe"})]


# In the loop ---------------------------------------------------------------------------------------------


async def test_calls_run_beside_each_other_and_results_keep_their_order() -> None:
    started = [anyio.Event(), anyio.Event()]

    @glue.tool
    async def meet(index: int) -> str:
        started[index].set()
        await started[1 - index].wait()
        return str(index)

    provider = Script(calls(call("meet", {"index": 0}), call("meet", {"index": 1})), "bye")
    with anyio.fail_after(10):
        result = await glue.run(provider, [glue.user("go")], tools=[meet])

    assert [message.text for message in result.messages if isinstance(message, glue.ToolMessage)] == ["0", "1"]


async def test_a_near_miss_is_told_the_closest_name() -> None:
    result = await glue.run(Script(calls(call("wether")), "bye"), [glue.user("go")], tools=[weather])

    assert "weather" in result.messages[2].text


# Whatever a model writes ---------------------------------------------------------------------------------

KEYS = ["city", "days", "orders", "item", "due", "mode", "z"]
ANYTHING = st.one_of(
    st.text(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=8,
    ).map(json.dumps),
    st.text(alphabet='{}[]":,0123456789eE.-+ntf \\u\ud800', max_size=30),
)


@glue.tool
async def everything(
    city: str,
    days: int | None = None,
    orders: tuple[Order, ...] = (),
    mode: Mode = Mode.FAST,
    z: dict[str, set[str]] | bytes | None = None,
) -> str:
    return "fine"


@settings(max_examples=500, deadline=None)
@given(ANYTHING)
def test_whatever_a_model_writes_is_a_result(text: str) -> None:
    result = anyio.run(invoke, everything, text)

    assert result.text == "fine" or result.is_error
    result.text.encode()
