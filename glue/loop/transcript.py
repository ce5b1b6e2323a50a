"""Transcripts: repaired before a request, searched for prompts and open calls, measured, their parts merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from glue.errors import InvalidContinuation
from glue.limits import StopReason
from glue.messages import (
    AssistantMessage,
    Message,
    Messages,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    user,
)

CONTINUE = "Continue from where you left off."
UNSENT = "unsent"  # in the meta of a cut run's last reply: our prompts that its end took back
ENDED = "ended"  # in the meta of the last message of a run that is done though it does not end in an answer
ASKED = "asked"  # in the memo of a prompt: the run that it began
NO_RESULT = "no result was recorded for this call"
OURS = frozenset(("continue", "repair", "nudge", "wrap_up"))
OVERLAP_MIN, OVERLAP_MAX = 12, 400


class History:
    """Hardens a growing transcript a message at a time, so that a request costs what is new.

    A session keeps it from prompt to prompt: `align` finds what is still as it was.
    """

    __slots__ = ("_last", "_marks", "_seen", "_sent", "_transcript")

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._sent: list[Message] = []
        self._marks = [(0, 0)]  # how much was seen and sent at each view
        self._transcript: list[Message] = []  # of the last run
        self._last: Messages | None = None  # what that run began with, where the run changed nothing of it

    def begin(self, messages: Sequence[Message], *, resumed: bool) -> list[Message]:
        """Return the transcript as a list that a run may change; nothing is copied where the last run's will do.

        Of a view that grew since then only the end is compared. A resumed run may change what was before it.
        """
        last, low = self._last, 0
        self._last = messages if isinstance(messages, Messages) and not resumed else None
        if last is not None and self._last is not None and self._last.grew_from(last):
            low = len(last)
        if not low or self._transcript[low:] != list(messages[low:]):
            self._transcript, low = list(messages), 0
        self.align(self._transcript, low)
        return self._transcript

    def align(self, messages: list[Message], low: int = 0) -> None:
        """Forget what does not stand at the beginning of `messages`: it was dropped, excluded, amended or compacted.

        The first `low` are known to be as they were.
        """
        high = min(len(self._seen), len(messages))
        while low < high:  # slices, because those are compared in C, and by identity first
            middle = (low + high + 1) // 2
            if self._seen[low:middle] == messages[low:middle]:
                low = middle
            else:
                high = middle - 1
        if low == len(self._seen):
            return
        while self._marks[-1][0] > low:
            self._marks.pop()
        seen, sent = self._marks[-1]
        self._seen, self._sent = self._seen[:seen], self._sent[:sent]  # earlier views keep the old lists

    def view(self, messages: list[Message]) -> Messages:
        """Return what may be sent of `messages`, which must be the list last aligned with, only longer."""
        if len(self._seen) < len(messages):
            new = messages[len(self._seen) :]
            self._seen += new
            self._sent += harden(new)
            self._marks.append((len(self._seen), len(self._sent)))
        return Messages(self._sent)


def check_messages(what: str, given: Any) -> list[Message]:
    """Give a list of messages, or say what is none."""
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    messages = list(given) if listed else [given]
    for message in messages:
        if not listed or not isinstance(message, Message):
            raise TypeError(f"{what} must be a list of glue messages, not {message!r}")
    return messages


def harden(messages: Iterable[Message]) -> list[Message]:
    """Pair every call with one result, drop orphans, half calls, empty turns and what is excluded."""
    out: list[Message] = []
    reply: AssistantMessage | None = None
    results: list[ToolMessage] = []
    said: list[Message] = []

    def close() -> None:
        if reply is not None:
            out.append(reply)
            out.extend(answer_calls(reply.calls, results))
        out.extend(said)
        results.clear()
        said.clear()

    for message in messages:
        if message.excluded:
            continue
        if isinstance(message, AssistantMessage):
            close()
            reply = sendable(message)
        elif isinstance(message, ToolMessage):
            results.append(message)
        elif has_content(message.content):
            said.append(message)
    close()
    return out


def answer_calls(
    calls: Iterable[ToolCall], results: Sequence[ToolMessage], reason: str = NO_RESULT
) -> list[ToolMessage]:
    """Give each call its first unused result, in the order of the calls, or an error with the reason."""
    left = list(results)
    answers: list[ToolMessage] = []
    for call in calls:
        found = next((result for result in left if result.call_id == call.id), None)
        if found is None:
            found = ToolMessage(call_id=call.id, name=call.name, content=(Text(text=reason),), is_error=True)
        else:
            left.remove(found)
        answers.append(found)
    return answers


def sendable(message: AssistantMessage) -> AssistantMessage | None:
    """Return the message without half calls, or None when nothing is left of it."""
    if any(not call.complete for call in message.calls):
        whole = tuple(part for part in message.content if not isinstance(part, ToolCall) or part.complete)
        message = replace(message, content=whole)
    return message if has_content(message.content) else None


def has_content(content: Iterable[Part]) -> bool:
    """Tell whether there is more than blank text and thinking."""
    return any(part.text.strip() if isinstance(part, Text) else not isinstance(part, Thinking) for part in content)


def unanswered(messages: Sequence[Message], reason: str) -> list[ToolMessage]:
    """Make error results for the calls of the last reply that have none, where they can still stand behind it."""
    answered = set()
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return answer_calls((call for call in message.calls if call.id not in answered), (), reason)
        if not isinstance(message, ToolMessage):
            return []
        answered.add(message.call_id)
    return []


def run_start(messages: Sequence[Message]) -> int:
    """Return where the last run begins: at the caller's last prompt."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(message := messages[index], UserMessage) and message.origin in ("user", "summary"):
            return index
    return 0


def needs_answer(messages: Sequence[Message], prompt: Sequence[Message] = ()) -> bool:
    """Tell whether a model could go on from here."""
    last = next((message for message in chain(reversed(prompt), reversed(messages)) if not message.excluded), None)
    if last is None or (last.meta and ENDED in last.meta):
        return False
    return not isinstance(last, AssistantMessage) or bool(last.calls) or last.stop_reason == "pause_turn"


# A run whose last reply was tagged with one of these was cut, and can be resumed.
CUT = (StopReason.CANCELLED, StopReason.ERROR, StopReason.MAX_TURNS, StopReason.TOKEN_BUDGET, StopReason.MAX_TOKENS)


def resume_prompts(messages: Sequence[Message]) -> list[UserMessage]:
    """Return what has to be said to go on from here: what the end of the cut run took back, or a word to continue."""
    if messages and messages[-1].excluded:
        raise InvalidContinuation("there is nothing to go on from: the last run is left out; say something new")
    live = [message for message in messages if not message.excluded]
    last = live[-1] if live else None
    run = live[run_start(live) :]
    reply = next((message for message in reversed(run) if isinstance(message, AssistantMessage)), None)
    said = isinstance(last, UserMessage) and last.origin in OURS  # and then the process was killed
    if last is not None and ENDED not in (last.meta or {}):
        if not said and reply is not None and reply.meta is not None and UNSENT in reply.meta:
            return [user(said["text"], origin=said["origin"]) for said in reply.meta[UNSENT]]
        if needs_answer(live):
            return []
        if getattr(last, "stop_reason", None) in CUT:
            return [user(CONTINUE, origin="continue")]
    what = "the transcript is empty" if last is None else "the model has answered; say something new"
    raise InvalidContinuation(f"there is nothing to go on from: {what}")


def chain_texts(messages: Sequence[Message]) -> list[str]:
    """Return the parts of the chain that a transcript ends in."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            texts.insert(0, visible_text(message))
        elif not isinstance(message, UserMessage) or message.origin != "continue":
            break
    return texts


def visible_text(message: AssistantMessage) -> str:
    """Return what the model said; our placeholder is not that."""
    return "" if message.meta and message.meta.get("placeholder") else message.text


def message_chars(message: Message) -> str:
    """Return the text of a message that counts as tokens: what was said, called and returned."""
    pieces: list[str] = []
    for part in message.content:
        if isinstance(part, (Text, Thinking)):
            pieces.append(part.text)
        elif isinstance(part, ToolCall):
            pieces.append(part.name + part.arguments)
    return "".join(pieces)


def estimate(messages: Iterable[Message], estimator: Callable[[str], int]) -> int:
    """Guess the tokens of a transcript."""
    return sum(estimator(message_chars(message)) for message in messages)


def merge(pieces: Sequence[str]) -> str:
    """Join the parts of a chain; an overlap of 12 characters or more is said once."""
    text = ""
    for piece in pieces:
        sizes = range(min(OVERLAP_MAX, len(text), len(piece)), OVERLAP_MIN - 1, -1)
        text += piece[next((size for size in sizes if text.endswith(piece[:size])), 0) :]
    return text
