"""Cassettes: requests and replies of a model, recorded to a file and replayed without the model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from glue.codec import from_json, to_json, to_plain
from glue.errors import PROVIDER_ERROR_FIELDS, ErrorKind, ProviderError, ReplayError, StoreError
from glue.messages import AssistantMessage, Json, Request, message_from_json, messages_to_json
from glue.overrides import provider_names
from glue.provider import (
    Attempt,
    Done,
    Notice,
    Provider,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Wrapper,
    opened,
)
from glue.secrets import mask_secrets
from glue.text import count

SCHEMA = 1
_SHARED = 30  # characters before the difference of two texts that a message shows

_EVENTS: dict[str, type] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "tool_call": ToolCallDelta,
    "attempt": Attempt,
    "notice": Notice,
    "done": Done,
}
_NAMES = {cls: name for name, cls in _EVENTS.items()}


class Cassette:
    """A recording of requests to a model and their streamed replies, in a file or in memory.

        cassette = Cassette("weather.jsonl")
        agent = Agent(Recorder(glue.providers.new("anthropic"), cassette))
        ...
        agent = Agent(Replay("weather.jsonl"))

    A request with its reply is an exchange: one line of JSON, written when the reply ends, with
    secrets masked. Exchanges are numbered in the order in which their requests were sent. Several
    recorders may share a cassette. The first recorded exchange replaces the file of an earlier
    recording.

    Args:
        path: the file; if None, the exchanges are kept in memory.
        exchanges: the recorded exchanges, to be replayed.
        provider: the name of the recorded provider.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        exchanges: Iterable[Mapping[str, Json]] = (),
        *,
        provider: str = "",
    ) -> None:
        self.path = None if path is None else Path(path)
        self.exchanges = list(exchanges)
        self.provider = provider
        self._begun = 0

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cassette:
        """Read a cassette from a file. Raise ReplayError if the file is not a cassette.

        Each exchange gets a field "line" with the number of its line.
        """
        number = 0
        try:
            rows: list[dict[str, Json]] = []
            for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
                if line.strip():
                    rows.append({**json.loads(line), "line": number})
                    _check_row(rows[-1], is_header=len(rows) == 1)
            if not rows:
                raise ValueError("the file is empty")
        except OSError as error:
            raise ReplayError(f"the cassette {path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, RecursionError) as error:
            where = f"line {number}: " if number else ""
            raise ReplayError(f"{path} is not a cassette: {where}{error}") from error
        exchanges = [row for row in rows[1:] if row["type"] == "exchange"]
        exchanges.sort(key=lambda exchange: int(exchange["number"]))
        return cls(path, exchanges, provider=str(rows[0]["provider"]))

    def begin(self, provider: str) -> int:
        """Count a new exchange and return its number. The first call overwrites the cassette file.

        `provider` is the name of the provider that is recorded.
        """
        self._begun += 1
        if self._begun == 1:
            self.provider = provider
            self._write({"type": "cassette", "schema": SCHEMA, "provider": provider}, os.O_TRUNC)
        return self._begun

    def add(self, exchange: Mapping[str, Json]) -> None:
        """Append a completed exchange to the file, or to `exchanges` if there is no file."""
        if self.path is None:
            self.exchanges.append(exchange)
        self._write(exchange, os.O_APPEND)

    def _write(self, line: Mapping[str, Json], how: int) -> None:
        if self.path is None:
            return
        line = mask_secrets(line)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise StoreError(f"the cassette {self.path} cannot be written: {error}") from error


def _check_row(row: Mapping[str, Json], *, is_header: bool) -> None:
    """Raise ValueError if a line of a cassette is damaged. Lines of an unknown type are valid."""
    if is_header:
        if row.get("type") not in ("cassette", "recording") or "provider" not in row:
            raise ValueError("the line is not the header of a cassette")
        schema = row.get("schema")
        if not isinstance(schema, int):
            raise ValueError("the header has no schema number")
        if schema > SCHEMA:
            raise ValueError(
                f"the cassette has schema {schema}, but this glue supports only {SCHEMA};"
                " upgrade glue-agents"
            )
        return
    if "type" not in row:
        raise ValueError("the line has no field 'type'")
    if row["type"] == "exchange":
        request = row.get("request")
        messages: Json = request.get("messages") if isinstance(request, dict) else None
        has_lists = isinstance(row.get("events"), list) and isinstance(messages, list)
        if not has_lists or not isinstance(row.get("number"), int):
            raise ValueError("the exchange is damaged")
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a message in the recorded request is not a JSON object")


class Recorder(Wrapper):
    """A provider that wraps another provider, and records its requests and streamed replies."""

    def __init__(self, provider: Provider, cassette: Cassette | str | os.PathLike[str]) -> None:
        super().__init__(provider)
        self.cassette = cassette if isinstance(cassette, Cassette) else Cassette(cassette)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        number = self.cassette.begin(self.name)
        encoded = request_to_json(request)
        events: list[Json] = []
        error: Json = None
        try:
            async with opened(self.provider, request) as stream:
                async for event in stream:
                    events.append({"type": _NAMES[type(event)], **to_plain(event)})
                    yield event
        except ProviderError as failure:
            text = str(failure).removeprefix(f"{failure.provider}: " if failure.provider else "")
            fields = {name: getattr(failure, name) for name in PROVIDER_ERROR_FIELDS}
            error = {"message": text, **fields}
            raise
        finally:
            exchange = {
                "type": "exchange",
                "number": number,
                "hash": request_hash(encoded),
                "request": encoded,
            }
            self.cassette.add({**exchange, "events": events, "error": error})


class Replay:
    """A provider that replays a cassette: it answers each request with the recorded reply.

    A request that was not recorded raises a ReplayError, which shows the first difference.

    Args:
        cassette: the cassette, or its file.
        by: "order" requires the requests in the recorded order. "hash" accepts the requests in any
            order, for agents that run at the same time.
        name: the name of this provider; if empty, the name of the recorded provider.
    """

    def __init__(
        self,
        cassette: Cassette | str | os.PathLike[str],
        *,
        by: Literal["order", "hash"] = "order",
        name: str = "",
    ) -> None:
        if by not in ("order", "hash"):
            raise ValueError(f"by must be 'order' or 'hash', not {by!r}")
        self.cassette = cassette if isinstance(cassette, Cassette) else Cassette.load(cassette)
        self.by, self.name = by, name or self.cassette.provider
        self._label = self.name if self.cassette.path is None else self.cassette.path.name
        self._left = list(self.cassette.exchanges)
        self._total = len(self._left)
        self._requests = 0

    @property
    def left(self) -> int:
        """The number of recorded requests that were not sent yet."""
        return len(self._left)

    def assert_used_up(self) -> None:
        """Raise ReplayError if any recorded request was not sent."""
        if self._left:
            raise ReplayError(
                f"{self._label}: {self.left} of {self._total} recorded requests were not sent"
            )

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        exchange = self._take(request)
        try:
            events = [_read_event(event) for event in exchange["events"]]
            error = _read_error(exchange.get("error"))
        except (ValueError, KeyError, TypeError, AttributeError, StoreError) as fault:
            line = f", line {exchange['line']}" if "line" in exchange else ""
            raise ReplayError(
                f"{self._label}{line}: the recorded reply is damaged: {_describe(fault)}"
            ) from fault
        for event in events:
            yield event
        if error is not None:
            raise error

    def _take(self, request: Request) -> Mapping[str, Json]:
        """Remove the recorded exchange of a request from the unused exchanges, and return it.

        Raise ReplayError if the request was not recorded.
        """
        self._requests += 1
        encoded = mask_secrets(request_to_json(request))
        digest = request_hash(encoded)
        where = f"{self._label}: request {self._requests}"
        if not self._left:
            raise ReplayError(
                f"{where} comes after the last of the {self._total} recorded requests;"
                " record the cassette again if that is intended"
            )
        for index, exchange in enumerate(self._left if self.by == "hash" else self._left[:1]):
            if exchange.get("hash") == digest:
                return self._left.pop(index)
        nearest = self._left[0]
        found = "its text"
        if "request" in nearest:
            found = difference(_comparable(nearest["request"]), _comparable(encoded))
        raise ReplayError(
            f"{where} differs from request {nearest['number']} of the cassette at {found};"
            " record the cassette again if that is intended"
        )


def _read_event(event: Json) -> ProviderEvent:
    fields = {name: value for name, value in event.items() if name != "type"}
    if event["type"] != "done":
        read: ProviderEvent = from_json(_EVENTS[event["type"]], fields)
        return read
    message = message_from_json(fields["message"])
    if not isinstance(message, AssistantMessage):
        raise ValueError("the message of the event 'done' is not a reply")
    return Done(message=message)


def _read_error(error: Json) -> ProviderError | None:
    if not error:
        return None
    if error["kind"] not in get_args(ErrorKind):
        raise ValueError(f"the kind of error {error['kind']!r} is unknown")
    # A cassette of an older version may lack some fields.
    fields = {name: error[name] for name in PROVIDER_ERROR_FIELDS if name in error}
    return ProviderError(error["message"], **fields)


def _describe(fault: Exception) -> str:
    if isinstance(fault, KeyError):
        return f"{fault.args[0]!r} is missing or unknown"
    return str(fault).strip()


def request_to_json(request: Request) -> dict[str, Json]:
    """Return a request as JSON, without optional fields that have their default values."""
    tools = [to_plain(spec) for spec in request.tools]
    rest = to_json(replace(request, messages=(), tools=()))
    return {**rest, "messages": messages_to_json(request.messages), "tools": tools}


def request_hash(request: Mapping[str, Json]) -> str:
    """Return a hash of an encoded request, without the ids and metadata of its messages."""
    text = json.dumps(mask_secrets(_comparable(request)), sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def difference(recorded: Json, now: Json, path: str = "") -> str:
    """Return a text with the first place where two different JSON values differ, and both values.

    >>> difference({"system": "a", "tools": []}, {"system": "b", "tools": []})
    'system: recorded "a", now "b"'
    """
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            before, after = recorded.get(key), now.get(key)
            if before != after:
                return difference(before, after, f"{path}.{key}" if path else str(key))
    if isinstance(recorded, list) and isinstance(now, list):
        for index in range(min(len(recorded), len(now))):
            if recorded[index] != now[index]:
                return difference(recorded[index], now[index], f"{path}[{index}]")
        return f"{path}: recorded {count(len(recorded), 'item')}, now {count(len(now), 'item')}"
    if isinstance(recorded, str) and isinstance(now, str):
        pairs = enumerate(zip(recorded, now, strict=False))
        at = next((at for at, (one, other) in pairs if one != other), min(len(recorded), len(now)))
        if at > _SHARED:  # a longer beginning would hide the difference
            recorded, now = (f"...{text[at - _SHARED :]}" for text in (recorded, now))
    return f"{path}: recorded {_short(recorded)}, now {_short(now)}"


def _short(value: Json) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


# Fields of a message that do not change the meaning of a request.
_METADATA = frozenset(
    ("id", "v", "meta", "usage", "provider", "model", "raw_stop_reason", "stop_reason", "origin")
)


def _comparable(request: Mapping[str, Json]) -> dict[str, Json]:
    """Return an encoded request without the metadata of its messages."""
    messages = [_without_metadata(message) for message in request["messages"]]
    return {**request, "messages": messages}


def _without_metadata(message: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in message.items() if key not in _METADATA}


@contextmanager
def use_provider(provider: Provider | Callable[[str], Provider]) -> Iterator[None]:
    """Use `provider` for every model that agents open by name, inside a `with` block.

        with use_provider(Script("It rains.")):
            assert answer_weather_question() == "It rains."

    Args:
        provider: the provider for every name, or a function that returns the provider for a name.
    """
    chosen = provider
    token = provider_names.set((lambda name: chosen) if isinstance(chosen, Provider) else chosen)
    try:
        yield
    finally:
        provider_names.reset(token)
