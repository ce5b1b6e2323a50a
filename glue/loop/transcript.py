"""Functions that repair transcripts, find calls without a result, estimate tokens, join texts.

Providers refuse a transcript that breaks their rules: each call needs exactly one result, directly
after its reply. `repair_transcript` returns a valid transcript for any list of messages:

    before                                     after
    user "Weather?"                            user "Weather?"
    assistant calls a, b                       assistant calls a, b
    user "Quick!"                              result of a
    result of a                                result of b: "no result was recorded for this call"
    result of z (no such call)                 user "Quick!"
    assistant "" (nothing visible)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from glue.checks import show
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
)

CONTINUE = "Continue from where you left off."
ASKED = "asked"  # in the memo of a prompt: the id of its run
NO_RESULT = "no result was recorded for this call"
OURS = frozenset(("continue", "repair", "nudge", "wrap_up"))
OVERLAP_MIN, OVERLAP_MAX = 12, 400


class History:
    """A repaired transcript that grows: for each request, only the new messages are repaired.

    A session uses one History for all its prompts. `align` finds the messages that have not changed
    since the last prompt.
    """

    __slots__ = ("_last", "_marks", "_seen", "_sent", "_transcript")

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._sent: list[Message] = []
        self._marks = [(0, 0)]  # the lengths of `_seen` and `_sent` at each call of `view`
        self._transcript: list[Message] = []  # of the last run
        # The messages at the start of the last run, if that run did not change them.
        self._last: Messages | None = None

    def begin(self, messages: Sequence[Message], *, resumed: bool) -> list[Message]:
        """Return `messages` as a list for the run to change. Reuse the last run's list if possible.

        If the transcript has only grown since the last run began, and the new messages are those of
        that run, return the list of that run. Otherwise return a new list, as for a resumed run,
        which may change earlier messages. `align` is called with the list.
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
        """Discard stored repaired messages, beginning with the first message that has changed.

        A message changes if it is dropped, excluded, amended or compacted. The first `low`
        messages are known to be unchanged.
        """
        high = min(len(self._seen), len(messages))
        while low < high:  # compares slices, which is done in C and by identity first
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
        # New lists, because earlier views still use the old lists.
        self._seen, self._sent = self._seen[:seen], self._sent[:sent]

    def view(self, messages: list[Message]) -> Messages:
        """Repair the messages that are new since the last call, and return all repaired messages.

        `messages` is the list that was passed to `align`, perhaps with more messages at its end.
        """
        if len(self._seen) < len(messages):
            new = messages[len(self._seen) :]
            self._seen += new
            self._sent += repair_transcript(new)
            self._marks.append((len(self._seen), len(self._sent)))
        return Messages(self._sent)


def check_messages(what: str, given: Any) -> list[Message]:
    """Return `given` as a list of messages. Raise TypeError if a value is not a message.

    `what` names the argument in the error message.
    """
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    messages = list(given) if listed else [given]
    for message in messages:
        if not listed or not isinstance(message, Message):
            raise TypeError(
                f"{what} must be a list of glue messages, not {show(message)}; "
                "a message is made by glue.user('...')"
            )
    return messages


def repair_transcript(messages: Iterable[Message]) -> list[Message]:
    """Return `messages` as a valid transcript: each call has one result, right after its reply.

    Results without a call, incomplete calls, empty messages and excluded messages are left out.
    """
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
    """Return a result for each call, in order: from `results`, or an error result with `reason`."""
    left = list(results)
    answers: list[ToolMessage] = []
    for call in calls:
        found = next((result for result in left if result.call_id == call.id), None)
        if found is None:
            found = ToolMessage(
                call_id=call.id, name=call.name, content=(Text(text=reason),), is_error=True
            )
        else:
            left.remove(found)
        answers.append(found)
    return answers


def sendable(message: AssistantMessage) -> AssistantMessage | None:
    """Return the reply without incomplete calls, or None if only thinking or blank text is left."""
    if any(not call.complete for call in message.calls):
        whole = tuple(
            part for part in message.content if not isinstance(part, ToolCall) or part.complete
        )
        message = replace(message, content=whole)
    return message if has_content(message.content) else None


def has_content(content: Iterable[Part]) -> bool:
    """Return whether the content has a part that is neither blank text nor thinking."""
    return any(
        part.text.strip() if isinstance(part, Text) else not isinstance(part, Thinking)
        for part in content
    )


def unanswered(messages: Sequence[Message], reason: str) -> list[ToolMessage]:
    """Return an error result with `reason` for each call of the last reply that has no result.

    The list is empty if a message other than a tool result follows that reply.
    """
    return answer_calls(open_calls(messages), (), reason)


def last_reply(messages: Sequence[Message]) -> AssistantMessage | None:
    """Return the last reply in `messages` that is not marked as `excluded`, or None."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and not message.excluded:
            return message
    return None


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last reply that have no result.

    The list is empty if a message other than a tool result follows that reply.
    """
    answered = set()
    for message in reversed(messages):
        if message.excluded:
            continue
        if isinstance(message, AssistantMessage):
            return [call for call in message.calls if call.id not in answered]
        if not isinstance(message, ToolMessage):
            return []
        answered.add(message.call_id)
    return []


def last_results(messages: Sequence[Message]) -> list[ToolMessage]:
    """Return the tool results at the end of a transcript, in order."""
    found: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        found.append(message)
    return found[::-1]


def next_result(
    messages: Sequence[Message], reply: AssistantMessage, call_id: str
) -> ToolMessage | None:
    """Return the first result whose call comes after the call `call_id` in `reply`, or None.

    Only results at the end of the transcript `messages` count.
    """
    ids = [call.id for call in reply.calls]
    after = ids[ids.index(call_id) + 1 :] if call_id in ids else []
    return next((each for each in last_results(messages) if each.call_id in after), None)


def run_start(messages: Sequence[Message]) -> int:
    """Return the index of the message with which the last run begins.

    This is the last prompt of the caller, or the summary that replaced it. If the transcript has
    neither, return 0.
    """
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(message := messages[index], UserMessage) and message.origin in (
            "user",
            "summary",
        ):
            return index
    return 0


def chain_texts(messages: Sequence[Message]) -> list[str]:
    """Return the texts of the last reply and of the replies that it continues, in order."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            texts.insert(0, visible_text(message))
        elif not isinstance(message, UserMessage) or message.origin not in ("continue", "repair"):
            break
    return texts


def visible_text(message: AssistantMessage) -> str:
    """Return the text of a reply, or "" if the loop put a placeholder into an empty reply."""
    return "" if message.meta and message.meta.get("placeholder") else message.text


def message_chars(message: Message) -> str:
    """Return the text from which the tokens of a message are estimated.

    This is the text of texts and thinking, and the names and arguments of calls.
    """
    pieces: list[str] = []
    for part in message.content:
        if isinstance(part, (Text, Thinking)):
            pieces.append(part.text)
        elif isinstance(part, ToolCall):
            pieces.append(part.name + part.arguments)
    return "".join(pieces)


def estimate(messages: Iterable[Message], estimator: Callable[[str], int]) -> int:
    """Return the estimated number of tokens of a transcript."""
    return sum(estimator(message_chars(message)) for message in messages)


def merge(pieces: Sequence[str]) -> str:
    """Join the pieces of a continued reply, without text that a piece repeats at its start.

    Text is repeated if a piece begins with the end of the text before it, and if the repetition has
    OVERLAP_MIN to OVERLAP_MAX characters.
    """
    text = ""
    for piece in pieces:
        sizes = range(min(OVERLAP_MAX, len(text), len(piece)), OVERLAP_MIN - 1, -1)
        text += piece[next((size for size in sizes if text.endswith(piece[:size])), 0) :]
    return text
