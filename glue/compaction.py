"""Compaction: dropping or summarizing old messages, so that a transcript fits the context window.

Removed messages stay in the session's store, marked as excluded, but are not sent to models again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from glue.checks import check_number, check_text
from glue.errors import ProviderError
from glue.events import Compacted
from glue.limits import estimate_tokens
from glue.loop.recorder import Journal
from glue.loop.state import State, watched
from glue.loop.transcript import OURS, check_messages, estimate, merge, run_start
from glue.messages import (
    AssistantMessage,
    Message,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    user,
)
from glue.policies import Action, Policy, Rewrite
from glue.policies.budgets import priced
from glue.provider import Provider, ask, capabilities
from glue.result import RunResult
from glue.settings import check_model
from glue.signature import hinted

Estimator = Callable[[str], int]  # returns the number of tokens of a text
_CHAIN_PROMPTS = ("continue", "repair")  # the origins of messages that ask for the rest of a reply


class Compactor(Protocol):
    """The protocol of objects that shorten a transcript, such as `keep_recent(20)`."""

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None:
        """Return the messages that replace the transcript, or None to leave it unchanged."""


class Compaction(Policy):
    """A policy that shortens a transcript that nearly fills the window or was rejected as too long.

    A run shortens it at most once before a request, and once after a provider has rejected it as
    too long. After such an error, it is not shortened before a request any more.

    Args:
        compactor: chooses the messages to keep.
        window: the context window of the model in tokens. If None, the transcript is shortened only
            after a provider has rejected it as too long.
        at: the share of the window, from 0 to 1, at which the transcript is shortened.
    """

    place = "compaction"

    def __init__(self, compactor: Compactor, *, window: int | None = None, at: float = 0.8) -> None:
        self.compactor, self.window, self.at = compactor, window, at
        self._done = False

    async def before_request(self, state: State, request: Request) -> Action:
        if self.window is None or self._done or size(state, request) < self.window * self.at:
            return None
        self._done = True
        messages = await self._shorter(state)
        return None if messages is None else Rewrite(messages)

    async def compact(self, state: State) -> Sequence[Message] | None:
        self._done = True
        return await self._shorter(state)

    async def _shorter(self, state: State) -> Sequence[Message] | None:
        live = [message for message in state.messages if not message.excluded]
        shorter = None
        # A compactor may ask a model for a summary. If this fails, the transcript stays unchanged.
        with suppress(ProviderError):
            shorter = await self.compactor.compact(live, state)
        if shorter is None:
            return None
        shorter = check_messages(f"the result of {type(self.compactor).__name__}.compact", shorter)
        count = state.limits.estimator
        return shorter if estimate(shorter, count) < estimate(live, count) else None


def compaction_for(
    provider: Provider, compactor: Compactor, open: Callable[[str], Provider]
) -> Compaction:
    """Return the policy that shortens a run's transcript to fit the provider's context window.

    Args:
        provider: the provider of the run.
        compactor: chooses the messages to keep.
        open: returns the provider for a model name. It is called if `compactor` writes summaries
            with a model that is given by name.
    """
    if isinstance(compactor, Summarize) and isinstance(compactor.model, str):
        compactor = replace(compactor, model=open(compactor.model))
    return Compaction(compactor, window=capabilities(provider).window)


def size(state: State, request: Request) -> int:
    """Return the estimated number of tokens of the next request.

    If a reply of this run has a usage from its provider, return its tokens plus an estimate of the
    messages after the reply.
    """
    count = state.limits.estimator
    for index in range(len(state.new) - 1, -1, -1):
        message = state.new[index]
        if isinstance(message, AssistantMessage) and message.usage:
            return message.usage.total + estimate(state.new[index + 1 :], count)
    tools = sum(count(spec.description + str(spec.parameters)) for spec in request.tools)
    return estimate(request.messages, count) + count(request.system) + tools


# In the loop --------------------------------------------------------------------------------------


async def compact(state: State) -> bool:
    """Shorten a transcript that was rejected as too long. Return False if no policy shortened it.

    A second call in the same run returns False.
    """
    if state.compacted:
        return False
    state.compacted = True
    for policy in state.policies:
        messages: Sequence[Message] | None = None
        with watched(state):
            messages = await policy.compact(state)
        if not messages or all(getattr(each, "origin", "") in OURS for each in messages):
            continue
        live = [message for message in state.messages if not message.excluded]
        if estimate(messages, state.limits.estimator) < estimate(live, state.limits.estimator):
            await rewrite(state, messages)
            return True
    return False


async def rewrite(state: State, messages: Sequence[Message]) -> None:
    """Replace the transcript of a run by `messages`, and write the change to the journal.

    The journal keeps the removed messages, marked as excluded. A `Compacted` event is emitted.
    """
    before, old = state.messages, {message.id for message in state.messages}
    kept = {message.id for message in messages}
    removed = [message.id for message in before if message.id not in kept and not message.excluded]
    state.recorder.messages = list(messages)
    state.recorder.history.align(state.messages)
    sizes = [estimate(each, state.limits.estimator) for each in (before, messages)]
    state.emit(Compacted(before=sizes[0], after=sizes[1], removed=len(removed)))

    async def write(journal: Journal) -> None:
        await journal.exclude(removed)
        for index, message in reversed(list(enumerate(messages))):
            if message.id in old:
                continue
            if index + 1 < len(messages):
                await journal.insert(message, messages[index + 1].id)
            else:
                await journal.append(message)

    await state.recorder.write(write)


def collapse_continuations(result: RunResult[object]) -> RunResult[object]:
    """Return a copy of `result` in which the parts of a continued reply are one message."""
    return replace(
        result, messages=_collapse(result.messages), new_messages=_collapse(result.new_messages)
    )


def _collapse(messages: Sequence[Message]) -> tuple[Message, ...]:
    out: list[Message] = []
    for message in messages:
        first = _chain_start(out)
        if isinstance(message, AssistantMessage) and first is not None:
            out[-2:] = [_joined(first, message)]
        else:
            out.append(message)
    return tuple(out)


def _chain_start(messages: Sequence[Message]) -> AssistantMessage | None:
    """Return the last reply if `messages` ends with a request to continue it, or else None."""
    if len(messages) < 2:
        return None
    reply, prompt = messages[-2:]
    continues = isinstance(prompt, UserMessage) and prompt.origin == "continue"
    return reply if continues and isinstance(reply, AssistantMessage) else None


def _joined(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    text = Text(text=merge((first.text, second.text)))
    before = (part for part in first.content if not isinstance(part, Text))
    after = (part for part in second.content if not isinstance(part, Text))
    usage = first.usage or second.usage
    if first.usage and second.usage:
        usage = first.usage + second.usage
    return replace(second, content=(*before, text, *after), usage=usage, id=first.id)


# Recent messages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRecent:
    """A compactor that keeps only the last messages of a transcript. `keep_recent` creates it."""

    n_messages: int | None
    n_tokens: int | None

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None:
        return self.tail(messages, state.limits.estimator)

    def tail(
        self, messages: Sequence[Message], estimator: Estimator = estimate_tokens
    ) -> Sequence[Message] | None:
        """Return the messages to keep, or None if all messages are kept.

        If the first kept message is in the middle of a run, the user's earlier messages in that run
        are kept too.
        """
        start = self.cut(messages, estimator)
        if start == 0:
            return None
        before = messages[run_start(messages[: start + 1]) : start]
        prompts = (
            each for each in before if isinstance(each, UserMessage) and each.origin not in OURS
        )
        kept = (*prompts, *messages[start:])
        return kept if len(kept) < len(messages) else None

    def cut(self, messages: Sequence[Message], estimator: Estimator = estimate_tokens) -> int:
        """Return the index of the first message to keep, or 0 to keep all messages.

        The index never separates a call from its result, or the parts of a continued reply.
        """
        found, end, tokens = 0, len(messages), 0
        for start in reversed(_starts(messages)):
            fits = self.n_messages is None or len(messages) - start <= self.n_messages
            if self.n_tokens is not None:
                tokens += estimate(messages[start:end], estimator)
                fits = tokens <= self.n_tokens
            if not fits and end < len(messages):  # the last exchange is kept even if it is too long
                break
            found = end = start
        return found


@hinted
def keep_recent(n_messages: int | None = None, *, n_tokens: int | None = None) -> KeepRecent:
    """Return a compactor that keeps the last messages, up to a number of messages or of tokens.

        agent = Agent("anthropic", compaction=keep_recent(20))

    The compactor keeps fewer messages if the limit would separate a tool call from its result. It
    keeps the last reply and its results even if they are longer than the limit. If the first kept
    message is in the middle of a run, the user's earlier messages in that run are kept too.
    """
    if (n_messages is None) == (n_tokens is None):
        raise TypeError("keep_recent takes either n_messages or n_tokens, such as keep_recent(20)")
    for name, value in (("n_messages", n_messages), ("n_tokens", n_tokens)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and value >= 1):
            raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return KeepRecent(n_messages=n_messages, n_tokens=n_tokens)


def _starts(messages: Sequence[Message]) -> list[int]:
    """Return the indexes of the messages that may become the first message of a transcript.

    They are user messages and replies. Not included are tool results, messages in which the loop
    asks for the rest of a reply, and replies that contain the rest.
    """
    starts, in_chain = [], False
    for index, message in enumerate(messages):
        asks_for_rest = isinstance(message, UserMessage) and message.origin in _CHAIN_PROMPTS
        if not isinstance(message, ToolMessage) and not asks_for_rest and not in_chain:
            starts.append(index)
        paused = isinstance(message, AssistantMessage) and message.stop_reason == "pause_turn"
        in_chain = asks_for_rest or paused
    return starts


# Summaries ----------------------------------------------------------------------------------------

PROMPT = Path(__file__).with_name("compaction.md").read_text(encoding="utf-8")
INTRODUCTION = "Summary of the conversation so far:\n\n"
_LONGEST = 4_000  # characters of one message that the summarizing model sees


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarize:
    """A compactor that replaces old messages by a summary. `summarize` creates it."""

    model: str | Provider | None
    keep: KeepRecent
    prompt: str
    max_tokens: int

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None:
        """Return a model's summary and the recent messages, or None if all messages are recent.

        If the model writes no summary, return only the recent messages.
        """
        start = self.keep.cut(messages, state.limits.estimator)
        if start == 0:
            return None
        text = await self._ask(render(messages[:start]), state)
        if not text:
            return self.keep.tail(messages, state.limits.estimator)
        return (user(INTRODUCTION + text, origin="summary"), *messages[start:])

    async def _ask(self, transcript: str, state: State) -> str:
        if isinstance(self.model, str):
            raise TypeError(
                f"summarize cannot open the model {self.model!r} without an Agent; "
                "use glue.Agent(..., compaction=summarize(...)), or summarize(provider)"
            )
        if not state.may_ask(2):  # one request for the summary, and the next request of the run
            return ""
        provider = self.model or state.provider
        model = state.template.model if self.model is None else ""
        request = Request(
            model=model,
            system=self.prompt,
            messages=(user(transcript),),
            max_tokens=self.max_tokens,
        )
        state.count_request()
        text = ""
        with suppress(ProviderError):
            reply = await ask(provider, request)
            if reply is not None:
                text = reply.text.strip()
                state.charge_reply(priced(reply, state.prices).usage, text)
        return text


@hinted
def summarize(
    model: str | Provider | None = None,
    *,
    keep: KeepRecent | None = None,
    prompt: str = PROMPT,
    max_tokens: int = 2_000,
) -> Summarize:
    """Return a compactor that replaces all but the recent messages by a summary.

        agent = Agent("anthropic", compaction=summarize("anthropic:claude-haiku-5-5"))

    Args:
        model: the name of the model that writes the summary, or a provider. If None, the model of
            the run writes it.
        keep: the messages that are not summarized; if None, the last 8.
        prompt: the instructions for the model. The default asks for goal, constraints, decisions,
            files and open steps.
        max_tokens: the largest number of tokens in the summary.
    """
    if model is not None:
        check_model(model)
    check_text("prompt", prompt)
    check_number("max_tokens", max_tokens, least=1, whole=True)
    return Summarize(model=model, keep=keep or keep_recent(8), prompt=prompt, max_tokens=max_tokens)


def render(messages: Sequence[Message]) -> str:
    """Return the messages as plain text for the model that summarizes them.

    Messages of more than 4,000 characters are shortened in the middle.
    """
    return "\n\n".join(_render(message) for message in messages)


def _render(message: Message) -> str:
    if isinstance(message, ToolMessage):
        kind = "error" if message.is_error else "result"
        return f"[{kind} of {message.name}] {_short(message.text)}"
    if isinstance(message, UserMessage):
        return f"[user] {_short(message.text)}"
    pieces = []
    for part in message.content:
        if isinstance(part, Text):
            pieces.append(_short(part.text))
        elif isinstance(part, ToolCall):
            pieces.append(f"[calls {part.name}] {_short(part.arguments)}")
    return "[assistant] " + "\n".join(pieces)


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]}\n... {len(text) - _LONGEST} characters left out ...\n{text[-half:]}"
