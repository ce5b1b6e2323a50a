"""The forms of public functions: their signatures, and hints for wrong keywords."""

from __future__ import annotations

import glob
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import glue
from glue import Agent, Limits, Request, resume, run, tool, user
from glue.events import TextDelta
from glue.session import Session
from glue.signature import hinted, hinted_as
from glue.testing import Script, calls

ROOT = Path(__file__).resolve().parents[1]


@tool
def noop() -> str:
    """Return at once."""
    return "done"


FORMS = {"run_sync": "RunResult", "stream": "Events", "stream_sync": "SyncEvents"}


def modules_with_public_names() -> list[str]:
    """Return the names of the modules that list their public names in `__all__`."""
    found = []
    # glob follows the links to the folders beside glue/, and Path.rglob does not.
    for path in sorted(glob.glob("glue/**/*.py", root_dir=ROOT, recursive=True)):
        if re.search(r"^__all__ = ", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE):
            name = path.removesuffix(".py").removesuffix("/__init__")
            found.append(name.replace("/", "."))
    return found


def signatures(name: str, value: Any) -> Iterator[str]:
    """Yield the signatures of a function, or of a class and its public methods."""
    members = vars(value).items() if inspect.isclass(value) else ()
    public = [(each, member) for each, member in members if each[0] != "_" and callable(member)]
    for called, member in ((name, value), *public):
        with suppress(TypeError, ValueError):  # not every value has a signature
            yield f"{called}{inspect.signature(member)}"


@pytest.mark.parametrize("module", modules_with_public_names())
def test_no_public_signature_shows_the_environment_or_an_address(module: str) -> None:
    public = import_module(module)
    own = [
        (name, value)
        for name, value in ((name, getattr(public, name)) for name in public.__all__)
        if getattr(value, "__module__", "").startswith("glue")  # not from another package
    ]

    shown = [text for name, value in own for text in signatures(name, value)]

    assert [text for text in shown if "environ(" in text or " at 0x" in text] == []


def test_modules_with_public_names_are_found_in_every_folder() -> None:
    assert {"glue", "glue.providers", "glue.tools.mcp", "glue.provider"} <= set(
        modules_with_public_names()
    )


@pytest.mark.parametrize("owner", [Agent, Session, glue])
@pytest.mark.parametrize("name", FORMS)
def test_the_forms_of_run_have_its_signature(owner: Any, name: str) -> None:
    form = getattr(owner, name)

    signature = inspect.signature(form)
    assert signature.parameters == inspect.signature(owner.run).parameters
    assert signature.return_annotation.startswith(f"{FORMS[name]}[")
    assert form.__qualname__ == (name if owner is glue else f"{owner.__name__}.{name}")
    assert "\n    on_event: A function called with each event.\n" in form.__doc__


@pytest.mark.parametrize("owner", [Agent, Session, glue])
def test_an_act_has_the_same_name_on_agents_sessions_and_the_package(owner: Any) -> None:
    acts = ("run", "stream", "resume")

    assert all(callable(getattr(owner, name)) for act in acts for name in (act, f"{act}_sync"))
    assert inspect.signature(owner.resume_sync) == inspect.signature(owner.resume)


def test_the_bare_loop_runs_in_code_that_is_not_async() -> None:
    result = glue.run_sync(Script("one"), "hi", limits=Limits(max_turns=1))

    with glue.stream_sync(Script("two"), "hi") as events:
        read = [event for event in events if isinstance(event, TextDelta)]
    cut = glue.run_sync(Script(calls("noop")), "hi", tools=[noop], limits=Limits(max_turns=0))
    resumed = glue.resume_sync(Script("three"), cut.messages, tools=[noop])

    assert (result.text, events.result.text, resumed.text) == ("one", "two", "three")
    assert "".join(event.text for event in read) == "two"


async def test_the_bare_loop_streams_its_events() -> None:
    async with glue.stream(Script("one"), "hi") as events:
        read = [event async for event in events if isinstance(event, TextDelta)]

    assert "".join(event.text for event in read) == events.result.text == "one"


@pytest.mark.parametrize("loop", [run, resume])
async def test_the_loop_refuses_an_option_that_it_would_ignore(loop: Any) -> None:
    for given, hint in (
        (
            {"max_tokens": 5},
            "() does not take 'max_tokens'; use request=glue.Request(max_tokens=5)",
        ),
        ({"max_turns": 5}, "use limits=glue.Limits(max_turns=5)"),
        ({"tool": ()}, "did you mean tools?"),
    ):
        with pytest.raises(TypeError, match=re.escape(hint)):
            await loop(Script("ok"), [user("hi")], **given)
    with pytest.raises(TypeError, match="max_tokens must be a whole number"):
        await loop(Script("ok"), [user("hi")], request=Request(max_tokens=True))


class Closing(Script):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_a_synchronous_run_closes_the_connections_of_its_provider() -> None:
    provider = Closing("one", "two", "three")

    glue.run_sync(provider, "hi")
    glue.run_sync(provider=provider, messages="hi")
    for _ in glue.stream_sync(provider, "hi"):
        assert provider.closed == 2

    assert provider.closed == 3


def test_a_synchronous_run_of_an_agent_or_session_disconnects_it() -> None:
    class Watched(Agent[Any, Any]):
        __slots__ = ("closed",)

        async def disconnect(self) -> None:
            closed.append(self.name)

    closed: list[str] = []
    agent = Watched(Script("one", "two"), name="helper")

    agent.run_sync("hi")
    assert closed == ["helper"]
    agent.session().run_sync("hi")
    assert closed == ["helper", "helper"]


def test_a_function_without_parameters_by_name_takes_no_example() -> None:
    @hinted
    def bare() -> None: ...

    @hinted_as("named")
    def several(first: int, second: int = 0, *rest: int) -> int:
        return first + second + sum(rest)

    with pytest.raises(TypeError, match=r"bare\(\) takes only keyword arguments$"):
        bare(1)  # type: ignore[call-arg]
    assert several(1, 2, 3) == 6
    with pytest.raises(TypeError, match=r"^named\(\) needs a value for 'first'$"):
        several()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^named\(\) does not take 'frist'; did you mean first\?$"):
        several(frist=1)  # type: ignore[call-arg]


def test_too_many_positions_are_an_error_with_an_example() -> None:
    @hinted
    def narrow(first: int, *, zeal: int = 0, store: int = 0) -> int:
        return first

    @hinted
    def single(first: int) -> int:
        return first

    with pytest.raises(TypeError, match=r"takes only first by position; .* as in store=\.\.\.$"):
        narrow(1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"single\(\) takes only first by position$"):
        single(1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "keywords", "advice"),
    [
        (Agent.run, {"conversation_id": "a"}, "open a session: agent.session"),
        (Agent.run, {"memory": []}, "open a session: agent.session"),
        (Agent.session, {"deps": 3}, r"pass it to a call: agent.run\(prompt, deps=...\)"),
        (Agent.session, {"compaction": 3}, r"pass it to the agent: glue.Agent\(model, compaction"),
        (run, {"hooks": ()}, r"use host=glue.context.Host\(hooks=...\)"),
        (run, {"prompt": "x"}, r"use messages=\.\.\.$"),
        (Agent.session, {"prompt": "x"}, r"pass it to a call: agent.run\(prompt\)$"),
        (run, {"system_prompt": "x"}, r"use request=glue.Request\(system='x'\)"),
    ],
)
def test_a_keyword_of_another_place_is_named_with_its_place(
    function: Any, keywords: dict[str, Any], advice: str
) -> None:
    with pytest.raises(TypeError, match=advice):
        asked = function(Script("x") if function is run else Agent(Script("x")), "x", **keywords)
        asked.send(None)  # an async function reports the mistake when it is awaited


def test_the_forms_of_run_explain_themselves_with_an_example() -> None:
    agents: Any = Agent
    sessions: Any = Session

    assert "`async with agent.stream(prompt) as events`" in agents.stream.__doc__
    assert "`for event in session.stream_sync(prompt)`" in sessions.stream_sync.__doc__
    assert "`async with glue.stream(provider, prompt) as events`" in str(glue.stream.__doc__)
    summary, _, parameters = agents.run_sync.__doc__.partition("\n\n")
    assert summary == "Like `run`, for code that is not async."
    assert parameters.startswith("Args:\n")
    assert sessions.pending_sync.__doc__ == "Like `pending`, for code that is not async."
    assert agents.run_sync.__name__ == "run_sync"
    assert inspect.signature(agents.run_sync).parameters["unwrap"].default is True
