"""The decorator `@tool`: functions that can be tools, and the specification that a model sees."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import glue
from glue.context import Spending
from glue.testing import call

if TYPE_CHECKING:
    from decimal import Decimal


def context_of(
    asked: glue.ToolCall, reports: list[Any] | None = None, **host: Any
) -> glue.Context[Any]:
    return glue.Context(
        call=asked,
        host=glue.context.Host(**host),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: (
            None if reports is None else reports.append((*said, threading.get_ident()))
        ),
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
def weather(
    city: str, days: Annotated[int, glue.Field("days ahead", ge=1)] = 3, *, metric: bool = True
) -> str:
    """Return the weather
    of a city.

    The second paragraph is for people.

    Args:
        city (str): the city's name,
            in English
        days: not used, because the annotation has a description
        metric: Celsius: yes or no

    Returns:
        nothing: of interest
    """
    return f"{city} {days} {metric}"


def test_the_model_sees_name_description_and_parameters() -> None:
    spec = weather.spec

    assert spec.name == "weather"
    assert spec.description == "Return the weather of a city."
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


def test_calling_a_tool_calls_its_function() -> None:
    assert weather("Rome", 2, metric=False) == "Rome 2 False"
    assert weather.__name__ == "weather"
    assert weather.__doc__ is not None


def test_options_of_the_decorator_are_attributes_of_the_tool() -> None:
    @glue.tool(
        name="other",
        description="Do it.",
        timeout=2,
        alone=True,
        terminates=True,
        advisory=True,
        max_output=None,
    )
    def one() -> None: ...

    assert (one.spec.name, one.spec.description) == ("other", "Do it.")
    assert (one.timeout, one.alone, one.terminates, one.advisory, one.max_output) == (
        2,
        True,
        True,
        True,
        None,
    )
    assert one.spec.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_a_type_without_a_schema_is_an_error_with_the_name_of_the_parameter() -> None:
    with pytest.raises(TypeError, match="tool bad: parameter 'then': cannot describe Callable"):

        @glue.tool
        def bad(first: int, then: Callable[[], int]) -> None: ...


def test_an_unknown_name_in_an_annotation_is_an_error_with_the_name_of_the_parameter() -> None:
    with pytest.raises(TypeError, match=r"tool bad: parameter 'price': .*Decimal"):

        @glue.tool
        def bad(price: Decimal) -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be above 0 seconds, not 0"),
        ({"timeout": True}, "timeout must be above 0 seconds, not True"),
        ({"max_output": 99}, "max_output must be at least 100 characters, not 99"),
        ({"max_output": 200.5}, "max_output must be at least 100 characters, not 200.5"),
        ({"max_output": "200"}, "max_output must be at least 100 characters, not '200'"),
        ({"target": "url"}, "target 'url' is not a parameter; its parameters are: path"),
        ({"target": 5}, "target must be a function or the name of a parameter, not 5"),
    ],
)
def test_wrong_options_are_errors_when_the_tool_is_made(
    options: dict[str, Any], message: str
) -> None:
    def one(path: str) -> None: ...

    with pytest.raises((TypeError, ValueError)) as caught:
        glue.tool(**options)(one)

    assert str(caught.value) == f"tool one: {message}"


def test_the_least_values_of_options_are_accepted() -> None:
    @glue.tool(timeout=0.001, max_output=100)
    def one(path: str) -> None: ...

    assert (one.timeout, one.max_output) == (0.001, 100)


def test_generators_and_star_arguments_cannot_be_tools() -> None:
    def numbers() -> Any:
        yield 1

    def many(*names: str) -> None: ...

    with pytest.raises(TypeError, match="cannot yield"):
        glue.tool(numbers)
    with pytest.raises(TypeError, match="tool many: parameter 'names'"):
        glue.tool(many)
    with pytest.raises(TypeError, match="a tool is made from a function"):
        glue.tool(3)  # type: ignore[call-overload]


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


async def test_a_decorated_method_is_a_tool_that_is_bound_to_its_instance() -> None:
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


async def test_a_bound_tool_keeps_its_instance_in_another_class() -> None:
    class Street:
        sell = Shop("one").sell

    assert (await invoke(Street().sell, {"item": "tea"})).text == "one sold tea"


async def test_partials_and_callable_objects_can_be_tools() -> None:
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


@pytest.mark.parametrize("decorate", [glue.tool, glue.tool(name="show")])
async def test_annotations_may_name_classes_that_are_local_to_a_function(decorate: Any) -> None:
    @dataclasses.dataclass
    class Local:
        number: int
        inner: Inner | None = None

    @dataclasses.dataclass
    class Inner:
        text: str

    def make() -> Any:
        @decorate  # type: ignore[untyped-decorator]
        def show(local: Local, mode: Mode) -> Unknown:  # type: ignore[name-defined]  # noqa: F821
            return [local.number, local.inner.text if local.inner else None, mode.name]

        return show

    result = await invoke(make(), {"local": {"number": 1, "inner": {"text": "x"}}, "mode": "fast"})

    assert result.text == '[1, "x", "FAST"]'


async def test_positional_only_parameters_and_extra_keywords_get_their_values() -> None:
    @glue.tool
    def mixed(
        first: int, second: int = 2, third: int = 3, /, *, last: int = 4, **more: int
    ) -> list[Any]:
        return [first, second, third, last, more]

    assert (
        await invoke(mixed, {"first": 1, "third": 9, "x": "5"})
    ).text == '[1, 2, 9, 4, {"x": 5}]'


async def test_the_function_of_a_tool_with_a_given_schema_gets_one_dict() -> None:
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
async def test_calls_of_a_tool_with_a_broken_schema_are_error_results(
    schema: dict[str, Any],
) -> None:
    broken = glue.Tool.from_schema("one", "", schema, lambda arguments: arguments)

    assert (await invoke(broken, {"a": 1})).is_error


async def test_a_schema_in_an_older_dialect_is_validated_by_the_rules_of_that_dialect() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
        },
    }
    old = glue.Tool.from_schema("old", "", schema, lambda arguments: arguments)

    assert (await invoke(old, {"pair": [1, "a"]})).text == '{"pair": [1, "a"]}'
    assert (await invoke(old, {"pair": ["a", 1]})).is_error


def test_the_context_must_be_the_first_parameter() -> None:
    with pytest.raises(TypeError, match="parameter 'context': a Context must be the first"):

        @glue.tool
        def one(number: int, context: glue.Context[int]) -> None: ...


def test_a_tool_does_not_keep_local_variables_of_its_function_alive() -> None:
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
async def test_empty_and_doubly_encoded_arguments_are_accepted(text: str, expected: str) -> None:
    @glue.tool
    def ask(city: str = "Rome", days: int = 1, metric: bool = True) -> str:
        return f"{city} {days} {metric}"

    assert (await invoke(ask, text)).text == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{bad",
            (
                "not valid JSON: Expecting property name enclosed in double quotes "
                "at line 1 column 2 near '{bad'"
            ),
        ),
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
async def test_arguments_that_are_not_a_json_object_are_error_results(text: str, said: str) -> None:
    result = await invoke(weather, text)

    assert result.is_error
    assert said in result.text


async def test_each_fault_of_the_arguments_is_one_line_of_the_result() -> None:
    result = await invoke(weather, {"days": "many", "dayz": 1})

    assert result.is_error
    assert sorted(result.text.splitlines()) == [
        "city: missing, expected a string",
        'days: got "many", expected an integer of at least 1',
        "dayz: unknown name; there are: city, days, metric",
    ]


async def test_the_function_gets_arguments_of_the_annotated_types() -> None:
    got: list[Any] = []

    @glue.tool
    def place(orders: list[Order], mode: Mode = Mode.FAST) -> None:
        got.append((orders, mode))

    await invoke(place, {"orders": [{"item": "tea", "due": "2026-01-02"}], "mode": "fast"})

    assert got == [([Order("tea", datetime.date(2026, 1, 2))], Mode.FAST)]


async def test_the_validator_of_jsonschema_is_made_once() -> None:
    await invoke(weather, {"city": 1})
    first = weather.signature.shape.validator.load_jsonschema()

    await invoke(weather, {"city": 2})

    assert weather.signature.shape.validator.load_jsonschema() is first


def test_a_docstring_of_one_line_may_describe_a_parameter() -> None:
    @glue.tool(description="Weather.")
    def weather(city: str) -> str:
        """:param city: such as Oslo"""
        return city

    assert weather.spec.parameters["properties"]["city"]["description"] == "such as Oslo"


def test_the_description_is_the_first_paragraph() -> None:
    @glue.tool
    def weather(city: str) -> str:
        """Return the weather
        in a city.

        It is often wet.
        """
        return city

    assert weather.spec.description == "Return the weather in a city."


def test_annotations_are_read_in_the_namespace_of_the_function() -> None:
    names: dict[str, Any] = {"Number": int, "__name__": __name__}
    exec("def double(number: 'Number') -> int:\n    'Double.'\n    return 2 * number", names)

    made = glue.tool(names["double"])

    assert made.spec.parameters["properties"]["number"] == {"type": "integer"}


def test_a_class_can_be_a_tool() -> None:
    class Point:
        """Make a point."""

        def __init__(self, x: int) -> None:
            self.x = x

    made: Any = glue.tool(Point)

    assert (made.name, made.spec.description) == ("Point", "Make a point.")
    assert made.spec.parameters["properties"]["x"] == {"type": "integer"}
    assert made(3).x == 3


FLAGS = ("alone", "needs_permission", "terminates", "advisory", "idempotent", "external")


def test_every_flag_of_a_tool_is_off_by_default_and_can_be_set() -> None:
    def look() -> str:
        return ""

    plain = (glue.Tool(look), glue.tool(look), glue.tool()(look))
    assert all(getattr(made, flag) is False for made in plain for flag in FLAGS)
    assert all(
        (made.read_only, made.timeout, made.max_output) == (None, None, 50_000) for made in plain
    )
    for flag in FLAGS:
        options: Any = {flag: True}
        made = glue.Tool(look, **options)
        assert {each: getattr(made, each) for each in FLAGS} == {
            **dict.fromkeys(FLAGS, False),
            flag: True,
        }
        assert vars(glue.tool(**options)(look)).keys() == vars(made).keys()


@pytest.mark.parametrize("name", ["name", "description", "title"])
def test_a_text_of_a_tool_must_be_a_text(name: str) -> None:
    options: Any = {name: 7}

    with pytest.raises(TypeError, match=f"^{name} must be a"):
        glue.tool(**options)(len)
