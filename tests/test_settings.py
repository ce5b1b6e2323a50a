"""Settings: the order of precedence, messages for wrong values, and one record for a prompt."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from glue import (
    Agent,
    AllowAll,
    Ask,
    AssistantMessage,
    Cancel,
    Image,
    Limits,
    Request,
    Rules,
    Text,
    ToolHook,
    tool,
    user,
)
from glue.context import Host
from glue.errors import ConfigError
from glue.policies import Policy
from glue.project import Role
from glue.providers import new, with_failover
from glue.session import Session
from glue.settings import (
    Settings,
    check_history,
    check_loop,
    check_provider,
    checked,
    instructions_text,
    prompt_messages,
    tool_table,
    with_meta,
)
from glue.stores import MemoryStore
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


async def slow(event: object) -> None:
    """Wait for an event."""


class SlowListener:
    async def __call__(self, event: object) -> None:
        """Wait for an event."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", Script("x")),
        ("model", "openai:gpt-5.4-nano"),
        ("instructions", ""),
        ("tools", [tool(plain)]),
        ("tools", iter(())),  # can be read only once, so it is not read here
        ("limits", Limits),
        ("hooks", [ToolHook(after=print)]),
        ("hooks", iter([3])),
        ("policies", iter([3])),
        ("max_tokens", 1),
        ("temperature", 0),
        ("temperature", 2.5),
        ("reasoning", "max"),
        ("cache", False),
        ("options", {}),
        ("prices", {}),
        ("telemetry", False),
        ("output", int | None),
        ("output", list[int]),
        ("output", Any),
        ("output", {"type": "object"}),
        ("stream", sys.stdout),
        ("tool_log", sys.stderr),
        ("on_event", print),
        ("cancel", Cancel()),
        ("unwrap", False),
    ],
)
def test_these_settings_are_accepted_and_returned(name: str, value: Any) -> None:
    if value is Limits:
        value = lambda: Limits()  # noqa: E731

    assert checked({name: value, "prompt": "hi", "self": None}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", " "),
        ("model", Script),
        ("model", 3),
        ("instructions", ["x"]),
        ("role", 3),
        ("tools", 5),
        ("tools", [plain]),
        ("tools", (plain,)),
        ("limits", Limits),
        ("limits", 5),
        ("hooks", 5),
        ("hooks", [plain]),
        ("hooks", (ToolHook,)),
        ("permission", print),
        ("policies", 5),
        ("policies", [plain]),
        ("policies", (Policy,)),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 1.5),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("temperature", "0"),
        ("reasoning", "hard"),
        ("cache", 1),
        ("options", [1]),
        ("prices", 0.5),
        ("telemetry", "yes"),
        ("output", 3),
        ("output", "json"),
        ("stream", True),
        ("stream", 5),
        ("tool_log", "log.txt"),
        ("on_event", 3),
        ("on_event", slow),
        ("on_event", SlowListener()),
        ("cancel", Cancel),
        ("unwrap", "no"),
    ],
)
def test_these_settings_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name} must|^tools|^policies must"):
        checked({name: value})


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"limits": 5}, "limits must be"),
        ({"request": "hi"}, "request must be a glue.Request"),
        ({"request": Request(max_tokens=0)}, "max_tokens must be"),
        ({"request": Request(temperature=-1)}, "temperature must be"),
        ({"host": "localhost"}, "host must be a glue.context.Host"),
        ({"host": Host}, "host must be a glue.context.Host"),
        ({"journal": []}, "journal must be a session log"),
    ],
)
def test_wrong_arguments_of_the_loop_are_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        check_loop({"request": None, "host": None, "journal": None, **keywords})


def test_right_arguments_of_the_loop_are_accepted() -> None:
    log = MemoryStore().log("a")

    check_loop({"request": Request(max_tokens=1), "host": Host(), "journal": log, "limits": None})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("name", 5, "name must be a text"),
        ("deps_type", 5, "deps_type must be a class, such as int, not 5"),
        ("roles", 5, "roles must be a folder or a mapping"),
        ("roles", {"r": "Be brief."}, "roles must map names to roles"),
        ("roles", {"r": Role}, "roles must map names to roles"),
        ("project", 5, "project must be a folder"),
        ("compaction", 5, "compaction must be an object"),
    ],
)
def test_wrong_arguments_of_an_agent_are_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Agent(Script("x"), **{name: value})


def test_right_arguments_of_an_agent_are_accepted(tmp_path: Path) -> None:
    role = Role(name="r", instructions="Be brief.")

    for roles in ({"r": role}, str(tmp_path), tmp_path, {}):
        agent: Agent[Any, Any] = Agent(
            Script("x"), name="a", deps_type=list[int], roles=roles, project=tmp_path
        )
        assert agent.roles == roles


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "tools must be a list, such as"),
        ("ab", "tools must be a list, such as"),
        ([SimpleNamespace(spec=tool(plain).spec)], "tools must be made by glue.tool"),
        ([SimpleNamespace(invoke=plain)], "tools must be made by glue.tool"),
        ([3], "tools must be made by glue.tool, not 3$"),
        ([lambda: 3], "tools must be made by glue.tool, not a lambda$"),
    ],
)
def test_a_list_of_other_things_than_tools_is_refused(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        tool_table(value)


def test_tools_are_found_by_their_names() -> None:
    one, other = tool(plain), tool(name="other")(plain)

    assert tool_table(each for each in (one, other)) == {"plain": one, "other": other}
    with pytest.raises(ValueError, match="tools must have different names; 'plain'"):
        tool_table([one, other, one])


def test_a_provider_has_a_name_and_a_stream_and_is_not_an_agent() -> None:
    script = Script("x")
    check_provider(script)

    for wrong, said in (
        ("openai", r"not 'openai'; write glue.providers.new\('openai'\)"),
        (Agent(script, name="a"), r"not Agent\('a'\); to run an agent, call agent"),
        (Script, "not the class Script$"),
        (SimpleNamespace(stream=print), "must have a name and a stream"),
        (SimpleNamespace(stream=print, name=3), "must have a name and a stream"),
        (SimpleNamespace(name="a"), "must have a name and a stream"),
    ):
        with pytest.raises(TypeError, match=said):
            check_provider(wrong)


def test_a_prompt_is_a_text_parts_or_messages() -> None:
    image, message = Image(data=b"x"), user("hi")

    assert prompt_messages("hi")[0].content == (Text(text="hi"),)
    assert prompt_messages(image)[0].content == (image,)
    assert prompt_messages(["hi", image])[0].content == (Text(text="hi"), image)
    assert prompt_messages(message) == (message,)
    assert prompt_messages([message, message]) == (message, message)
    for wrong in ([], (), 3, None, ["hi", 3], [message, "hi"]):
        with pytest.raises(TypeError, match="prompt must be a text, parts"):
            prompt_messages(wrong)  # type: ignore[arg-type]
    for value, advice in (
        ([{"role": "user"}], r"; a message is made by glue.user\('...'\)$"),
        ([Path("a.png")], "; read the file first, for example glue.Image"),
        ([3], "not \\[3\\]$"),
    ):
        with pytest.raises(TypeError, match=advice):
            prompt_messages(value)  # type: ignore[arg-type]


def test_a_history_is_a_list_of_messages() -> None:
    messages = [user("hi")]

    assert check_history(messages) is messages
    assert check_history(()) == ()
    for wrong, said in (
        ("hi", "not 'hi'$"),
        (user("hi"), "not UserMessage"),
        (iter(messages), "not a list_iterator"),
        (["hi"], "not 'hi'$"),
        ([user("a"), {"role": "user"}], r"not {'role': 'user'}; a message is made by"),
        (SimpleNamespace(new_messages=()), "not a RunResult; pass result.messages"),
        ([SimpleNamespace(new_messages=())], "not a RunResult; pass result.messages"),
    ):
        with pytest.raises(TypeError, match=said):
            check_history(wrong)  # type: ignore[arg-type]


def test_the_identity_of_instructions_is_added_to_the_last_prompt_only() -> None:
    first, last = user("a"), replace(user("b"), meta={"mine": 1})
    reply = AssistantMessage(content=())

    with_identity = with_meta([first, last], {"prompt": "p"})

    assert [message.meta for message in with_identity] == [None, {"mine": 1, "prompt": "p"}]
    assert last.meta == {"mine": 1}
    assert with_meta([first], {"prompt": "p"})[0].meta == {"prompt": "p"}
    assert with_meta([first, reply], {"prompt": "p"}) == (first, reply)
    assert with_meta([first], {}) == (first,)
    assert with_meta([], {"prompt": "p"}) == ()


def test_instructions_are_a_text_or_a_version_of_a_prompt() -> None:
    version = SimpleNamespace(text="Be brief.", identity={"prompt": "p", "version": "2"})

    assert instructions_text(None) == ("", {})
    assert instructions_text("Be brief.") == ("Be brief.", {})
    assert instructions_text(version) == ("Be brief.", version.identity)
    catalog = SimpleNamespace(get=lambda: version)
    assert instructions_text(catalog) == ("Be brief.", version.identity)
