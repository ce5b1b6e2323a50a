"""Mistakes of new users: each raises one line that names the argument and the right form."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.policies import Policy
from glue.providers import new
from glue.testing import Script, calls


class Forecasts:
    """Tools as methods."""

    def look_up(self, city: str) -> str:
        """Return the forecast for a city."""
        return city


def plain(city: str) -> str:
    """Return the weather in a city."""
    return city


weather = glue.tool(plain)


async def listen(event: object) -> None:
    """Ignore an event. The loop does not await listeners, so this one is refused."""


def agent(**settings: Any) -> glue.Agent[Any, Any]:
    return glue.Agent(Script("one", "two"), name="helper", **settings)


def call(*args: Any, **settings: Any) -> object:
    return agent().run_sync("hi", *args, **settings)


def session(**settings: Any) -> Any:
    return agent().session("demo", **settings)


untyped: Any = glue  # so that a type checker accepts the mistakes below

IMAGE_FORM = "glue.Image(media_type='image/png', data=path.read_bytes())"
PERMISSION_FORM = "permission must be an object such as glue.Rules(...) or glue.Ask(function)"
MODEL_FORM = "model must be a name such as 'openai:gpt-5.4-nano', or a provider"
PROMPT_FORM = "prompt must be a text, parts such as glue.Image, or messages"
HISTORY_FORM = "message_history must be a list of messages, such as result.messages"
LIMITS_FORM = "or a function that returns a Limits"
MESSAGE_FORM = "a message is made by glue.user('...')"

WRONG_NAMES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: call(timeout=5),
        "Agent.run() does not take 'timeout'; use limits=glue.Limits(seconds=5)",
    ),
    (
        lambda: call(max_turns=3),
        "Agent.run() does not take 'max_turns'; use limits=glue.Limits(max_turns=3)",
    ),
    (lambda: call(history=[]), "Agent.run() does not take 'history'; use message_history=..."),
    (
        lambda: call(system_prompt="Be brief"),
        "Agent.run() does not take 'system_prompt'; use instructions='Be brief'",
    ),
    (
        lambda: call(temprature=0),
        "Agent.run() does not take 'temprature'; did you mean temperature?",
    ),
    (
        lambda: untyped.Agent("offline", system="Be brief."),
        "Agent() does not take 'system'; use instructions='Be brief.'",
    ),
    (
        lambda: untyped.Agent(provider=Script("x")),
        "Agent() does not take 'provider'; use model=...",
    ),
    (
        lambda: untyped.Agent("openai", api_key="k"),
        "Agent() does not take 'api_key'; use model=glue.providers.new('openai', key=...)",
    ),
    (
        lambda: new("openai", api_key="k"),
        "glue.providers.new() does not take 'api_key'; use key=...",
    ),
    (
        lambda: glue.Limits(timeout=5),  # type: ignore[call-arg]
        "Limits() does not take 'timeout'; did you mean seconds?",
    ),
    (lambda: untyped.Rules(allows=[]), "Rules() does not take 'allows'; did you mean allow?"),
    (
        lambda: untyped.FileStore(".glue", snyc=False),
        "FileStore() does not take 'snyc'; did you mean sync?",
    ),
    (lambda: untyped.tool(nam="x"), "tool() does not take 'nam'; did you mean name?"),
    (
        lambda: untyped.Image(path="picture.png"),
        (
            f"Image() does not take 'path'; there are: data, extra, media_type, url, as in "
            f"{IMAGE_FORM}"
        ),
    ),
    (
        lambda: untyped.map(agent(), ["hi"], workers=3),
        "map() does not take 'workers'; use concurrency=3",
    ),
]

WRONG_PLACES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: agent(deps=3),
        "Agent() does not take 'deps'; pass it to a call: agent.run(prompt, deps=...)",
    ),
    (
        lambda: call(decisions={}),
        (
            "Agent.run() does not take 'decisions'; "
            "pass it to resume: agent.resume(result, decisions=...)"
        ),
    ),
    (
        lambda: agent(prompt="Be brief"),
        "Agent() does not take 'prompt'; pass it to a call: agent.run(prompt)",
    ),
    (
        lambda: call(store=glue.FileStore(".glue")),
        (
            "Agent.run() does not take 'store'; "
            "open a session: agent.session(id, store=...).run(prompt)"
        ),
    ),
    (
        lambda: call(compaction=glue.keep_recent(3)),
        (
            "Agent.run() does not take 'compaction'; "
            "pass it to the agent: glue.Agent(model, compaction=...)"
        ),
    ),
    (
        lambda: session().run_sync("hi", message_history=[]),
        (
            "Session.run() does not take 'message_history'; "
            "a session has its own history; use agent.run(prompt, message_history=...)"
        ),
    ),
    (
        lambda: untyped.Agent("openai", "Be brief"),
        "Agent() takes only model by position; pass the others by name, as in tools=...",
    ),
    (
        lambda: session().resume_sync("hi"),
        "Session.resume() takes only keyword arguments, as in tools=...",
    ),
    (
        lambda: untyped.Limits(5),
        "Limits() takes only keyword arguments; write glue.Limits(max_turns=5)",
    ),
    (
        lambda: untyped.Rules("read_file"),
        "Rules() takes only keyword arguments, as in allow=...",
    ),
    (
        lambda: untyped.Image("picture.png"),
        f"Image() takes only keyword arguments; write {IMAGE_FORM}",
    ),
    (lambda: untyped.Agent(), "Agent() needs a value for 'model'"),
    (lambda: untyped.FileStore(), "FileStore() needs a value for 'root'"),
    (
        lambda: untyped.Session("demo"),
        "agent must be a glue.Agent, not 'demo'; agent.session('demo') makes a session",
    ),
]

WRONG_VALUES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: call(stream=True),
        (
            "stream must be an open text file, such as stream=sys.stdout, not True; "
            "agent.stream(prompt) returns the events of a run"
        ),
    ),
    (
        lambda: call(tool_log=True),
        "tool_log must be an open text file, such as tool_log=sys.stderr, not True",
    ),
    (
        lambda: call(on_event=listen),
        (
            "on_event must be a plain function, because the loop does not await it; "
            "in async code, use `async with agent.stream(prompt) as events`"
        ),
    ),
    (lambda: call(cancel=glue.Cancel), "cancel must be a glue.Cancel(), not the class Cancel"),
    (lambda: call(unwrap="no"), "unwrap must be True or False, not 'no'"),
    (
        lambda: glue.Image(url="picture.png"),
        (
            "url must be an address such as 'https://example.com/a.png', not 'picture.png'; "
            f"for a file write {IMAGE_FORM}"
        ),
    ),
    (
        lambda: untyped.Image(data="iVBORw0"),
        f"data must be bytes, not 'iVBORw0'; write {IMAGE_FORM}",
    ),
    (
        lambda: untyped.UserMessage(content="hi"),
        "content must be parts such as (glue.Text(text='...'),), not 'hi'",
    ),
    (
        lambda: untyped.user(3),
        "a message must consist of strings and parts such as glue.Image, not 3",
    ),
    (
        lambda: agent(tools=weather),
        "tools must be a list, such as tools=[my_tool], not Tool('plain')",
    ),
    (
        lambda: agent(tools=["read_file"]),
        "tools must be made by glue.tool, not 'read_file'; pass the tool itself, not its name",
    ),
    (
        lambda: agent(tools=[plain]),
        "tools must be made by glue.tool, not the function plain; write glue.tool(plain)",
    ),
    (
        lambda: agent(tools=[Forecasts().look_up]),
        "tools must be made by glue.tool, not the method look_up; write glue.tool(object.look_up)",
    ),
    (
        lambda: agent(tools=[glue.tool(Forecasts.look_up)]),
        "tools: look_up is a method; pass it with its object: object.look_up",
    ),
    (
        lambda: agent(tools=[agent()]),
        "tools must be made by glue.tool, not Agent('helper'); write agent.as_tool()",
    ),
    (
        lambda: agent(tools=[[weather]]),
        (
            "tools must be made by glue.tool, not [Tool('plain')]; "
            "put the tools of several lists in one list: tools=[*some, *others]"
        ),
    ),
    (
        lambda: agent(tools=[weather, weather]),
        "tools must have different names; 'plain' is there twice",
    ),
    (
        lambda: glue.tool(lambda city: city),
        "a tool made from a lambda needs a name: glue.tool(name='...')(lambda ...)",
    ),
    (lambda: untyped.tool(alone="yes")(plain), "alone must be True or False, not 'yes'"),
    (
        lambda: agent(limits=5),
        f"limits must be a glue.Limits, such as glue.Limits(max_turns=5), {LIMITS_FORM}, not 5",
    ),
    (
        lambda: agent(limits={"max_turns": 3}),
        (
            f"limits must be a glue.Limits, such as glue.Limits(max_turns=3), {LIMITS_FORM}, "
            "not {'max_turns': 3}"
        ),
    ),
    (
        lambda: untyped.Limits(max_turns="5"),
        "max_turns must be a whole number of 0 or more, or None for no limit, not '5'",
    ),
    (
        lambda: agent(output="json"),
        (
            "output must be a type or a JSON schema, such as a dataclass or {'type': 'object'}, "
            "not 'json'"
        ),
    ),
    (
        lambda: agent(permission=True),
        f"{PERMISSION_FORM}, not True; glue.AllowAll() allows every call",
    ),
    (
        lambda: agent(permission=glue.AllowAll),
        f"{PERMISSION_FORM}, not the class AllowAll; write AllowAll(...) instead of AllowAll",
    ),
    (lambda: agent(permission=plain), f"{PERMISSION_FORM}, not the function plain"),
    (
        lambda: untyped.Rules(allow="shell"),
        "allow must be a list of rules, such as ['shell'], not a string",
    ),
    (
        lambda: untyped.deny("no", remember="forever"),
        "remember must be one of call, target, session, always, not 'forever'",
    ),
    (
        lambda: untyped.Agent(["openai", "gemini"]),
        f"{MODEL_FORM}, not ['openai', 'gemini']; write several names as one text: 'openai,gemini'",
    ),
    (lambda: untyped.Agent(Script), f"{MODEL_FORM}, not the class Script"),
    (lambda: untyped.Agent(agent()), f"{MODEL_FORM}, not Agent('helper')"),
    (
        lambda: agent(policies=[Policy]),
        "policies must be objects, not classes; write Policy() instead of Policy",
    ),
    (
        lambda: agent(hooks=[plain]),
        "hooks must be like glue.ToolHook(before=function), not the function plain",
    ),
    (
        lambda: agent(max_tokens="100"),
        "max_tokens must be a whole number of 1 or more, or None for the model's limit, not '100'",
    ),
    (
        lambda: agent(temperature="0"),
        "temperature must be a number, or None for the model's default, not '0'",
    ),
    (
        lambda: agent(reasoning="hard"),
        "reasoning must be one of none, minimal, low, medium, high, xhigh, max, not 'hard'",
    ),
    (
        lambda: agent(compaction=True),
        "compaction must be an object such as glue.summarize() or glue.keep_recent(20), not True",
    ),
    (
        lambda: agent(deps_type=Forecasts()),
        (
            "deps_type must be a class, such as Forecasts, not a Forecasts; "
            "pass the object to the call: agent.run(prompt, deps=...)"
        ),
    ),
    (
        lambda: agent(deps_type=Forecasts).run_sync("hi"),
        (
            "Agent('helper') needs deps of the type Forecasts; none was given: "
            "pass deps=... to the call"
        ),
    ),
    (
        lambda: session(store=".glue"),
        "store must be a store such as glue.FileStore('.glue'), not '.glue'",
    ),
    (
        lambda: session(store=glue.FileStore),
        "store must be a store such as glue.FileStore('.glue'), not the class FileStore",
    ),
    (lambda: untyped.FileStore(3), "root must be a path, such as '.glue', not 3"),
    (lambda: agent().run_sync(None), f"{PROMPT_FORM}, not None"),  # type: ignore[call-overload]
    (
        lambda: untyped.Agent(Script("x")).run_sync([{"role": "user", "content": "hi"}]),
        f"{PROMPT_FORM}, not [{{'role': 'user', 'content': 'hi'}}]; {MESSAGE_FORM}",
    ),
    (
        lambda: untyped.Agent(Script("x")).run_sync(["Look:", Path("a.png")]),
        (
            f"{PROMPT_FORM}, not ['Look:', PosixPath('a.png')]; "
            "read the file first, for example glue.Image(data=path.read_bytes())"
        ),
    ),
    (
        lambda: call(message_history=[{"role": "user", "content": "hi"}]),
        f"{HISTORY_FORM}, not {{'role': 'user', 'content': 'hi'}}; {MESSAGE_FORM}",
    ),
    (
        lambda: call(message_history=agent().run_sync("hi")),
        f"{HISTORY_FORM}, not a RunResult; pass result.messages",
    ),
    (lambda: call(message_history=[glue.user("a"), "b"]), f"{HISTORY_FORM}, not 'b'"),
    (
        lambda: agent().resume_sync("hi"),  # type: ignore[arg-type]
        "result must be the result of an earlier run, not 'hi'",
    ),
    (
        lambda: glue.Agent(Script("x")).as_tool(),
        "an agent needs a name to be a tool: write agent.as_tool('helper')",
    ),
    (
        lambda: untyped.with_failover("openai", "gemini"),
        "failover takes providers, not 'openai'; glue.providers.new makes a provider from a name",
    ),
    (
        lambda: untyped.map(agent(), "Weather?"),
        "inputs must be a list of prompts, such as ['Weather in Oslo?'], not 'Weather?'",
    ),
    (lambda: untyped.map("openai", ["hi"]), "agent must be a glue.Agent, not 'openai'"),
    (
        lambda: untyped.map(agent(), ["hi"], concurrency="4"),
        "concurrency must be a whole number of 1 or more, not '4'",
    ),
    (
        lambda: list(untyped.map(agent(), ["hi"])),
        "read the rows of a map with `async for`, in an async function",
    ),
    (
        lambda: list(agent().stream("hi")),
        "read these events with `async for`, or use stream_sync(...) in code that is not async",
    ),
    (lambda: session().steer(3), "message must be a text or a user message, not 3"),
]


@pytest.mark.parametrize(
    ("mistake", "line"),
    [*WRONG_NAMES, *WRONG_PLACES, *WRONG_VALUES],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_raises_one_line_with_the_right_form(
    mistake: Callable[[], object], line: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        mistake()

    assert str(caught.value) == line
    assert "\n" not in line


async def test_a_stream_that_is_awaited_names_both_right_forms() -> None:
    with pytest.raises(TypeError) as caught:
        await untyped.Agent(Script("x")).stream("hi")

    assert str(caught.value) == (
        "a stream is not awaited: read it inside `async with agent.stream(prompt) as events`, "
        "or await agent.run(prompt)"
    )


async def test_a_map_that_is_awaited_names_the_right_form() -> None:
    with pytest.raises(TypeError) as caught:
        await untyped.map(agent(), ["hi"])

    assert str(caught.value) == (
        "a map is not awaited: read its rows with `async for row in glue.map(...)`"
    )


async def test_the_bare_loop_names_the_right_form() -> None:
    provider = Script("x")
    mistakes: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (
            ("openai", "hi"),
            {},
            (
                "provider must have a name and a stream(request) method, not 'openai'; "
                "write glue.providers.new('openai')"
            ),
        ),
        (
            (agent(), "hi"),
            {},
            (
                "provider must have a name and a stream(request) method, not Agent('helper'); "
                "to run an agent, call agent.run(prompt)"
            ),
        ),
        (
            (provider, [{"role": "user", "content": "hi"}]),
            {},
            (
                "messages must be a list of glue messages, not {'role': 'user', 'content': 'hi'}; "
                f"{MESSAGE_FORM}"
            ),
        ),
        (
            (provider, "hi"),
            {"system": "Be brief"},
            "run() does not take 'system'; use request=glue.Request(system='Be brief')",
        ),
        (
            (provider, "hi"),
            {"permission": glue.AllowAll()},
            "run() does not take 'permission'; use host=glue.context.Host(permission=...)",
        ),
        (
            (provider, "hi"),
            {"request": {"system": "Be brief"}},
            (
                "request must be a glue.Request, such as glue.Request(system='...'), "
                "not {'system': 'Be brief'}"
            ),
        ),
    ]

    for args, keywords, line in mistakes:
        with pytest.raises(TypeError) as caught:
            await untyped.run(*args, **keywords)
        assert str(caught.value) == line


async def test_a_missing_await_is_named_where_the_coroutine_is_used() -> None:
    forgotten: Any = agent().run("hi")

    with pytest.raises(TypeError) as caught:
        await agent().run("And now?", message_history=forgotten)

    assert str(caught.value) == (
        f"{HISTORY_FORM}, not the coroutine of run(), which was not awaited"
    )


async def test_a_wrong_decision_on_a_pending_call_is_named() -> None:
    @glue.tool(needs_permission=True)
    def act() -> str:
        """Act."""
        return "done"

    person = glue.Ask(lambda request: glue.defer("a person decides"))
    paused_agent = glue.Agent(Script(calls("act"), "done"), tools=[act], permission=person)
    paused = await paused_agent.run("hi", unwrap=False)
    [pending] = paused.pending
    form = "must be glue.allow(), glue.deny(reason) or a result"
    mistakes: list[tuple[Any, str]] = [
        (
            glue.allow(),
            (
                "decisions must be a dict of call ids, such as {call.id: glue.allow()}, "
                "not Decision(allowed=True, reason='', remember='call', deferred=False)"
            ),
        ),
        ({pending.id: True}, f"the decision for {pending.id!r} {form}, not True"),
        (
            {pending.id: glue.allow},
            f"the decision for {pending.id!r} {form}, not the function allow",
        ),
        (
            {"c9": glue.allow()},
            (
                "decisions contains 'c9', which is not a pending call; "
                f"pending calls: {pending.id} (act)"
            ),
        ),
    ]

    for decisions, line in mistakes:
        with pytest.raises((TypeError, ValueError)) as caught:
            await paused_agent.resume(paused, decisions=decisions)
        assert str(caught.value) == line


async def test_run_sync_inside_an_event_loop_works() -> None:
    result = agent().run_sync("hi")

    assert result.text == "one"


def test_a_long_value_is_shortened_in_a_message() -> None:
    with pytest.raises(TypeError) as caught:
        agent(instructions=list(range(1000)))

    assert len(str(caught.value)) < 160


def test_the_value_of_a_wrong_key_is_not_shown() -> None:
    with pytest.raises(TypeError) as caught:
        new("openai", key=b"sk-secret")

    assert str(caught.value) == "key must be a text, not a value of the type bytes"


def test_options_beside_the_function_are_not_ignored() -> None:
    made = untyped.tool(plain, name="forecast")

    assert made.name == "forecast"


if __name__ == "__main__":
    # Print the table: python tests/test_mistakes.py
    for _, line in (*WRONG_NAMES, *WRONG_PLACES, *WRONG_VALUES):
        sys.stdout.write(f"{line}\n")
