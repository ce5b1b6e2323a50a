"""Settings: the order of precedence, messages for wrong values, and one record for a prompt."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from glue import Agent, AllowAll, Ask, Image, Limits, Rules, tool, user
from glue.errors import ConfigError
from glue.policies import Policy
from glue.project import Role
from glue.providers import new, with_failover
from glue.session import Session
from glue.settings import Settings, checked
from glue.testing import Script


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (Agent, {"deps_type", "name", "roles", "project", "compaction"}),
        (Agent.run, {"self", "prompt", "message_history"}),
        (Agent.resume, {"self", "result", "decisions"}),
        (Agent.session, {"self", "id", "store", "queue"}),
        (Session.run, {"self", "prompt"}),
        (Session.resume, {"self", "decisions"}),
        (Session.configure, {"self"}),
    ],
)
def test_every_keyword_of_a_public_function_is_a_field(function: Any, others: set[str]) -> None:
    known = {*Settings._fields}

    assert set(inspect.signature(function).parameters) - others <= known


def test_the_narrower_place_wins_and_none_leaves_it_to_the_wider() -> None:
    agent = Agent("vllm:c", max_tokens=9, temperature=1.0)
    session = {"model": "b", "limits": Limits(max_turns=1), "temperature": 0.0}
    call = checked({"model": "a", "limits": None})

    merged = agent.merge(call, session)

    assert merged.given() == {
        "model": "a",
        "limits": Limits(max_turns=1),
        "temperature": 0.0,
        "max_tokens": 9,
        "tools": (),
        "policies": (),
    }


def test_a_setting_takes_precedence_over_a_role_of_the_same_place() -> None:
    role = Role(name="r", instructions="of the role", model="m")
    agent = Agent("vllm:a", instructions="of the agent", roles={"r": role})

    by_role = agent.merge({"role": "r"})
    outright = agent.merge({"role": "r", "instructions": "mine"})

    assert (by_role.instructions, by_role.model) == ("of the role", "m")
    assert (outright.instructions, outright.model) == ("mine", "m")
    assert agent.merge({}).instructions == "of the agent"


def test_settings_are_frozen_and_checked() -> None:
    with pytest.raises(AttributeError):
        Settings().model = "x"  # type: ignore[misc]
    with pytest.raises(ValueError, match="max_tokens must be a whole number"):
        checked({"max_tokens": 0})


def test_one_record_is_built_for_a_prompt_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent(Script("one"))
    monkeypatch.setattr(sys, "argv", ["agent.py", "hi", "--max-turns", "3"])

    with counted_records() as built, contextlib.suppress(SystemExit):
        agent.cli()

    assert "one" in capsys.readouterr().out
    assert len(built) == 1


@contextlib.contextmanager
def counted_records() -> Iterator[list[FrameType]]:
    """Collect the frames in which a Settings record is built."""
    built: list[FrameType] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Settings.__new__.__code__:
            built.append(frame)

    sys.setprofile(count)
    try:
        yield built
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("by", ["agent", "session"])
async def test_one_record_is_built_for_a_prompt(by: str) -> None:
    agent = Agent(Script("one", "two"), instructions="Answer.")
    runner: Any = agent if by == "agent" else agent.session("demo", temperature=0.0)

    with counted_records() as built:
        await runner.run("hi", max_tokens=100)

    assert len(built) == 1


def plain(city: str) -> str:
    """Return the weather in a city."""
    return city


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": tool(plain)}, r"tools must be a list, such as tools=\[my_tool\], not Tool"),
        ({"tools": [plain]}, r"not the function plain; write glue.tool\(plain\)"),
        ({"policies": Policy()}, "policies must be a list"),
        ({"hooks": plain}, "hooks must be a list"),
        (
            {"hooks": [plain]},
            r"hooks must be like glue.ToolHook\(before=function\), not the function plain",
        ),
        (
            {"permission": plain},
            r"permission must be an object such as glue.Rules\(...\) or glue.Ask",
        ),
        ({"permission": AllowAll}, "permission must be an object"),
        ({"instructions": 3}, "instructions must be a text or a prompt of a catalog, not 3"),
        ({"temperature": float("nan")}, "temperature must be a number of 0 or more"),
        (
            {"output": {"type": "objekt"}},
            "output must be a type or a JSON schema: wrong at type: 'objekt' is not valid",
        ),
        ({"project": "nowhere"}, "project: there is no folder nowhere"),
        ({"roles": "nowhere", "role": "x"}, "roles: there is no folder nowhere"),
    ],
)
def test_a_wrong_value_is_named_before_a_model_is_asked(options: dict[str, Any], said: str) -> None:
    script = Script("never said")

    with pytest.raises((TypeError, ValueError, ConfigError), match=said):
        Agent(script, **options).run_sync("hi")

    assert script.requests == []


def test_a_wrong_value_of_a_call_or_a_helper_is_named() -> None:
    with pytest.raises(TypeError, match=r"message_history must be a list of messages, .* not 'x'"):
        Agent(Script("x")).run_sync("hi", message_history="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be bytes, not 'aGk='"):
        Agent(Script("x")).run_sync(["hi", Image(media_type="image/png", data="aGk=")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be bytes, not None"):
        user(Image())
    for say in (Agent(Script("x")).session().steer, Agent(Script("x")).session().follow_up):
        with pytest.raises(TypeError, match="must be a text or a user message, not 3"):
            say(3)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"allow must be a list of rules, such as \['shell'\], not a string"
    ):
        Rules(allow="shell")
    with pytest.raises(
        TypeError, match="Ask takes a function that is called with the request, not 3"
    ):
        Ask(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="failover takes providers, not 'openai'"):
        with_failover("openai")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a provider is named by a string"):
        new(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tool plain: timeout must be above 0 seconds, not 'x'"):
        tool(timeout="x")(plain)  # type: ignore[call-overload]
