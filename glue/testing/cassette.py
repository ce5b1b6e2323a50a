"""Write down what a model was asked and what it said, and play that back without it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import glue.agent
from glue.codec import from_json, to_json, to_plain
from glue.errors import ErrorKind, ProviderError, ReplayError, StoreError
from glue.messages import AssistantMessage, Json, Request, message_from_json, messages_to_json
from glue.provider import Attempt, Done, Provider, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta

SCHEMA = 1
MASK = "***"

_EVENTS: dict[str, type] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "tool_call": ToolCallDelta,
    "attempt": Attempt,
    "done": Done,
}
_NAMES = {cls: name for name, cls in _EVENTS.items()}
_DETAILS = ("provider", "model", "status", "retry_after", "request_id", "emitted", "retryable", "body")
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SECRET_SHAPE = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bAKIA[A-Z0-9]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}"
)


class Recorder:
    """A provider that passes everything on and writes each request with its streamed reply to a file.

    One line of JSON an exchange, keys masked. A new recorder begins the file anew.
    """

    def __init__(self, provider: Provider, path: str | os.PathLike[str]) -> None:
        self.provider = provider
        self.path = Path(path)
        self._count = 0

    @property
    def name(self) -> str:
        return self.provider.name

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self._count += 1
        number = self._count
        if number == 1:
            self._write({"type": "recording", "schema": SCHEMA, "provider": self.name}, os.O_TRUNC)
        asked = request_to_json(request)
        events: list[Json] = []
        error: Json = None
        stream = self.provider.stream(request)
        try:
            async for event in stream:
                events.append(_event_to_json(event))
                yield event
        except ProviderError as failure:
            error = _error_to_json(failure)
            raise
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()
            exchange = {"type": "exchange", "number": number, "hash": request_hash(asked), "request": asked}
            self._write({**exchange, "events": events, "error": error}, os.O_APPEND)

    def _write(self, record: Mapping[str, Json], how: int) -> None:
        line = json.dumps(mask(record)) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise StoreError(f"the recording {self.path} cannot be written: {error}") from error


class Replay:
    """A provider that answers from a recording.

    By "order" each request must be the recorded one at its place; by "hash" it may come at any
    place, as with agents that run side by side. A request that was never recorded is a ReplayError
    that names it and shows the first difference.
    """

    def __init__(self, path: str | os.PathLike[str], *, by: Literal["order", "hash"] = "order") -> None:
        if by not in ("order", "hash"):
            raise ValueError(f"by must be 'order' or 'hash', not {by!r}")
        self.path, self.by = Path(path), by
        self.name, self._left = read_exchanges(self.path)
        self._total = len(self._left)
        self._asked = 0

    @property
    def left(self) -> int:
        """How many recorded exchanges were not asked for."""
        return len(self._left)

    def assert_used_up(self) -> None:
        """Fail unless everything recorded was asked for."""
        if self._left:
            raise ReplayError(f"{self.path.name}: {self.left} of {self._total} recorded requests were not made")

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        exchange = self._take(request)
        for event in exchange["events"]:
            yield _event_from_json(event)
        if exchange.get("error"):
            raise _error_from_json(exchange["error"])

    def _take(self, request: Request) -> Mapping[str, Json]:
        self._asked += 1
        asked = mask(request_to_json(request))
        digest = request_hash(asked)
        where = f"{self.path.name}: request {self._asked}"
        if not self._left:
            raise ReplayError(f"{where} is one more than the {self._total} recorded")
        if self.by == "hash":
            for index, exchange in enumerate(self._left):
                if exchange["hash"] == digest:
                    return self._left.pop(index)
        elif self._left[0]["hash"] == digest:
            return self._left.pop(0)
        nearest = self._left[0]
        raise ReplayError(
            f"{where} departs from the recording (its request {nearest['number']}) at"
            f" {difference(_comparable(nearest['request']), _comparable(asked))}; record it anew if that is meant"
        )


def mask(value: Json) -> Json:
    """Hide keys in all texts of a JSON value.

    That is: the values of environment variables with telling names, and what looks like a well-known key.
    """
    names = (value for name, value in os.environ.items() if len(value) >= 8 and _SECRET_NAME.search(name))
    secrets = sorted(set(names), key=len, reverse=True)

    def hide(value: Json) -> Json:
        if isinstance(value, str):
            for secret in secrets:
                value = value.replace(secret, MASK)
            return _SECRET_SHAPE.sub(MASK, value)
        if isinstance(value, Mapping):
            return {key: hide(item) for key, item in value.items()}
        return [hide(item) for item in value] if isinstance(value, (list, tuple)) else value

    return hide(value)


def request_to_json(request: Request) -> dict[str, Json]:
    """Encode a request; fields that hold their default are left out."""
    tools = [to_plain(spec) for spec in request.tools]
    rest = to_json(replace(request, messages=(), tools=()))
    return {**rest, "messages": messages_to_json(request.messages), "tools": tools}


def request_hash(asked: Mapping[str, Json]) -> str:
    """Give what two requests have in common that ask the same: ids and bookkeeping do not count."""
    text = json.dumps(mask(_comparable(asked)), sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def difference(recorded: Json, now: Json, path: str = "") -> str:
    """Say where two JSON values first differ."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            if recorded.get(key) != now.get(key):
                return difference(recorded.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    if isinstance(recorded, list) and isinstance(now, list):
        for index in range(min(len(recorded), len(now))):
            if recorded[index] != now[index]:
                return difference(recorded[index], now[index], f"{path}[{index}]")
        return f"{path}: recorded {len(recorded)}, now {len(now)} of them"
    return f"{path}: recorded {_short(recorded)}, now {_short(now)}"


def _short(value: Json) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


_BOOKKEEPING = frozenset(("id", "v", "meta", "usage", "provider", "model", "raw_stop_reason", "stop_reason", "origin"))


def _comparable(asked: Mapping[str, Json]) -> dict[str, Json]:
    messages = [
        {key: value for key, value in message.items() if key not in _BOOKKEEPING} for message in asked["messages"]
    ]
    return {**asked, "messages": messages}


def _event_to_json(event: ProviderEvent) -> Json:
    return {"type": _NAMES[type(event)], **to_plain(event)}


def _event_from_json(data: Mapping[str, Json]) -> ProviderEvent:
    if data["type"] == "done":
        return Done(message=cast(AssistantMessage, message_from_json(data["message"])))
    event: ProviderEvent = from_json(_EVENTS[data["type"]], {key: data[key] for key in data if key != "type"})
    return event


def _error_to_json(error: ProviderError) -> Json:
    details: dict[str, Any] = {name: getattr(error, name) for name in _DETAILS}
    text = str(error)
    if error.provider:
        text = text.removeprefix(f"{error.provider}: ")
    return {"message": text, "kind": error.kind, **details}


def _error_from_json(data: Mapping[str, Json]) -> ProviderError:
    details = {name: data[name] for name in _DETAILS}
    return ProviderError(data["message"], kind=cast(ErrorKind, data["kind"]), **details)


def read_exchanges(path: Path) -> tuple[str, list[dict[str, Json]]]:
    """Read who was recorded, and each request with its reply, in the order they were made."""
    try:
        lines = list(_lines(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ReplayError(f"the recording {path} cannot be read: {error}") from error
    if not lines or lines[0].get("type") != "recording":
        raise ReplayError(f"{path} is no recording")
    if lines[0]["schema"] > SCHEMA:
        raise ReplayError(f"{path} was written with recording schema {lines[0]['schema']}; this version knows {SCHEMA}")
    exchanges = [line for line in lines if line["type"] == "exchange"]
    return str(lines[0]["provider"]), sorted(exchanges, key=lambda exchange: int(exchange["number"]))


def _lines(text: str) -> Iterator[dict[str, Json]]:
    for line in text.split("\n"):
        if line.strip():
            yield json.loads(line)


@contextmanager
def stand_in(provider: Provider | Callable[[str], Provider]) -> Iterator[None]:
    """Let agents that name their model ask this provider, or the one a function gives for the name."""
    before = glue.agent.opener
    if isinstance(provider, Provider):
        chosen: Provider = provider
        glue.agent.opener = lambda name: chosen
    else:
        glue.agent.opener = provider
    try:
        yield
    finally:
        glue.agent.opener = before
