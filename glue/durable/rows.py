"""Rows of a map: a line of input becomes a prompt, a run's result becomes a line of output."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from glue.codec import from_json, to_json, to_plain
from glue.errors import ConfigError
from glue.events import RunResult
from glue.limits import Outcome, StopReason
from glue.messages import (
    AssistantMessage,
    Json,
    Message,
    Part,
    Usage,
    message_to_json,
    messages_from_json,
    user,
)

NOTHING = Usage(cost=0.0)
INVALID = "invalid"  # the outcome of a row that could not be read
# What `resume` takes up again: the rest is an answer, if not always the one that was hoped for.
OPEN = frozenset((INVALID, Outcome.FAILED, Outcome.CANCELLED, Outcome.BUDGET))

Item: TypeAlias = "str | Mapping[str, Json] | Part | Message | InputLine"
Items: TypeAlias = "Iterable[Item] | AsyncIterable[Item]"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """One input: its number, counted from 1, and its text as it was read."""

    number: int
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """What became of one input."""

    number: int  # counted from 1: the line of the input
    outcome: str  # of the run, or "invalid" where the input could not be read
    id: Json = None  # the input's own, where it has one
    text: str = field(default="", metadata={"always": True})
    output: Json = None  # where the agent has an output type
    usage: Usage = NOTHING
    turns: int = 0
    requests: int = 0
    seconds: float = 0.0
    tries: int = 1
    session: str = ""
    error: str = ""

    @property
    def complete(self) -> bool:
        return self.outcome in (Outcome.DONE, Outcome.WRAPPED_UP)

    @property
    def cost(self) -> float | None:
        """USD, or None where some reply has no known price."""
        return self.usage.cost

    def to_json(self) -> dict[str, Json]:
        """Give the line of output; what is empty is left out."""
        line: dict[str, Json] = to_json(self)
        return line if self.outcome == INVALID else {**line, "cost": self.cost}

    @classmethod
    def from_json(cls, line: Mapping[str, Json]) -> MapRow:
        return from_json(cls, {name: value for name, value in line.items() if name != "cost"})


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Read lines one by one; - is stdin."""
    import sys

    try:
        with open(sys.stdin.fileno() if path == "-" else path, "rb", closefd=path != "-") as file:
            for line in file:
                yield line.decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class JSONLines:
    """The lines of a file as inputs, read when they are due."""

    path: str

    def __iter__(self) -> Iterator[InputLine]:
        for number, text in enumerate(read_lines(self.path), 1):
            if text.strip():  # a blank line counts and is passed over
                yield InputLine(number=number, text=text.strip("\r\n"))


def numbered(number: int, item: Item) -> InputLine:
    """Number an input of a program; the lines of a file have their numbers."""
    return item if isinstance(item, InputLine) else InputLine(number=number, text=json.dumps(_encoded(item)))


def _encoded(item: Any) -> Json:
    if isinstance(item, (str, Mapping)):
        return item if isinstance(item, str) else dict(item)
    message = item if hasattr(item, "content") else user(item)
    return {"messages": [message_to_json(message)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How a line becomes a prompt."""

    template: str = ""  # with {field} for what each row fills in; {{ and }} are braces
    attach: Callable[[str], Part] | None = None  # reads an attachment; ValueError or ConfigError where it may not be

    def read(self, line: InputLine) -> tuple[Json, tuple[Message, ...]]:
        """Give the row's own id and its prompt; ValueError says what is wrong with the line."""
        row = _parsed(line.text)
        if "messages" in row and not self.template:
            return row.get("id"), _messages(row["messages"])
        text = fill(self.template, row) if self.template else _prompt(row)
        parts = [self._attachment(name) for name in _attachments(row)]
        if not text.strip() and not parts:
            raise ValueError("the prompt is empty")
        return row.get("id"), (user(*([text] if text.strip() else []), *parts),)

    def _attachment(self, name: str) -> Part:
        if self.attach is None:
            raise ValueError("attachments cannot be read here")
        try:
            return self.attach(name)
        except ConfigError as error:
            raise ValueError(f"attachment {str(error).lstrip('@')}") from None


def _parsed(text: str) -> dict[str, Json]:
    try:
        row = json.loads(text.encode("utf-8", "surrogateescape").decode())
    except UnicodeDecodeError:
        raise ValueError("no UTF-8") from None
    except (ValueError, RecursionError) as error:
        where = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"no JSON: {getattr(error, 'msg', error)}{where}") from None
    if isinstance(row, str):
        return {"prompt": row}
    if not isinstance(row, dict):
        raise ValueError(f"a row is an object or a text, not {type(row).__name__}")
    return row


def _prompt(row: Mapping[str, Json]) -> str:
    prompt = row.get("prompt")
    if not isinstance(prompt, str):
        there = ", ".join(sorted(row)) or "nothing"
        what = "no 'prompt'" if prompt is None else f"'prompt' is no text but {type(prompt).__name__}"
        raise ValueError(f"{what}; the row has: {there}. A template says how to make one of other fields")
    return prompt


def _messages(value: Json) -> tuple[Message, ...]:
    from glue.errors import StoreError

    try:
        messages = messages_from_json(value)
    except (StoreError, TypeError) as error:
        raise ValueError(f"'messages': {error}") from None
    if not messages:
        raise ValueError("'messages' is empty")
    return messages


def _attachments(row: Mapping[str, Json]) -> list[str]:
    names = row.get("attachments") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("'attachments' is no list of file names")
    return names


_FIELD = re.compile(r"\{\{|\}\}|\{([\w.-]+)\}")


def fill(template: str, row: Mapping[str, Json]) -> str:
    """Put the fields of a row into a template; a text as it is, anything else as JSON."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name not in row:
            raise ValueError(f"the template needs {name!r}; the row has: {', '.join(sorted(row)) or 'nothing'}")
        value = row[name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _FIELD.sub(put, template)


def finished_row(
    line: InputLine, id: Json, result: RunResult[Any], *, earlier: Usage, tries: int, session: str
) -> MapRow:
    """Make the row of a run; `earlier` is what was spent on it before."""
    return MapRow(
        number=line.number,
        id=id,
        outcome=result.outcome.value,
        text=result.text,
        output=to_plain(result.output),
        usage=earlier + result.usage,
        turns=result.turns,
        requests=result.requests,
        seconds=round(result.seconds, 3),
        tries=tries,
        session=session,
        error=" ".join(str(result.error).split()) if result.error is not None else "",
    )


def row_from_transcript(
    line: InputLine, id: Json, messages: Iterable[Message], session: str, output: Any = None
) -> MapRow:
    """Make the row of a run that had ended when its process did, before it could say so."""
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    reason = replies[-1].stop_reason if replies else StopReason.ERROR
    outcome = next((outcome for outcome in Outcome if outcome.tag is reason), Outcome.DONE)
    text, value = replies[-1].text if replies else "", None
    if output is not None and outcome is Outcome.DONE:
        from glue.function.validation import ValidationError
        from glue.output import Output

        try:
            value = to_plain(Output(output).parse(text))
        except ValidationError:
            outcome = Outcome.FAILED
    return MapRow(
        number=line.number,
        id=id,
        outcome=outcome.value,
        text=text,
        output=value,
        usage=spent(replies),
        requests=len(replies),
        session=session,
    )


def spent(messages: Iterable[Message]) -> Usage:
    """Add up what the replies of a transcript cost."""
    total = Usage(cost=0.0)
    for message in messages:
        if isinstance(message, AssistantMessage) and message.usage is not None:
            total += message.usage
    return total
