"""Rows of a map: their inputs, prompts, results and transcripts, and the SQLite file of a map."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from glue.codec import Json, from_json, to_json, to_plain
from glue.durable.ledger import NOTHING
from glue.errors import ConfigError, NewerSchema, ProviderError, SessionBusy, StoreError
from glue.function.validation import ValidationError
from glue.limits import Outcome, StopReason
from glue.loop.position import is_resumable
from glue.loop.transcript import last_reply
from glue.messages import (
    AssistantMessage,
    Message,
    Part,
    ToolMessage,
    Usage,
    message_to_json,
    messages_from_json,
    new_id,
    user,
)
from glue.output import Output
from glue.pending import Decisions, is_paused, pending_calls
from glue.result import RunResult
from glue.settings import Prompt
from glue.stores.locks import hold
from glue.stores.sqlite import ExclusiveStore
from glue.tasks import finish_in_thread

if TYPE_CHECKING:
    from sqlite3 import Connection

INVALID = "invalid"  # the outcome of a row that could not be read
LOST = "lost"  # the outcome of a row whose process was killed; never returned to the caller
# The outcomes of rows that `resume` runs again. All other rows have a final answer.
OPEN = frozenset((INVALID, LOST, Outcome.FAILED, Outcome.CANCELLED, Outcome.BUDGET, Outcome.PAUSED))

Item: TypeAlias = "str | Mapping[str, Json] | Part | Message | InputLine"
Items: TypeAlias = "Iterable[Item] | AsyncIterable[Item]"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """One input line of a map: its number, counted from 1, and its unparsed text."""

    number: int
    text: str

    @property
    def digest(self) -> str:
        """A hash of the text, to detect that the input of a map was changed."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """The result of one input of a map: outcome, text or output, usage, and error."""

    number: int  # of the input line, counted from 1
    outcome: str  # of the run, or "invalid" if the input could not be read
    id: Json = None  # the field "id" of the input, if it has one
    text: str = field(default="", metadata={"always": True})
    output: Json = None  # set if the agent has an output type
    usage: Usage = NOTHING
    turns: int = 0
    requests: int = 0
    seconds: float = 0.0
    tries: int = 1
    session: str = ""
    error: str = ""
    notice: str = ""  # that of the result: why the answer is cut, or that no model wrote it
    kind: str = ""  # of the error, such as "rate_limited" or "config"
    # Requests that were under way when a process was killed. The provider may have charged them.
    lost: int = 0

    @property
    def complete(self) -> bool:
        return self.outcome in (Outcome.DONE, Outcome.WRAPPED_UP)

    @property
    def cost(self) -> float | None:
        """The cost in USD, or None if the price of a reply is unknown."""
        return self.usage.cost

    def to_json(self) -> dict[str, Json]:
        """Return the row as a JSON object. Fields with their default values are left out.

        The field `text` is never left out. The object also has the cost, unless the input could not
        be read.
        """
        line: dict[str, Json] = to_json(self)
        return line if self.outcome == INVALID else {**line, "cost": self.cost}

    @classmethod
    def from_json(cls, line: Mapping[str, Json]) -> MapRow:
        return from_json(cls, {name: value for name, value in line.items() if name != "cost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A prompt to run as one row of a map, or alone; engines set fields such as its state.

    >>> Row(id="order-17", prompt="Handle order 17", map="orders").number
    1
    """

    id: str  # of the row and of its session
    prompt: Prompt
    map: str = ""  # rows of the same map share a budget
    number: int = 1
    key: Json = None  # copied to the result as `id`
    # The engine that distributes the rows sets the other fields.
    retries: int = 1  # further tries after a transient failure of the provider
    decisions: Decisions = field(default_factory=dict)  # on pending calls
    trace: Mapping[str, Json] = field(default_factory=dict)  # in which the row is a span
    usd_budget: float | None = None  # of the map
    token_budget: float | None = None
    state: str = ""  # in the tables of a queue
    claim: str = ""  # of the worker that runs the row
    is_new: bool = False  # there is no transcript of the row
    is_lost: bool = False  # the process that ran the row died
    lost: int = 0  # requests that were under way when a process died
    result: MapRow | None = None  # of the last try
    run: Json = None  # the result of a single run

    @property
    def tries(self) -> int:
        """The number of times that the row was tried before."""
        return self.result.tries if self.result is not None else 0

    def ended(self, outcome: str, **values: Any) -> MapRow:
        """Return a new result for this row, with the given outcome and the fields in `values`."""
        known = {"number": self.number, "id": self.key, "session": self.id, "lost": self.lost}
        return MapRow(outcome=outcome, **{**known, "tries": self.tries, **values})


def input_lines(path: str) -> Iterator[InputLine]:
    """Yield the lines of a file, or of stdin if the path is "-", without blank lines.

    Lines are read when needed. A blank line is counted, too.
    """
    try:
        with open(sys.stdin.fileno() if path == "-" else path, "rb", closefd=path != "-") as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8", "surrogateescape")
                if text.strip():  # a blank line is skipped, but has a number
                    yield InputLine(number=number, text=text.strip("\r\n"))
    except OSError as error:
        shown = "stdin" if path == "-" else path
        raise ConfigError(f"{shown} cannot be read: {error.strerror}") from None


def numbered(number: int, item: Item) -> InputLine:
    """Return an item of `glue.map` as an input line. An InputLine is returned unchanged."""
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
    """A reader that makes a prompt of an input line.

    >>> line = InputLine(number=1, text='{"id": 7, "city": "Oslo"}')
    >>> id, (message,) = Reader(template="Weather in {city}?").read(line)
    >>> id, message.text
    (7, 'Weather in Oslo?')
    """

    template: str = ""  # the prompt, with {name} for a field of the row; {{ and }} are braces
    # Reads an attachment by its file name. It raises ValueError or ConfigError if that fails.
    attach: Callable[[str], Part] | None = None

    def read(self, line: InputLine) -> tuple[Json, tuple[Message, ...]]:
        """Return the id of an input line, or None if it has no id, and its prompt.

        Raise ValueError if the line is invalid or an attachment cannot be read.
        """
        row = parse_row(line.text)
        if "messages" in row and not self.template:
            if row.get("attachments"):
                raise ValueError("'attachments' has no effect beside 'messages'; leave out one")
            return row.get("id"), _messages(row["messages"])
        text = fill(self.template, row) if self.template else _prompt(row)
        names = row.get("attachments") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("'attachments' must be a list of file names")
        if names and self.attach is None:
            raise ValueError("only the command line reads 'attachments'; in Python, use 'messages'")
        try:
            parts = [self.attach(name) for name in names if self.attach is not None]
        except ConfigError as error:
            raise ValueError(f"attachment {str(error).lstrip('@')}") from None
        if not text.strip() and not parts:
            raise ValueError("the prompt is empty")
        return row.get("id"), (user(*([text] if text.strip() else []), *parts),)


def parse_row(text: str) -> dict[str, Json]:
    """Return the fields of a line of JSON. A string is returned as the field "prompt".

    Raise ValueError if the line is not valid JSON, or neither an object nor a string.
    """
    try:
        row = json.loads(text.encode("utf-8", "surrogateescape").decode())
    except UnicodeDecodeError:
        raise ValueError("not valid UTF-8") from None
    except (ValueError, RecursionError) as error:
        where = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"not valid JSON: {getattr(error, 'msg', error)}{where}") from None
    if isinstance(row, str):
        return {"prompt": row}
    if not isinstance(row, dict):
        raise ValueError(f"a row must be a JSON object or a string, not {type(row).__name__}")
    return row


def _prompt(row: Mapping[str, Json]) -> str:
    prompt = row.get("prompt")
    if not isinstance(prompt, str):
        fault = "no 'prompt'"
        if prompt is not None:
            fault = f"'prompt' must be a string, not {type(prompt).__name__}"
        raise ValueError(
            f"{fault}; the row has: {_names(row)}; add a 'prompt', or build it from "
            "other fields with a template (--template, template=)"
        )
    return prompt


def _names(row: Mapping[str, Json]) -> str:
    return ", ".join(sorted(row)) or "nothing"


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
    """Replace each {name} in a template by the field of the row: strings as text, others as JSON.

    Raise ValueError if the row does not have the field.

    >>> fill("Sum up {text}, in {words} words", {"text": "the news", "words": 5})
    'Sum up the news, in 5 words'
    """

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name not in row:
            raise ValueError(f"the template needs {name!r}; the row has: {_names(row)}")
        value = row[name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _FIELD.sub(put, template)


def invalid_row(line: InputLine, error: ValueError) -> MapRow:
    """Return the MapRow of an invalid line: outcome "invalid", the error, the id if readable."""
    row: dict[str, Json] = {}
    with contextlib.suppress(ValueError):
        row = parse_row(line.text)
    reason = f"line {line.number}: {error}"
    return MapRow(number=line.number, outcome=INVALID, id=row.get("id"), error=reason)


def error_kind(error: BaseException | None) -> str:
    """Return the kind of a ProviderError, "config" for ConfigError and TypeError, else ""."""
    if isinstance(error, ProviderError):
        return error.kind
    return "config" if isinstance(error, (ConfigError, TypeError)) else ""


def row_from_transcript(
    row: Row, session: str, messages: Sequence[Message], output: Any = None
) -> MapRow:
    """Return the result of a row, computed from the transcript of its session.

    The transcript of a run that was killed may be complete, although its result was not stored.
    """
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    outcome = outcome_of(messages)
    text, value = replies[-1].text if replies else "", None
    if output is not None and outcome is Outcome.DONE:
        calls = replies[-1].calls
        if not text and calls:
            text = calls[-1].arguments  # of the tool that takes the answer
        try:
            value = to_plain(Output(output).parse(text))
        except ValidationError:
            outcome = Outcome.FAILED
    return row.ended(
        outcome.value,
        text=text,
        output=value,
        usage=spent(messages),
        requests=len(replies),
        session=session,
        tries=row.tries or 1,
        error=waiting_text(messages) if outcome is Outcome.PAUSED else "",
    )


def waiting_text(messages: Sequence[Message]) -> str:
    """Return the text "waits for ..." with the summaries of the pending calls of a row."""
    return f"waits for {', '.join(call.summary for call in pending_calls(messages))}"


def row_result(row: MapRow, messages: Sequence[Message]) -> RunResult[Any]:
    """Return the RunResult of a run, computed from its row and the transcript of its session."""
    reply = last_reply(messages)
    return RunResult(
        messages=messages,
        new_messages=tuple(messages),
        text=row.text,
        outcome=Outcome(row.outcome),
        stop_reason=reply.stop_reason if reply is not None else None,
        usage=row.usage,
        notice=row.notice,
        error=ConfigError(row.error) if row.error else None,
        turns=row.turns,
        requests=row.requests,
        seconds=row.seconds,
        output=row.output,
    )


def outcome_of(messages: Sequence[Message]) -> Outcome:
    """Return the outcome of the last run of a transcript; `cancelled` if its process was killed."""
    if is_paused(messages):
        return Outcome.PAUSED
    reply = last_reply(messages)
    reason = reply.stop_reason if reply is not None else StopReason.ERROR
    tagged = next((outcome for outcome in Outcome if outcome.tag is reason), None)
    if tagged is not None:
        return tagged
    return Outcome.CANCELLED if is_resumable(messages) else Outcome.DONE


def spent(messages: Iterable[Message]) -> Usage:
    """Return the total usage of a transcript: replies, failed attempts and sub-agents."""
    total = NOTHING
    for message in messages:
        meta = message.meta or {}
        found = [message.usage] if isinstance(message, AssistantMessage) else []
        if isinstance(message, AssistantMessage):
            found += [_usage(attempt.get("usage")) for attempt in meta.get("attempts", ())]
        elif isinstance(message, ToolMessage):
            found.append(_usage(meta.get("usage")))
        for usage in found:
            total += usage or NOTHING
    return total


def _usage(plain: Json) -> Usage | None:
    return from_json(Usage, plain) if isinstance(plain, dict) else None


# The state of a map -------------------------------------------------------------------------------

VERSION = 1
_MOVE_LOG = "PRAGMA wal_checkpoint(PASSIVE)"  # does not wait for other connections


class MapState:
    """The SQLite file of a map: the results of its rows, and their sessions.

    Results and sessions share one connection, which is used in the event loop. With two, each
    would wait for the locks of the other, about 100 times longer than a write takes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.id = ""  # of the map; it stays the same when the map is resumed
        self.store = ExclusiveStore(self.path)

    @contextlib.contextmanager
    def opened(self, *, resume: bool, overwrite: bool = False) -> Iterator[None]:
        """Open or create the map's file, and lock it for this process, during a `with` block.

        If `overwrite` is set, delete an existing file first. Raise ConfigError if the file exists,
        unless `resume` or `overwrite` is set.
        """
        try:
            lock = hold(self.path, "map")
        except SessionBusy:
            raise SessionBusy(
                f"{self.path} is in use by another map; wait for it or use another output"
            ) from None
        with contextlib.closing(lock), contextlib.closing(self.store.database) as database:
            if self.path.exists() and not resume and not overwrite:
                raise ConfigError(
                    f"{self.path} exists already;"
                    " resume=True continues it, overwrite=True starts again"
                )
            if overwrite:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            database.run(self._begin)
            database.open().execute("PRAGMA wal_autocheckpoint = 0")
            yield

    def _begin(self, connection: Connection) -> None:
        script = Path(__file__).with_name("map.sql").read_text()
        for statement in filter(str.strip, script.split(";")):
            connection.execute(statement)
        connection.execute(
            "INSERT OR IGNORE INTO map VALUES ('version', ?), ('id', ?)", (str(VERSION), new_id())
        )
        found = dict(connection.execute("SELECT name, value FROM map").fetchall())
        self.id = found["id"]
        if int(found["version"]) > VERSION:
            raise NewerSchema(
                f"{self.path} was written with schema {found['version']} of map,"
                f" but this glue supports only {VERSION}: upgrade glue-agents to resume it"
            )

    def _one(self, sql: str, *values: object) -> Any:
        return self.store.database.read(
            lambda connection: connection.execute(sql, values).fetchone()
        )

    def put(self, rows: Iterable[tuple[InputLine, MapRow]]) -> None:
        """Store the results of rows, all in one transaction."""
        values = [(line.number, line.digest, json.dumps(row.to_json())) for line, row in rows]
        sql = "INSERT OR REPLACE INTO map_rows VALUES (?, ?, ?)"
        self.store.database.run(lambda connection: connection.executemany(sql, values))

    def get(self, number: int) -> tuple[str, MapRow] | None:
        """Return a tuple of a row's input digest and result, or None if no result is stored."""
        row = self._one("SELECT digest, line FROM map_rows WHERE number = ?", number)
        return None if row is None else (row[0], MapRow.from_json(json.loads(row[1])))

    def finished(self, line: InputLine) -> MapRow | None:
        """Return the stored final result of an input line, or None if its row has to be run.

        Raise ConfigError if the input of the row has changed.
        """
        digest, row = self.get(line.number) or ("", None)
        if row is None or row.outcome in OPEN:
            return None
        if digest != line.digest:
            raise ConfigError(
                f"input line {line.number} has changed since it was run;"
                " use another output, or start from the beginning (--overwrite on the command line)"
            )
        return row

    def spent(self) -> tuple[Usage, int]:
        """Return the total usage and the number of requests of all finished rows.

        Those of the other rows are counted when they are run again.
        """
        names = ("usage.input", "usage.output", "usage.cost", "requests")
        sums = ", ".join(f"total(json_extract(line, '$.{name}'))" for name in names)
        others = ", ".join("?" * len(OPEN))
        where = f"json_extract(line, '$.outcome') NOT IN ({others})"
        found = self._one(f"SELECT {sums} FROM map_rows WHERE {where}", *OPEN)
        given, said, cost, requests = found
        return Usage(input=int(given), output=int(said), cost=cost), int(requests)

    async def checkpoint(self) -> None:
        """Move the write-ahead log into the database file, so that SQLite can reuse the log.

        A thread with a connection of its own moves most of the log and waits for the disk, while
        rows write on. SQLite reuses the log only if all of it was moved, so the event loop moves
        what rows have written meanwhile. Without this second step the log only grows: 90 KB a row.
        """
        await finish_in_thread(self._move_log)
        self.store.database.read(lambda connection: connection.execute(_MOVE_LOG).fetchone())

    def _move_log(self) -> None:
        with self.store.connect() as connection:
            connection.execute(_MOVE_LOG)
