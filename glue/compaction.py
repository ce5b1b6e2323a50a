"""Compaction: a shorter transcript, of recent messages, a summary of the others, and chains in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from glue.errors import ProviderError
from glue.events import Compacted, RunResult
from glue.limits import estimate_tokens
from glue.loop.state import Journal, State, watched
from glue.loop.transcript import OURS, check_messages, estimate, merge, run_start
from glue.messages import AssistantMessage, Message, Request, Text, ToolCall, ToolMessage, UserMessage, user
from glue.policies import Answer, Policy, Rewrite
from glue.policies.budgets import priced
from glue.provider import Provider, ask, capabilities

Estimator = Callable[[str], int]


class Compactor(Protocol):
    """Something that makes a transcript shorter, or says None where it cannot."""

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None: ...


class Compaction(Policy):
    """Compact when the transcript nears the model's window, or when a provider says it is too long.

    At most once in a run for each of the two. `window` is in tokens; None leaves only the second.
    """

    place = "compaction"

    def __init__(self, compactor: Compactor, *, window: int | None = None, at: float = 0.8) -> None:
        self.compactor, self.window, self.at = compactor, window, at
        self._done = False

    async def before_request(self, state: State, request: Request) -> Answer:
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
        with suppress(ProviderError):  # of a model that it asks
            shorter = await self.compactor.compact(live, state)
        if shorter is None:
            return None
        shorter = check_messages(f"what {type(self.compactor).__name__} keeps", shorter)
        helps = estimate(shorter, state.limits.estimator) < estimate(live, state.limits.estimator)
        return shorter if helps else None


def compaction_for(provider: Provider, compactor: Compactor, open: Callable[[str], Provider]) -> Compaction:
    """Make the policy for a provider's window, and open the model that a summary names."""
    if isinstance(compactor, Summarize) and isinstance(compactor.model, str):
        compactor = replace(compactor, model=open(compactor.model))
    return Compaction(compactor, window=capabilities(provider).window)


def size(state: State, request: Request) -> int:
    """Guess the tokens of the next request; a provider's own count, where this run has one, goes first."""
    for index in range(len(state.new) - 1, -1, -1):
        message = state.new[index]
        if isinstance(message, AssistantMessage) and message.usage:
            return message.usage.total + estimate(state.new[index + 1 :], state.limits.estimator)
    tools = sum(state.limits.estimator(spec.description + str(spec.parameters)) for spec in request.tools)
    return estimate(request.messages, state.limits.estimator) + state.limits.estimator(request.system) + tools


# In the loop --------------------------------------------------------------------------------------


async def compact(state: State) -> bool:
    """Shorten the transcript that a provider found too long, once in a run, and only if that helps."""
    if state.compacted:
        return False
    state.compacted = True
    for policy in state.policies:
        messages: Sequence[Message] | None = None
        with watched(state):
            messages = await policy.compact(state)
        if not messages or all(getattr(each, "origin", "") in OURS for each in messages):
            continue
        before = estimate((message for message in state.messages if not message.excluded), state.limits.estimator)
        if estimate(messages, state.limits.estimator) < before:
            await rewrite(state, messages)
            return True
    return False


async def rewrite(state: State, messages: Sequence[Message]) -> None:
    """Go on with a shorter transcript; what stays keeps its identity."""
    before, old = state.messages, {message.id for message in state.messages}
    kept = {message.id for message in messages}
    removed = [message.id for message in before if message.id not in kept and not message.excluded]
    state.messages = list(messages)
    state.history.align(state.messages)
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

    await state.record(write)


def collapse_continuations(result: RunResult[object]) -> RunResult[object]:
    """Return a result whose transcript holds each chain as one message."""
    return replace(result, messages=_collapse(result.messages), new_messages=_collapse(result.new_messages))


def _collapse(messages: Sequence[Message]) -> tuple[Message, ...]:
    out: list[Message] = []
    for message in messages:
        joins = (
            isinstance(message, AssistantMessage)
            and len(out) > 1
            and isinstance(out[-1], UserMessage)
            and out[-1].origin == "continue"
        )
        first = out[-2] if joins else None
        if isinstance(message, AssistantMessage) and isinstance(first, AssistantMessage):
            text = merge((first.text, message.text))
            rest = tuple(part for part in message.content if not isinstance(part, Text))
            kept = tuple(part for part in first.content if not isinstance(part, Text))
            usage = first.usage + message.usage if first.usage and message.usage else first.usage or message.usage
            out[-2:] = [replace(message, content=(*kept, Text(text=text), *rest), usage=usage, id=first.id)]
        else:
            out.append(message)
    return tuple(out)


# Keeping what is recent ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRecent:
    """Keep the end of a transcript. See `keep_recent`."""

    n_messages: int | None
    n_tokens: int | None

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None:
        return self.tail(messages, state.limits.estimator)

    def tail(self, messages: Sequence[Message], estimator: Estimator = estimate_tokens) -> Sequence[Message] | None:
        """Give the messages to keep; a tail that begins inside a run keeps what the user said to that run."""
        start = self.cut(messages, estimator)
        if start == 0:
            return None
        before = messages[run_start(messages[: start + 1]) : start]
        said = (each for each in before if isinstance(each, UserMessage) and each.origin not in OURS)
        kept = (*said, *messages[start:])
        return kept if len(kept) < len(messages) else None

    def cut(self, messages: Sequence[Message], estimator: Estimator = estimate_tokens) -> int:
        """Say where the tail begins: never between a call and its result, never at a tool message."""
        found, end, tokens = 0, len(messages), 0
        for start in reversed(_starts(messages)):
            fits = self.n_messages is None or len(messages) - start <= self.n_messages
            if self.n_tokens is not None:
                tokens += estimate(messages[start:end], estimator)
                fits = tokens <= self.n_tokens
            if not fits and end < len(messages):  # the last exchange is kept whatever its size
                break
            found = end = start
        return found


def keep_recent(n_messages: int | None = None, *, n_tokens: int | None = None) -> KeepRecent:
    """Keep at most the last messages, by number or by tokens; a little less where a pair would be cut.

    The last exchange is kept whatever its size.
    """
    if (n_messages is None) == (n_tokens is None):
        raise TypeError("keep_recent takes either n_messages or n_tokens")
    for name, value in (("n_messages", n_messages), ("n_tokens", n_tokens)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return KeepRecent(n_messages=n_messages, n_tokens=n_tokens)


def _starts(messages: Sequence[Message]) -> list[int]:
    """List where a tail may begin: at a user message or at a reply, but not inside a chain of one reply's parts."""
    starts, in_chain = [], False
    for index, message in enumerate(messages):
        carries_on = isinstance(message, UserMessage) and message.origin in ("continue", "repair")
        if not isinstance(message, ToolMessage) and not carries_on and not in_chain:
            starts.append(index)
        in_chain = carries_on or (isinstance(message, AssistantMessage) and message.stop_reason == "pause_turn")
    return starts


# Summaries ----------------------------------------------------------------------------------------

PROMPT = Path(__file__).with_name("compaction.md").read_text(encoding="utf-8")
INTRODUCTION = "What happened before, in short:\n\n"
_LONGEST = 4_000  # characters of one message that a summary is made from


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarize:
    """Let a model sum up what is not recent. See `summarize`."""

    model: str | Provider | None
    keep: KeepRecent
    prompt: str
    max_tokens: int

    async def compact(self, messages: Sequence[Message], state: State) -> Sequence[Message] | None:
        """Put one message in place of the older ones; without a usable summary they are just left out."""
        start = self.keep.cut(messages, state.limits.estimator)
        if start == 0:
            return None
        text = await self._ask(render(messages[:start]), state)
        if not text:
            return self.keep.tail(messages, state.limits.estimator)
        return (user(INTRODUCTION + text, origin="summary"), *messages[start:])

    async def _ask(self, transcript: str, state: State) -> str:
        if isinstance(self.model, str):
            raise TypeError(f"the model {self.model!r} has to be opened first; give it to an Agent")
        if not state.may_ask(2):  # one for the summary, one for the answer it is made for
            return ""
        provider = self.model or state.provider
        model = state.template.model if self.model is None else ""
        request = Request(model=model, system=self.prompt, messages=(user(transcript),), max_tokens=self.max_tokens)
        state.count_request()
        text = ""
        with suppress(ProviderError):
            if (reply := await ask(provider, request)) is not None:
                text = reply.text.strip()
                state.charge_reply(priced(reply, state.prices).usage, text)
        return text


def summarize(
    model: str | Provider | None = None,
    *,
    keep: KeepRecent | None = None,
    prompt: str = PROMPT,
    max_tokens: int = 2_000,
) -> Summarize:
    """Sum up all but the recent messages: goal, constraints, decisions, files, open steps.

    `model` is a name or a provider; None asks the model of the run itself.
    """
    return Summarize(model=model, keep=keep or keep_recent(8), prompt=prompt, max_tokens=max_tokens)


def render(messages: Sequence[Message]) -> str:
    """Write a transcript as plain text, with long messages shortened."""
    return "\n\n".join(_render(message) for message in messages)


def _render(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return f"[{'error' if message.is_error else 'result'} of {message.name}] {_short(message.text)}"
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
