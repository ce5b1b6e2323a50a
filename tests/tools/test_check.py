"""The lint behind `glue tools check`."""

from __future__ import annotations

import pathlib
import types
from typing import Annotated, Any

import pytest

import glue
from glue.cli.agentfile import import_file
from glue.errors import ConfigError
from glue.tools import check

WIRES = ("anthropic", "bedrock", "gemini", "openai_chat", "openai_responses")


@glue.tool
def good(city: Annotated[str, "the city's name"], days: Annotated[int, "how many"] = 3) -> str:
    """Return the weather forecast."""
    return city


def problems(*tools: glue.Tool[..., Any]) -> list[str]:
    return [str(finding) for finding in check.check_tools(tools)]


def tool_with(parameters: dict[str, Any], name: str = "t") -> glue.Tool[..., Any]:
    return glue.Tool.from_schema(name, "Do it.", parameters, lambda arguments: arguments)


def test_a_good_tool_has_no_problems() -> None:
    assert problems(good) == []


def test_missing_descriptions_and_types_are_found() -> None:
    @glue.tool
    def bare(first: int, second) -> None: ...  # type: ignore[no-untyped-def]

    assert problems(bare) == [
        "bare: has no description; write a docstring",
        "bare: parameter 'first' has no description",
        "bare: parameter 'second' has no description",
        "bare: parameter 'second' has no type, so the model has to guess",
    ]


def test_a_parameter_that_accepts_every_value_has_no_type() -> None:
    anything = tool_with({"type": "object", "properties": {"x": True}})

    assert problems(anything) == [
        "t: parameter 'x' has no description",
        "t: parameter 'x' has no type, so the model has to guess",
    ]


def test_a_parameter_that_the_description_mentions_needs_no_description() -> None:
    @glue.tool
    def weather(city: str, start_day: str, unit: str) -> None:
        """Return the weather in a City from a start day on, in units that people know."""

    assert problems(weather) == ["weather: parameter 'unit' has no description"]


@pytest.mark.parametrize(
    ("name", "wires"),
    [
        ("has space", WIRES),
        ("dot.ted", WIRES),
        ("x" * 65, WIRES),
        ("naïve", WIRES),
        ("x" * 64, None),
        ("3d", ("gemini",)),
    ],
)
def test_names_that_a_provider_refuses_are_found(name: str, wires: tuple[str, ...] | None) -> None:
    found = check.check_tools([tool_with({"type": "object", "properties": {}}, name)])

    assert [finding.wires for finding in found] == ([] if wires is None else [wires])


OPENAI = ("openai_chat", "openai_responses")


@pytest.mark.parametrize(
    ("schema", "text", "wires"),
    [
        ({"type": "array", "items": {}}, "the parameters are not of type object", WIRES),
        (
            {"type": "object", "anyOf": []},
            "anyOf at the root of the parameters is refused by some models",
            ("anthropic", "bedrock", *OPENAI),
        ),
        (
            {"type": "object", "enum": []},
            "enum at the root of the parameters is refused by some models",
            OPENAI,
        ),
        ({"a b": {}}, "the name of parameter 'a b' is refused by some models", ("anthropic",)),
        ({"a": {"type": "array"}}, "a list has no items schema in 'a'", OPENAI),
        (
            {"a": {"anyOf": [{"type": ["string", "array"]}]}},
            "a list has no items schema in 'a'",
            OPENAI,
        ),
        (
            {"a": {"items": {"not": {}}}},
            "not in 'a' is refused or ignored by some models",
            ("bedrock", "gemini"),
        ),
        (
            {"a": {"$ref": "#/$defs/x"}},
            "$ref in 'a' is refused or ignored by some models",
            ("bedrock",),
        ),
    ],
)
def test_schema_features_that_a_wire_refuses_are_found(
    schema: dict[str, Any], text: str, wires: tuple[str, ...]
) -> None:
    if "type" not in schema:
        schema = {"type": "object", "properties": schema}

    assert check.ToolProblem(tool="t", text=text, wires=wires) in check.check_tools(
        [tool_with(schema)]
    )


def test_the_problem_of_a_type_names_the_wires_that_refuse_it() -> None:
    @glue.tool
    def typed(tags: Annotated[set[str], "tags"], data: Annotated[bytes, "data"]) -> None:
        """Store data with tags."""

    assert problems(typed) == [
        "typed: uniqueItems in 'tags' is refused or ignored by some models (gemini)",
        "typed: contentEncoding in 'data' is refused or ignored by some models (gemini)",
    ]


def test_tools_are_found_in_variables_lists_and_agents() -> None:
    class Agent:
        def __init__(self) -> None:
            self.tools = (good, tool_with({"type": "object"}, "inner"))

    module = types.ModuleType("sample")
    listed = [tool_with({"type": "object"}, "listed")]
    vars(module).update(one=good, again=good, several=listed, agent=Agent(), Tool=glue.Tool)

    assert [tool.spec.name for tool in check.tools_of(module)] == ["good", "listed", "inner"]


def test_a_module_is_checked_by_name_and_by_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "from __future__ import annotations\nimport dataclasses, glue\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n"
        "@glue.tool\ndef one(x: Point) -> None: ...\n"
    )

    assert len(check.check_tools(check.tools_of(import_file(str(file))))) == 2
    assert check.check_tools(check.tools_of(import_file("glue.messages"))) == ()


def test_the_first_example_of_the_readme_has_no_problems(
    tmp_path: pathlib.Path,
) -> None:
    readme = pathlib.Path(__file__).parents[2] / "README.md"
    file = tmp_path / "weather.py"
    file.write_text(readme.read_text().partition("```python\n")[2].partition("```")[0])

    tools = check.tools_of(import_file(str(file)))

    assert [tool.spec.name for tool in tools] == ["weather"]
    assert check.check_tools(tools) == ()


@pytest.mark.parametrize("name", ["no.such.module", "missing.py", "dir/missing"])
def test_a_missing_module_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        import_file(name)


def test_the_tools_of_an_agent_are_found() -> None:
    module = types.ModuleType("agents")
    module.__dict__["helper"] = glue.Agent("offline", tools=[good])

    assert [tool.spec.name for tool in check.tools_of(module)] == ["good"]


def test_tools_of_an_imported_module_or_of_a_class_are_not_found() -> None:
    module, imported = types.ModuleType("agents"), types.ModuleType("imported")
    imported.__dict__["tools"] = [good]
    module.__dict__.update(imported=imported, Kit=type("Kit", (), {"tools": [good]}))

    assert check.tools_of(module) == ()
