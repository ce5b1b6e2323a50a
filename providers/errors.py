"""Functions that turn error responses of model servers into ProviderErrors."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from glue import Usage
from glue.errors import ErrorKind, ProviderError
from glue.messages import Json
from glue.providers.encoding import list_of, object_of, text_of
from glue.text import one_line

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_UNITS |= {"hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 0.001}
_AMOUNT = r"(\d+(?:\.\d+)?) ?(hours?|minutes?|seconds?|milliseconds?|h|ms|us|µs|ns|m|s)"
_ADVICE = re.compile(rf"(?:try again|retry)(?: after| in)? ((?:{_AMOUNT})+)\b")


def advised_wait(
    headers: Mapping[str, str],
    delay: float | None,
    text: str,
    reset: bool,
    now: float | None = None,
) -> float | None:
    """Return the seconds that the server advises to wait, or None if it advises nothing.

    The first of these is used: a retry header, `delay` (from the body), advice in `text`, and, if
    `reset` is true, the headers with the reset times of rate limits. Header names must be in lower
    case.
    """
    clock = time.time() if now is None else now
    milliseconds = _real(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    wait = _wait(headers["retry-after"], clock) if "retry-after" in headers else None
    if wait is None:
        wait = delay
    if wait is None and (advice := _ADVICE.search(text)):
        wait = seconds(advice[1])
    if wait is None and reset:
        wait = _reset_wait(headers, clock)
    return wait


def seconds(text: str) -> float | None:
    """Return the seconds in a text such as '45.8s', '6m0s' or '33 seconds'; None for any other."""
    if not re.fullmatch(f"(?:{_AMOUNT})+", text.strip()):
        return None
    amounts = re.findall(_AMOUNT, text)
    return sum(float(value) * (_UNITS.get(unit) or _UNITS[unit[:-1]]) for value, unit in amounts)


def _reset_wait(headers: Mapping[str, str], now: float) -> float | None:
    waits = []
    for name, value in headers.items():
        if "-reset" not in name or not name.startswith(("x-ratelimit-", "anthropic-ratelimit-")):
            continue
        if headers.get(name.replace("-reset", "-remaining"), "0") != "0":
            continue  # this limit is not the one that was reached
        waits.append(_wait(value, now))
    return max((wait for wait in waits if wait is not None), default=None)


def _wait(value: str, now: float) -> float | None:
    """Return the seconds from now that a duration, Unix time or date means; None for other texts.

    A Unix time may be in seconds or milliseconds.
    """
    wait = _real(value) if seconds(value) is None else seconds(value)
    if wait is not None:
        wait = wait / 1000 if wait > 1e11 else wait
        return max(0.0, wait - now) if wait > 1e9 else wait
    # Start-up: few servers send such dates.
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(value)
            return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now)
        except (ValueError, TypeError, OverflowError):
            pass
    return None


def _real(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


@dataclass(slots=True)
class ErrorBody:
    """The parsed body of an error response: its message, codes, advised wait and request id."""

    message: str = ""
    code: str | None = None  # the first code or type, as the server writes it
    names: frozenset[str] = frozenset()  # codes, types and statuses, in lower case
    status: int | None = None
    text: str = ""  # all texts of the body in lower case, for searching
    delay: float | None = None
    request_id: str | None = None


def read_body(text: str) -> ErrorBody:
    """Parse the error body of any vendor. A body that is not JSON becomes the message."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _plain(text)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return _plain(value if isinstance(value, str) else text)

    outer = value
    inner = value.get("error", value)
    if isinstance(inner, str):
        inner = {**outer, "message": inner}
    if not isinstance(inner, dict):
        inner = outer
    names, status = _names(outer, inner)
    lower = frozenset(name.lower() for name in names)
    metadata = object_of(inner.get("metadata"))
    raw = text_of(metadata.get("raw"))
    message = _message(inner) or _message(outer)
    shown = one_line((f"{message}: {raw}" if raw and raw not in message else message)[:4000], 300)
    said = ErrorBody(message=shown, names=lower, status=status)
    said.code = next((name for name in names if not re.fullmatch("[0-9]{3}", name)), None)
    said.text = f"{shown} {' '.join(lower)} {raw} {message}".lower()
    said.request_id = text_of(outer.get("request_id") or inner.get("request_id")) or None
    if "flagged_input" in metadata or metadata.get("error_type") == "moderation":
        said.names |= {"content_filter"}
    for detail in map(object_of, list_of(inner.get("details"))):  # Google's details
        if (delay := seconds(text_of(detail.get("retryDelay")))) is not None:
            said.delay = delay
        said.names |= {text_of(detail.get("reason")).lower()}
        # Google's text for a 429 always mentions quota and billing; only the quotaId shows
        # whether the quota of a day is spent, so that waiting does not help.
        if any(
            "PerDay" in str(each.get("quotaId"))
            for each in map(object_of, list_of(detail.get("violations")))
        ):
            said.names |= {"insufficient_quota"}
    return said


def _plain(text: str) -> ErrorBody:
    start = text.lstrip()[:15].lower()
    if start.startswith(("<!doctype", "<html")):
        return ErrorBody(
            message="the server sent an HTML page instead of JSON", text=text[:4000].lower()
        )
    return ErrorBody(message=one_line(text[:4000], 300), text=text[:4000].lower())


def _names(outer: Mapping[str, Json], inner: Mapping[str, Json]) -> tuple[list[str], int | None]:
    names: list[str] = []
    status = None
    for place in (inner, outer):
        for key in ("code", "type", "status", "error_type", "__type", "status_code"):
            value = place.get(key)
            if isinstance(value, str):
                names.append(value.rsplit("#", 1)[-1])
                value = (
                    int(value) if value.isascii() and value.isdigit() and len(value) == 3 else None
                )
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and 400 <= value < 600
                and status is None
            ):
                status = value
    names.append(text_of(object_of(inner.get("innererror")).get("code")))
    return [name for name in names if name and name.lower() != "error"], status


def _message(place: Mapping[str, Json]) -> str:
    for key in (
        "message",
        "Message",
        "detail",
        "msg",
        "error_description",
        "title",
        "errors",
        "error",
    ):
        value = place.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, (list, dict)) and value:
            return json.dumps(value, ensure_ascii=False)
    return ""


@functools.cache
def _signs() -> tuple[dict[str, frozenset[str]], dict[str, re.Pattern[str]]]:
    """Return from errors.json the names and the texts that identify each kind of error.

    All of them are in lower case. "too many tokens" is not a text of context_overflow, because
    Bedrock uses it for throttling. llama.cpp refuses an image with HTTP 500, which no retry fixes.
    """
    signs = json.loads(Path(__file__).with_name("errors.json").read_bytes())
    names = {kind: frozenset(each["names"]) for kind, each in signs.items()}
    texts = {
        kind: re.compile("|".join(each["texts"])) for kind, each in signs.items() if each["texts"]
    }
    return names, texts


_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-goog-request-id",
)


def classify(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    provider: str = "",
    model: str = "",
    now: float | None = None,
) -> ProviderError:
    """Return the ProviderError for an HTTP response that is not a success."""
    lower = {name.lower(): value for name, value in headers.items()}
    text = body.decode("utf-8", "replace")
    said = read_body(text)
    if amazon := lower.get("x-amzn-errortype", "").split(":")[0]:
        said.code = said.code or amazon
        said.names |= {amazon.lower()}
    message = f"HTTP {status}: {said.message}" if said.message else f"HTTP {status}"
    error = _error(message, said, status, text, provider, model)
    error.retry_after = advised_wait(
        lower, said.delay, said.text, error.kind == "rate_limited", now
    )
    error.request_id = next(
        (lower[name] for name in _REQUEST_IDS if name in lower), said.request_id
    )
    word = lower.get("x-should-retry", "").lower()
    if word in ("true", "false") and error.kind not in ("auth", "quota", "context_overflow"):
        error.retryable = word == "true"
    return error


def classify_event(
    error: Json, *, provider: str = "", model: str = "", usage: Usage | None = None
) -> ProviderError:
    """Return the ProviderError for an error object inside a stream whose status is 200."""
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    said = read_body(text)
    raised = _error(
        said.message or "the server sent an error without a message",
        said,
        said.status,
        text,
        provider,
        model,
    )
    raised.retry_after = advised_wait({}, said.delay, said.text, False)
    raised.request_id, raised.usage = said.request_id, usage
    return raised


def _error(
    message: str, said: ErrorBody, status: int | None, body: str, provider: str, model: str
) -> ProviderError:
    kind, again = kind_of(status, said)
    error = ProviderError(
        message, kind=kind, provider=provider, model=model, status=status, retryable=again
    )
    error.code, error.body = said.code and one_line(said.code, 100), body[:2000]
    return error


def is_refused_call(error: ProviderError) -> bool:
    """Return whether the server refused the model's tool call because its arguments are invalid."""
    names, _ = _signs()
    return error.kind == "invalid_request" and (error.code or "").lower() in names["refused_call"]


def kind_of(status: int | None, said: ErrorBody) -> tuple[ErrorKind, bool | None]:
    """Return the kind of an error, and whether to retry; None means the default of the kind."""
    names, texts = _signs()

    def named(kind: ErrorKind) -> bool:
        return not said.names.isdisjoint(names[kind])

    def told(kind: ErrorKind) -> bool:
        return texts[kind].search(said.text) is not None

    limited = status == 429 or named("rate_limited")
    if status == 402 or named("quota") or told("quota"):
        return "quota", None
    if named("content_filter") or (status == 400 and told("content_filter")):
        return "content_filter", None
    if status in (401, 403) or named("auth") or (status == 400 and told("auth")):
        return "auth", None
    if "request too large" in said.text and (status == 413 or limited):
        return "rate_limited", False  # the request exceeds the limit alone: waiting does not help
    if not limited and (named("context_overflow") or told("context_overflow")):
        return "context_overflow", None
    if status == 404 or named("not_found") or (status == 400 and told("not_found")):
        return "not_found", None
    if limited:
        return "rate_limited", None
    if status in (502, 503, 504, 529) or named("overloaded"):
        return "overloaded", None
    if told("invalid_request"):
        return "invalid_request", None
    if status is None:
        return ("invalid_request" if named("invalid_request") else "transient"), None
    return ("transient" if status in (408, 409, 424) or status >= 500 else "invalid_request"), None
