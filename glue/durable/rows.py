"""Rows of a map: a line of input becomes a prompt, a result a line of output; a SQLite file keeps the results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from glue.codec import Json, from_json, to_json, to_plain
from glue.errors import ConfigError, NewerSchema, SessionBusy, StoreError
from glue.events import RunResult
from glue.limits import Outcome, StopReason
from glue.messages import AssistantMessage, Message, Part, Usage, message_to_json, messages_from_json, new_id, user
from glue.stores.sqlite import ExclusiveStore, hold

if TYPE_CHECKING:
    from sqlite3 import Connection

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


def input_lines(path: str) -> Iterator[InputLine]:
    """Give the lines of a file as inputs, read when they are due; - is stdin."""
    try:
        with open(sys.stdin.fileno() if path == "-" else path, "rb", closefd=path != "-") as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8", "surrogateescape")
                if text.strip():  # a blank line counts and is passed over
                    yield InputLine(number=number, text=text.strip("\r\n"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def numbered(number: int, item: Item) -> InputLine:
    """Number an input of a program; the lines of a file have their numbers."""
    if isinstance(item, InputLine):
        return item
    data: Json = item
    if isinstance(item, Mapping):
        data = dict(item)
    elif not isinstance(item, str):
        message = cast(Message, item) if hasattr(item, "content") else user(item)
        data = {"messages": [message_to_json(message)]}
    return InputLine(number=number, text=json.dumps(data))


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
        names = row.get("attachments") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("'attachments' is no list of file names")
        if names and self.attach is None:
            raise ValueError("attachments cannot be read here")
        try:
            parts = [self.attach(name) for name in names if self.attach is not None]
        except ConfigError as error:
            raise ValueError(f"attachment {str(error).lstrip('@')}") from None
        if not text.strip() and not parts:
            raise ValueError("the prompt is empty")
        return row.get("id"), (user(*([text] if text.strip() else []), *parts),)


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
    try:
        messages = messages_from_json(value)
    except (StoreError, TypeError) as error:
        raise ValueError(f"'messages': {error}") from None
    if not messages:
        raise ValueError("'messages' is empty")
    return messages


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
        text = text or "".join(call.arguments for call in replies[-1].calls[-1:])  # handed over by a tool
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


# The state of a map -----------------------------------------------------------------------------------

VERSION = 1


class MapState:
    """The rows that have ended, for one map at a time, through the connection of its sessions.

    One connection, in the event loop: two would wait for each other's locks, a hundred times longer than a write takes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.id = ""  # of the map, from its first beginning on
        self.store = ExclusiveStore(self.path)

    @contextlib.contextmanager
    def opened(self, *, resume: bool) -> Iterator[None]:
        """Have the state for this process alone, new or as it was left."""
        if resume and not self.path.exists():
            raise ConfigError(f"there is nothing to resume: {self.path} does not exist")
        try:
            lock = hold(self.path, "map")
        except SessionBusy:
            raise SessionBusy(f"{self.path} is in use by another map; one at a time writes an output") from None
        with contextlib.closing(lock), contextlib.closing(self.store.database) as database:
            if not resume:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            database.run(self._begin)
            database.open().execute("PRAGMA wal_autocheckpoint = 0")
            yield

    def _begin(self, connection: Connection) -> None:
        for statement in filter(str.strip, Path(__file__).with_name("map.sql").read_text().split(";")):
            connection.execute(statement)
        connection.execute("INSERT OR IGNORE INTO map VALUES ('version', ?), ('id', ?)", (str(VERSION), new_id()))
        found = dict(connection.execute("SELECT name, value FROM map").fetchall())
        self.id = found["id"]
        if int(found["version"]) > VERSION:
            raise NewerSchema(
                f"{self.path} was written with schema {found['version']} of map, this version knows {VERSION}:"
                " upgrade glue-agents to go on with it"
            )

    def _one(self, sql: str, *values: object) -> Any:
        return self.store.database.read(lambda connection: connection.execute(sql, values).fetchone())

    def put(self, rows: Iterable[tuple[InputLine, MapRow]]) -> None:
        """Keep results; all of them or none."""
        values = [
            (line.number, line.digest, row.outcome, row.cost, row.usage.total, json.dumps(row.to_json()))
            for line, row in rows
        ]
        sql = "INSERT OR REPLACE INTO map_rows VALUES (?, ?, ?, ?, ?, ?)"
        self.store.database.run(lambda connection: connection.executemany(sql, values))

    def get(self, number: int) -> tuple[str, MapRow] | None:
        """Give the digest and the result of a row, or None where it has none."""
        row = self._one("SELECT digest, line FROM map_rows WHERE number = ?", number)
        return None if row is None else (row[0], MapRow.from_json(json.loads(row[1])))

    def finished(self, line: InputLine) -> MapRow | None:
        """Give the result of a row that is not to be run again."""
        digest, row = self.get(line.number) or ("", None)
        if row is None or row.outcome in OPEN:
            return None
        if digest != line.digest:
            raise ConfigError(
                f"line {line.number} is another one than when it was run; give another output, or begin again"
            )
        return row

    def spent(self) -> tuple[float, int]:
        """Add up the dollars and tokens of the rows that stand; the others count when they are taken up."""
        marks = ", ".join("?" * len(OPEN))
        sql = f"SELECT total(cost), coalesce(sum(tokens), 0) FROM map_rows WHERE outcome NOT IN ({marks})"
        cost, tokens = self._one(sql, *OPEN)
        return float(cost), int(tokens)

    def checkpoint(self) -> None:
        """Move what was written into the file, in a thread: it waits for the disk, and keeps nobody from writing."""
        with self.store.connect() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
