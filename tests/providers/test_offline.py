"""The embedded provider: honest without rules, and a player of rules with them."""

from __future__ import annotations

from glue import providers
from glue.limits import Outcome
from glue.loop.run import run
from glue.messages import AssistantMessage, Request, Text, Thinking, ToolCall, ToolMessage, user
from glue.providers.offline import STAND_IN, Offline

ASK = user("What is in a.txt?")


async def test_without_rules_it_says_what_it_is_and_what_to_set() -> None:
    result = await run(providers.new("offline"), [ASK])

    assert (result.text, result.outcome, result.cost) == (STAND_IN, Outcome.DONE, 0.0)
    assert "stand-in" in result.text
    assert "ANTHROPIC_API_KEY" in result.text


async def test_rules_answer_by_the_request() -> None:
    def rules(request: Request) -> str:
        return f"{len(request.messages)} message, system {request.system!r}"

    result = await run(Offline(rules), [ASK], request=Request(system="brief"))

    assert result.text == "1 message, system 'brief'"


async def test_rules_may_be_async_and_may_call_tools() -> None:
    async def rules(request: Request) -> str | tuple[Thinking | ToolCall, ...]:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return f"it says: {last.text}"
        return (Thinking(text="read it"), ToolCall(id="c1", name="nope", arguments="{}"))

    result = await run(providers.new("offline", rules=rules), [ASK])

    assert result.text.startswith("it says: ")
    assert result.turns == 1


async def test_rules_may_give_a_whole_reply() -> None:
    reply = AssistantMessage(content=(Text(text="two\nlines"),), provider="offline", model="rules-1")

    result = await run(Offline(lambda request: reply), [ASK])

    assert (result.text, result.messages[-1].model) == ("two\nlines", "rules-1")  # type: ignore[union-attr]
