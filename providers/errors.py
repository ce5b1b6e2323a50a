"""Errors of model servers: the shapes of their bodies, what kind each is, and how long the server advises to wait."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from glue import one_line
from glue.errors import ErrorKind, ProviderError
from glue.messages import Json, Usage

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_ADVICE = re.compile(
    r"(?:try again|retry)(?: after| in)? (?:(?P<go>(?:\d+(?:\.\d+)?(?:h|ms|us|m|s))+)\b"
    r"|(?P<number>\d+(?:\.\d+)?) ?(?P<unit>milliseconds?|seconds?|minutes?|hours?))"
)


def advised_wait(
    headers: Mapping[str, str], delay: float | None, text: str, reset: bool, now: float | None = None
) -> float | None:
    """Return the seconds that the server asks to wait; header names are in lower case."""
    clock = time.time() if now is None else now
    milliseconds = _real(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    after = headers.get("retry-after")
    if after is not None:
        wait = _real(after)
        wait = _until_date(after, clock) if wait is None else wait
        if wait is not None:
            return wait
    if delay is not None:
        return delay
    wait = _text_wait(text)
    if wait is None and reset:
        wait = _reset_wait(headers, clock)
    return wait


def seconds(text: str) -> float | None:
    """Read a duration such as '26s', '45.8s', '20ms', '6m0s' or '114h18m0s'."""
    parts = _GO.findall(text)
    if not parts or "".join(value + unit for value, unit in parts) != text.strip():
        return None
    return sum(float(value) * _UNITS[unit] for value, unit in parts)


def _text_wait(text: str) -> float | None:
    found = _ADVICE.search(text)
    if found is None:
        return None
    if found["go"]:
        return seconds(found["go"])
    unit = found["unit"]
    scale = 0.001 if unit.startswith("milli") else 1.0 if unit.startswith("s") else 60.0 if unit[0] == "m" else 3600.0
    return float(found["number"]) * scale


def _reset_wait(headers: Mapping[str, str], now: float) -> float | None:
    waits = []
    for name, value in headers.items():
        if "-reset" not in name or not name.startswith(("x-ratelimit-", "anthropic-ratelimit-")):
            continue
        if headers.get(name.replace("-reset", "-remaining"), "0") != "0":
            continue  # this limit is not the one that was hit
        wait = seconds(value)
        if wait is None:
            wait = _until_stamp(value, now)
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _until_stamp(value: str, now: float) -> float | None:
    stamp = _real(value)
    if stamp is not None:
        if stamp > 1e11:
            stamp /= 1000  # milliseconds since 1970
        return max(0.0, stamp - now) if stamp > 1e9 else stamp
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - now) if moment.tzinfo else None


def _until_date(value: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _real(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None


@dataclass(slots=True)
class ErrorBody:
    """What an error body says, whatever its shape."""

    message: str = ""
    names: frozenset[str] = frozenset()  # codes, types and statuses, in lower case
    status: int | None = None
    text: str = ""  # all that may be searched, in lower case
    delay: float | None = None
    daily: bool = False  # a quota of the day, which no short wait mends
    flagged: bool = False
    request_id: str | None = None


def read_body(text: str) -> ErrorBody:
    """Find message, codes and advice in an error body of any vendor's shape."""
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
    found = inner.get("metadata")
    metadata: dict[str, Json] = found if isinstance(found, dict) else {}
    raw = metadata["raw"] if isinstance(metadata.get("raw"), str) else ""
    message = _message(inner) or _message(outer)
    said = ErrorBody(
        message=one_line((f"{message}: {raw}" if raw and raw not in message else message)[:4000], 300),
        names=names,
        status=status,
    )
    said.text = f"{said.message} {' '.join(names)} {raw} {message}".lower()
    said.flagged = "flagged_input" in metadata or metadata.get("error_type") == "moderation"
    identity = outer.get("request_id") or inner.get("request_id")
    said.request_id = identity if isinstance(identity, str) else None
    details = inner.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            _google_detail(said, detail)
    return said


def _plain(text: str) -> ErrorBody:
    start = text.lstrip()[:15].lower()
    if start.startswith(("<!doctype", "<html")):
        return ErrorBody(message="an HTML page instead of JSON", text=text[:4000].lower())
    return ErrorBody(message=one_line(text[:4000], 300), text=text[:4000].lower())


def _names(outer: Mapping[str, Json], inner: Mapping[str, Json]) -> tuple[frozenset[str], int | None]:
    names: set[str] = set()
    status = None
    for place in (inner, outer):
        for key in ("code", "type", "status", "error_type", "__type", "status_code"):
            value = place.get(key)
            if isinstance(value, str) and value:
                names.add(value.rsplit("#", 1)[-1].lower())
                value = int(value) if value.isascii() and value.isdigit() and len(value) == 3 else None
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 and status is None:
                status = value
    nested = inner.get("innererror")
    if isinstance(nested, dict) and isinstance(nested.get("code"), str):
        names.add(nested["code"].lower())
    return frozenset(names - {"error"}), status


def _message(place: Mapping[str, Json]) -> str:
    for key in ("message", "Message", "detail", "error_description", "title"):
        value = place.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, (list, dict)) and value:
            return json.dumps(value, ensure_ascii=False)
    return ""


def _google_detail(said: ErrorBody, detail: Mapping[str, Json]) -> None:
    delay = detail.get("retryDelay")
    if isinstance(delay, str):
        said.delay = seconds(delay)
    reason = detail.get("reason")
    if isinstance(reason, str):
        said.names |= {reason.lower()}
    # The text of a 429 always speaks of quota and billing; the class is in the id.
    violations = detail.get("violations")
    for violation in violations if isinstance(violations, list) else ():
        if isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId", "")):
            said.daily = True


_OVERFLOW_NAMES = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
_OVERFLOW_TEXTS = (
    "maximum context length",
    "context length exceeded",
    "exceeds the context window",
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the maximum number of tokens allowed",
    "too many total text bytes",
    "input length exceeds context window",
    "model's maximum context limit",
    "is longer than the model's context length",
    "input tokens exceed the configured limit",
    "`inputs` tokens + `max_new_tokens`",
    "prompt exceeds max length",
    "context the overflows",
    "token limit reached",
)
_OVERFLOW_PATTERN = re.compile(r"current length is \S+ while limit is|maximum input length is \S+ tokens")

_AUTH_NAMES = frozenset(
    {
        "invalid_api_key",
        "api_key_invalid",
        "authentication_error",
        "permission_error",
        "permission_denied",
        "unauthenticated",
        "unauthorized",
        "accessdeniedexception",
        "unrecognizedclientexception",
        "expiredtokenexception",
        "invalidsignatureexception",
    }
)
_QUOTA_NAMES = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached", "insufficient_balance"})
_QUOTA_TEXTS = ("insufficient balance", "credit balance is too low", "insufficient credits", "billing hard limit")
_FILTER_NAMES = frozenset(
    {"content_filter", "content_policy_violation", "data_inspection_failed", "content_filter_error"}
)
_FILTER_TEXTS = ("content management policy", "responsibleaipolicyviolation", "content_filter")
_MISSING_NAMES = frozenset({"model_not_found", "not_found_error", "not_found", "resourcenotfoundexception"})
_MISSING_TEXTS = ("model identifier is invalid",)
_RATE_NAMES = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limited",
        "resource_exhausted",
        "too_many_requests",
        "throttlingexception",
        "modelnotreadyexception",
    }
)
_BUSY_NAMES = frozenset(
    {
        "overloaded_error",
        "overloaded",
        "engine_overloaded",
        "unavailable",
        "service_unavailable",
        "serviceunavailableexception",
        "insufficient_system_resource",
    }
)
_INVALID_NAMES = frozenset(
    {
        "invalid_request_error",
        "invalid_argument",
        "invalid_request",
        "invalid_prompt",
        "failed_precondition",
        "bad_request",
        "validationexception",
        "tool_use_failed",
        "request_too_large",
    }
)
# Said with a 500 by llama.cpp: no second try helps.
_INVALID_TEXTS = ("image input is not supported", "does not support image", "audio input is not supported")
_RETRYABLE_STATUS = frozenset({408, 409, 424})


def classify(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    provider: str = "",
    model: str = "",
    now: float | None = None,
) -> ProviderError:
    """Turn an HTTP answer that is no success into an error."""
    lower = {name.lower(): value for name, value in headers.items()}
    text = body.decode("utf-8", "replace")
    said = read_body(text)
    amazon = lower.get("x-amzn-errortype", "").split(":")[0].lower()
    if amazon:
        said.names |= {amazon}
    message = f"HTTP {status}: {said.message}" if said.message else f"HTTP {status}"
    return _error(said, status, message, lower, text, provider, model, now, None)


def classify_event(
    error: Json,
    *,
    provider: str = "",
    model: str = "",
    usage: Usage | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProviderError:
    """Turn an error object inside a stream that began well into an error."""
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    said = read_body(text)
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    message = said.message or "the server broke off with an error"
    return _error(said, said.status, message, lower, text, provider, model, None, usage)


def _error(
    said: ErrorBody,
    status: int | None,
    message: str,
    headers: Mapping[str, str],
    body: str,
    provider: str,
    model: str,
    now: float | None,
    usage: Usage | None,
) -> ProviderError:
    kind, retryable = kind_of(status, said)
    word = headers.get("x-should-retry", "").lower()
    if word in ("true", "false") and kind not in ("auth", "quota", "context_overflow"):
        retryable = word == "true"
    return ProviderError(
        message,
        kind=kind,
        provider=provider,
        model=model,
        status=status,
        retry_after=advised_wait(headers, said.delay, said.text, kind == "rate_limited", now),
        request_id=_request_id(headers) or said.request_id,
        retryable=retryable,
        usage=usage,
        body=body[:2000],
    )


def kind_of(status: int | None, said: ErrorBody) -> tuple[ErrorKind, bool | None]:
    """Name the kind, and whether to try again where that is not what the kind says."""
    names, text = said.names, said.text
    if names & _QUOTA_NAMES or status == 402 or said.daily or any(part in text for part in _QUOTA_TEXTS):
        return "quota", None
    if said.flagged or names & _FILTER_NAMES or (status == 400 and any(part in text for part in _FILTER_TEXTS)):
        return "content_filter", None
    if status in (401, 403) or names & _AUTH_NAMES or (status == 400 and "api key not valid" in text):
        return "auth", None
    if "request too large" in text and (status in (413, 429) or names & _RATE_NAMES):
        return "rate_limited", False  # more than the tier allows at once: waiting does not help
    if status != 429 and not names & _RATE_NAMES and _is_overflow(names, text):
        return "context_overflow", None
    if status == 404 or names & _MISSING_NAMES or (status == 400 and any(part in text for part in _MISSING_TEXTS)):
        return "not_found", None
    if status == 429 or names & _RATE_NAMES:
        return "rate_limited", None
    if status in (502, 503, 504, 529) or names & _BUSY_NAMES:
        return "overloaded", None
    if any(part in text for part in _INVALID_TEXTS):
        return "invalid_request", None
    if status in _RETRYABLE_STATUS or (status is not None and status >= 500):
        return "transient", None
    if status is not None or names & _INVALID_NAMES:
        return "invalid_request", None
    return "transient", None


def _is_overflow(names: frozenset[str], text: str) -> bool:
    # Not "too many tokens": that is how Bedrock says that it throttles.
    if names & _OVERFLOW_NAMES or any(part in text for part in _OVERFLOW_TEXTS):
        return True
    return _OVERFLOW_PATTERN.search(text) is not None


def _request_id(headers: Mapping[str, str]) -> str | None:
    for name in ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-goog-request-id"):
        if name in headers:
            return headers[name]
    return None
