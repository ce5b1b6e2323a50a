"""Types of agents and sessions. mypy and pyright check this file; it never runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypedDict, assert_type

from glue import Agent, AssistantMessage, Context, Image, RunResult, Session, Tool, tool, user
from glue.streams import Events


@dataclass
class Forecast:
    city: str
    degrees: int


class Row(TypedDict):
    name: str


class Mood(Enum):
    GOOD = "good"


@dataclass
class Deps:
    key: str


@tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return city * days


@tool(timeout=5)
async def fetch(context: Context[Deps], url: str) -> bytes:
    """Fetch."""
    assert_type(context.deps, Deps)
    return url.encode()


async def prompts(agent: Agent[None, None], picture: Image) -> None:
    assert_type(agent.run_sync(["What is this?", picture]), RunResult[None])
    assert_type(agent.session().run_sync(["What is this?", picture]), RunResult[None])
    assert_type(await agent.run((picture, picture)), RunResult[None])
    assert_type(await agent.run([user("What is this?")]), RunResult[None])
    assert_type(await agent.run((await agent.run("x")).messages), RunResult[None])


async def outputs() -> None:
    plain = Agent("openai", tools=[weather, fetch])
    assert_type(plain, Agent[None, None])
    assert_type((await plain.run("x")).output, None)
    assert_type(plain.run_sync("x"), RunResult[None])
    assert_type(plain.run_sync("x").reply, AssistantMessage)
    assert_type(plain.run_sync("x").model, str)

    typed = Agent("openai", output=Forecast)
    assert_type(typed, Agent[None, Forecast])
    result = await typed.run("x")
    assert_type(result.output, Forecast)
    assert_type(result.output.degrees, int)
    assert_type(typed.run_sync("x").output, Forecast)
    assert_type((await typed.resume(result)).output, Forecast)

    assert_type((await plain.run("x", output=Forecast)).output, Forecast)
    assert_type((await plain.run("x", output=Row)).output, Row)
    assert_type((await plain.run("x", output=Mood)).output, Mood)
    assert_type((await plain.run("x", output=list[Forecast])).output, list[Forecast])
    assert_type((await plain.run("x", output={"type": "object"})).output, Any)
    assert_type(plain.run_sync("x", output=Forecast).output, Forecast)
    assert_type((await typed.run("x", output=Mood)).output, Mood)

    form: Any = Literal["a", "b"]  # a special form is not a class
    chosen: Agent[None, Literal["a", "b"]] = Agent("openai", output=form)
    assert_type((await chosen.run("x")).output, Literal["a", "b"])

    async with typed.stream("x") as events:
        assert_type(events, Events[Forecast])
        async for _ in events:
            pass
        assert_type(events.result.output, Forecast)

    result.output.nothing  # type: ignore[attr-defined] # noqa: B018
    wrong: str = result.output.degrees  # type: ignore[assignment]
    del wrong


async def sessions() -> None:
    typed = Agent("openai", output=Forecast)
    session = typed.session("demo")
    assert_type(session, Session[None, Forecast])
    assert_type((await session.prompt("x")).output, Forecast)
    assert_type((await session.prompt("x", output=Mood)).output, Mood)
    assert_type(session.prompt_sync("x").output, Forecast)
    assert_type((await session.fork()), Session[None, Forecast])
    assert_type(session.stream("x"), Events[Forecast])
    assert_type(session.stream("x", output=Mood), Events[Mood])
    await session.prompt("x", colour="red")  # type: ignore[call-overload]


async def deps() -> None:
    agent = Agent("openai", tools=[fetch], deps_type=Deps)
    assert_type(agent, Agent[Deps, None])
    await agent.run("x", deps=Deps("k"))
    await agent.run("x", deps="k")  # type: ignore[call-overload]
    both = Agent("openai", deps_type=Deps, output=Forecast)
    assert_type(both, Agent[Deps, Forecast])
    assert_type((await both.session().prompt("x", deps=Deps("k"))).output, Forecast)
    assert_type(Agent("openai", output={"type": "object"}), Agent[None, Any])


async def tools() -> None:
    assert_type(weather("Oslo", days=2), str)
    weather(3)  # type: ignore[arg-type]
    weather("Oslo", nights=2)  # type: ignore[call-arg]
    assert isinstance(weather, Tool)


def settings() -> None:
    Agent("openai", limits=3)  # type: ignore[call-overload]
    Agent("openai", colour="red")  # type: ignore[call-overload]
    Agent("openai", tools=[len])  # type: ignore[list-item]
