"""One record holds the settings of a run; a narrower place goes before a wider one."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from glue import Agent, AllowAll, Ask, ConfigError, Image, Limits, Policy, Request, Rules, run, run_continue, tool, user
from glue.options import CallOptions, LoopOptions, Options, Overrides, call_options, with_role
from glue.project import Role
from glue.providers import new, with_failover
from glue.testing import Script


@pytest.mark.parametrize("keywords", [Overrides, CallOptions, LoopOptions])
def test_every_keyword_is_a_field(keywords: Any) -> None:
    assert set(keywords.__annotations__) <= {field.name for field in fields(Options)}


def test_the_narrower_place_wins_and_none_leaves_it_to_the_wider() -> None:
    call = Options(model="a", limits=None)
    session = Options(model="b", limits=Limits(max_turns=1), temperature=0.0)
    agent = Options(model="c", max_tokens=9, temperature=1.0)

    joined = call.over(session).over(agent)

    assert joined == Options(model="a", limits=Limits(max_turns=1), temperature=0.0, max_tokens=9)
    assert joined.given().keys() == {"model", "limits", "temperature", "max_tokens"}


def test_what_is_said_outright_goes_before_a_role_in_the_same_place() -> None:
    role = Role(name="r", instructions="of the role", model="m")

    assert with_role(Options(role="r"), lambda _: role).given() == {
        "role": "r",
        "instructions": "of the role",
        "model": "m",
    }
    assert with_role(Options(role="r", instructions="mine"), lambda _: role).instructions == "mine"
    assert with_role(Options(), lambda _: role) == Options()


def test_settings_are_frozen_and_checked() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().model = "x"  # type: ignore[misc]
    with pytest.raises(TypeError, match="there is no option 'colour'; there are: cache, cancel"):
        call_options({"colour": "red"})
    with pytest.raises(ValueError, match="max_tokens must be a whole number"):
        Options(max_tokens=0)
    with pytest.raises(ValueError, match="max_tokens must be a whole number"):
        Options(request=Request(max_tokens=True))


def plain(city: str) -> str:
    """Say what the weather is in a city."""
    return city


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": tool(plain)}, "tools must be a list, not Tool"),
        ({"tools": [plain]}, r"not <function plain at .*>; make one: glue.tool\(plain\)"),
        ({"policies": Policy()}, "policies must be a list"),
        ({"hooks": plain}, "hooks must be a list"),
        ({"hooks": [plain]}, r"hooks must be such as glue.ToolHook\(before=function\), not <function plain"),
        ({"permission": plain}, r"permission must be an object such as glue.Rules\(...\) or glue.Ask"),
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
    with pytest.raises(TypeError, match="must have its data as bytes, not 'aGk='"):
        Agent(Script("x")).run_sync(["hi", Image(media_type="image/png", data="aGk=")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must have its data as bytes, not None"):
        user(Image())
    for say in (Agent(Script("x")).session().steer, Agent(Script("x")).session().follow_up):
        with pytest.raises(TypeError, match="must be a text or a user message, not 3"):
            say(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"allow must be a list of rules, such as \['shell'\], not a text"):
        Rules(allow="shell")
    with pytest.raises(TypeError, match="Ask takes a function of the request, not 3"):
        Ask(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="failover takes providers, not 'openai'"):
        with_failover("openai")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a provider is named by a text"):
        new(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tool plain: timeout must be above 0 seconds, not 'x'"):
        tool(timeout="x")(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize("loop", [run, run_continue])
async def test_the_loop_refuses_an_option_that_it_would_not_heed(loop: Any) -> None:
    for given, hint in (
        ({"max_tokens": 5}, "the loop has no option 'max_tokens'; there are: "),
        ({"max_turns": 5}, "give limits=glue.Limits(max_turns=...)"),
        ({"tool": ()}, "did you mean tools?"),
    ):
        with pytest.raises(TypeError, match=re.escape(hint)):
            await loop(Script("ok"), [user("hi")], **given)
