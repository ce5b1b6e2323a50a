"""What a failure means: kind, whether to try again, and when."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from glue.errors import ErrorKind, ProviderError
from glue.providers.fault import Fault, read_fault
from glue.providers.waiting import advised_wait
from glue.types import Json, Usage

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
    fault = read_fault(text)
    amazon = lower.get("x-amzn-errortype", "").split(":")[0].lower()
    if amazon:
        fault.names |= {amazon}
    message = f"HTTP {status}: {fault.message}" if fault.message else f"HTTP {status}"
    return _error(fault, status, message, lower, text, provider, model, now, None)


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
    fault = read_fault(text)
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    message = fault.message or "the server broke off with an error"
    return _error(fault, fault.status, message, lower, text, provider, model, None, usage)


def _error(
    fault: Fault,
    status: int | None,
    message: str,
    headers: Mapping[str, str],
    body: str,
    provider: str,
    model: str,
    now: float | None,
    usage: Usage | None,
) -> ProviderError:
    kind, retryable = kind_of(status, fault)
    word = headers.get("x-should-retry", "").lower()
    if word in ("true", "false") and kind not in ("auth", "quota", "context_overflow"):
        retryable = word == "true"
    return ProviderError(
        message,
        kind=kind,
        provider=provider,
        model=model,
        status=status,
        retry_after=advised_wait(headers, fault.delay, fault.text, kind == "rate_limited", now),
        request_id=_request_id(headers) or fault.request_id,
        retryable=retryable,
        usage=usage,
        body=body[:2000],
    )


def kind_of(status: int | None, fault: Fault) -> tuple[ErrorKind, bool | None]:
    """Name the kind, and whether to try again where that is not what the kind says."""
    names, text = fault.names, fault.text
    if names & _QUOTA_NAMES or status == 402 or fault.daily or any(part in text for part in _QUOTA_TEXTS):
        return "quota", None
    if fault.flagged or names & _FILTER_NAMES or (status == 400 and any(part in text for part in _FILTER_TEXTS)):
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
