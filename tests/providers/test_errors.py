"""The kind of each error response, and the wait that a server advises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import ProviderError
from glue.providers.errors import classify, classify_event, read_body, seconds


def openai(message: str = "x", **more: Any) -> dict[str, Any]:
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": None,
            **more,
        }
    }


def fail(
    status: int, body: Any = "", headers: dict[str, str] | None = None, now: float = 0.0
) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    return classify(status, headers or {}, text.encode(), provider="acme", model="m", now=now)


GOOGLE_KEY = {
    "error": {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        ],
    }
}


def google_quota(period: str) -> dict[str, Any]:
    details = [
        {"violations": [{"quotaId": f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier"}]},
        {"retryDelay": "26s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    return {
        "error": {
            "code": 429,
            "message": message,
            "status": "RESOURCE_EXHAUSTED",
            "details": details,
        }
    }


TOO_LARGE = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000"

KINDS: list[tuple[str, int, Any, str, bool]] = [
    ("no key", 401, openai("Incorrect API key", code="invalid_api_key"), "auth", False),
    ("forbidden", 403, {"message": "no"}, "auth", False),
    ("codex", 401, {"detail": "Unauthorized"}, "auth", False),
    ("gemini key", 400, GOOGLE_KEY, "auth", False),
    (
        "payment",
        402,
        {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}},
        "quota",
        False,
    ),
    (
        "openai quota",
        429,
        openai("You exceeded your current quota", code="insufficient_quota"),
        "quota",
        False,
    ),
    (
        "anthropic credit",
        400,
        {"error": {"message": "Your credit balance is too low"}},
        "quota",
        False,
    ),
    ("gemini day", 429, google_quota("Day"), "quota", False),
    ("gemini minute", 429, google_quota("Minute"), "rate_limited", True),
    ("rate", 429, openai("slow down", code="rate_limit_exceeded"), "rate_limited", True),
    (
        "anthropic rate",
        429,
        {"type": "error", "error": {"type": "rate_limit_error"}},
        "rate_limited",
        True,
    ),
    ("openai tier", 429, openai(TOO_LARGE, code="rate_limit_exceeded"), "rate_limited", False),
    ("groq tier", 413, openai(TOO_LARGE, code="rate_limit_exceeded"), "rate_limited", False),
    (
        "bedrock words",
        429,
        {"message": "Too many tokens, please wait before trying again."},
        "rate_limited",
        True,
    ),
    (
        "overloaded",
        529,
        {"type": "error", "error": {"type": "overloaded_error"}},
        "overloaded",
        True,
    ),
    ("unavailable", 503, {"error": {"code": 503, "status": "UNAVAILABLE"}}, "overloaded", True),
    ("bad gateway", 502, "<html>nginx</html>", "overloaded", True),
    ("gateway timeout", 504, "", "overloaded", True),
    ("loading", 503, {"error": {"message": "Loading model", "code": 503}}, "overloaded", True),
    ("server", 500, openai(type="server_error"), "transient", True),
    ("request timeout", 408, "", "transient", True),
    ("lock", 409, "", "transient", True),
    ("bedrock model", 424, {"message": "x"}, "transient", True),
    (
        "body too large",
        413,
        {"error": {"type": "request_too_large", "message": "Request exceeds 32 MB"}},
        "invalid_request",
        False,
    ),
    ("missing", 404, openai("no such model", code="model_not_found"), "not_found", False),
    (
        "responses missing",
        400,
        openai("does not exist", code="model_not_found"),
        "not_found",
        False,
    ),
    (
        "bedrock missing",
        400,
        {"message": "The provided model identifier is invalid."},
        "not_found",
        False,
    ),
    (
        "openrouter missing",
        400,
        {"error": {"message": "a/b is not a valid model ID", "code": 400}},
        "not_found",
        False,
    ),
    ("deepseek missing", 400, openai("Model Not Exist"), "not_found", False),
    (
        "mistral missing",
        400,
        {"object": "error", "message": "Invalid model: x", "type": "invalid_model"},
        "not_found",
        False,
    ),
    ("groq ended", 400, openai("decommissioned", code="model_decommissioned"), "not_found", False),
    ("moonshot quota", 429, {"error": {"type": "exceeded_current_quota_error"}}, "quota", False),
    ("alibaba arrears", 400, openai("not in good standing", code="Arrearage"), "quota", False),
    (
        "anthropic limit",
        400,
        openai("You have reached your specified API usage limits."),
        "quota",
        False,
    ),
    (
        "tool use failed",
        400,
        openai("Failed to call a function", code="tool_use_failed"),
        "invalid_request",
        False,
    ),
    ("invalid", 400, openai("bad"), "invalid_request", False),
    ("fastapi", 422, {"detail": [{"loc": ["body"], "msg": "extra"}]}, "invalid_request", False),
    ("azure filter", 400, openai("filtered", code="content_filter"), "content_filter", False),
    (
        "azure policy",
        400,
        openai("triggering Azure OpenAI's content management policy"),
        "content_filter",
        False,
    ),
    (
        "moderation",
        403,
        {"error": {"code": 403, "message": "x", "metadata": {"flagged_input": "y"}}},
        "content_filter",
        False,
    ),
    ("redirect", 307, "", "invalid_request", False),
]


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [case[1:] for case in KINDS],
    ids=[case[0] for case in KINDS],
)
def test_the_kind_of_an_error_response(status: int, body: Any, kind: str, retryable: bool) -> None:
    error = fail(status, body)

    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert (error.provider, error.model) == ("acme", "m")


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 128000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Input is too long for requested model.",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
        "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
        "the request exceeds the available context size (4096 tokens)",
        "too many total text bytes: 9 > 8",
        "Please reduce the length. Current length is 9000 while limit is 8192",
        "`inputs` tokens + `max_new_tokens` must be <= 4096",
        "Range of input: maximum input length is 30720 tokens",
        "Trying to keep the first 5 tokens when context the overflows",
        # xAI
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Your request exceeded model token limit: 262144 (requested: 291351)",  # Moonshot
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",  # vLLM
        # LM Studio
        "The number of tokens to keep from the initial prompt is greater than the context length",
        "prompt too long; exceeded max context length by 4 tokens",  # Ollama
        "Context size has been exceeded.",  # llama.cpp
        "Range of input length should be [1, 30720]",  # Alibaba
        "prompt token count of 140000 exceeds the limit of 128000",  # GitHub
        "invalid params, context window exceeds limit (2013)",
    ],
)
def test_a_prompt_that_is_too_long_is_an_overflow(text: str) -> None:
    assert fail(400, openai(text)).kind == "context_overflow"
    assert fail(429, openai(text)).kind == "rate_limited"


def test_codes_of_a_context_overflow() -> None:
    assert fail(400, openai(code="context_length_exceeded")).kind == "context_overflow"
    llama = {
        "error": {"code": 400, "message": "x", "type": "exceed_context_size_error", "n_ctx": 4096}
    }
    assert fail(400, llama).kind == "context_overflow"
    nested = {
        "error": {
            "code": 400,
            "message": "Provider returned error",
            "metadata": {"raw": "prompt is too long"},
        }
    }
    assert fail(400, nested).kind == "context_overflow"


def test_bedrock_names_the_kind_in_a_header() -> None:
    header = {"X-Amzn-ErrorType": "ThrottlingException:http://internal.amazon.com/"}

    assert fail(400, {"message": "slow"}, header).kind == "rate_limited"
    assert fail(400, {"message": "slow"}, header).code == "ThrottlingException"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (openai(code="insufficient_quota", type="other"), "insufficient_quota"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, "RESOURCE_EXHAUSTED"),
        ({"error": {"code": "1113", "message": "x"}}, "1113"),
        ({"error": {"code": "400", "message": "x"}}, None),
        ({"__type": "com.amazon#ValidationException"}, "ValidationException"),
        ({"error": {"code": "a\n\x1b" + "b" * 200}}, "a ␛" + "b" * 96 + "…"),
        ({"error": "plain"}, None),
        ("just words", None),
    ],
)
def test_the_servers_own_code_is_kept(body: Any, code: str | None) -> None:
    assert fail(400, body).code == code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai("no\nsuch  thing"), "acme: HTTP 400: no such thing"),
        ({"error": "plain"}, "acme: HTTP 400: plain"),
        ([{"error": {"code": 400, "message": "in a list"}}], "acme: HTTP 400: in a list"),
        ({"object": "error", "message": "flat", "code": 400}, "acme: HTTP 400: flat"),
        ({"message": "amazon"}, "acme: HTTP 400: amazon"),
        ({"detail": "codex"}, "acme: HTTP 400: codex"),
        ("<!DOCTYPE html><p>x", "acme: HTTP 400: the server sent an HTML page instead of JSON"),
        ("just words", "acme: HTTP 400: just words"),
        ("", "acme: HTTP 400"),
        ({"error": {"message": "out", "metadata": {"raw": "in"}}}, "acme: HTTP 400: out: in"),
        (
            {"errors": [{"message": "cloud"}], "success": False},
            'acme: HTTP 400: [{"message": "cloud"}]',
        ),
        ({"error": {"error": {"message": "deep"}}}, 'acme: HTTP 400: {"message": "deep"}'),
        ({"code": 1, "msg": "short"}, "acme: HTTP 400: short"),
    ],
)
def test_message_of_every_shape_of_body(body: Any, message: str) -> None:
    assert str(fail(400, body)) == message


def test_a_long_message_is_cut_and_the_body_kept() -> None:
    error = fail(400, openai("x" * 5000))

    assert len(str(error)) < 350
    assert len(error.body) == 2000


def test_request_id_from_header_or_body() -> None:
    assert fail(500, "", {"X-Request-Id": "r1"}).request_id == "r1"
    assert fail(500, {"type": "error", "error": {}, "request_id": "r2"}).request_id == "r2"


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"Retry-After": "2.5"}, "", 2.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, "", 50.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, "", 0.0),
        ({"retry-after": "Thursday, 01-Jan-70 00:01:00 GMT"}, "", 50.0),
        ({"retry-after": "Thu Jan  1 00:01:00 1970"}, "", 50.0),
        ({"retry-after": "1770000000"}, "", 1769999990.0),
        ({"retry-after": "1770000000000"}, "", 1769999990.0),
        ({"retry-after": "1970-01-01T00:01:00"}, "", 50.0),
        ({"retry-after": "1970-01-01T01:01:00+01:00"}, "", 50.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-3"}, "", None),
        ({}, {"error": {"code": 429, "details": [{"retryDelay": "45.837906927s"}]}}, 45.837906927),
        ({}, {"error": {"message": "Please retry in 36.43s."}}, 36.43),
        ({}, openai("Please try again in 4.77s. Visit"), 4.77),
        ({}, openai("Please try again in 20ms."), 0.02),
        ({}, openai("Please try again in 6m0s."), 360.0),
        ({}, openai("Please try again in 114h18m0s."), 411480.0),
        ({}, openai("Please retry after 33 seconds."), 33.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360.0),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s"}, "", None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "1970-01-01T00:00:40Z",
            },
            "",
            30.0,
        ),
        ({"x-ratelimit-remaining": "0", "X-RateLimit-Reset": "1770000000000"}, "", 1769999990.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "-1"}, "", None),
        ({}, "", None),
    ],
)
def test_advised_wait(headers: dict[str, str], body: Any, wait: float | None) -> None:
    assert fail(429, body, headers, now=10.0).retry_after == (
        None if wait is None else pytest.approx(wait)
    )


def test_the_code_of_the_server_outranks_the_status() -> None:
    assert fail(400, openai("x"), {"x-should-retry": "true"}).retryable
    assert not fail(529, "", {"x-should-retry": "false"}).retryable
    assert not fail(401, "", {"x-should-retry": "true"}).retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "message": "Token limit reached"}, "context_overflow"),
        ({"message": "x", "type": "invalid_request_error", "status_code": 400}, "invalid_request"),
        ({"type": "insufficient_quota", "code": "insufficient_quota", "message": "x"}, "quota"),
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"code": 502, "message": "Provider returned error"}, "overloaded"),
        ({"code": "server_error", "message": "x"}, "transient"),
        ({"code": 503, "message": "x", "status": "UNAVAILABLE"}, "overloaded"),
        ({"message": "something broke"}, "transient"),
        ("words alone", "transient"),
        (None, "transient"),
    ],
)
def test_error_inside_a_stream(error: Any, kind: str) -> None:
    assert classify_event(error, provider="acme").kind == kind


def test_durations() -> None:
    assert seconds("1h2m3s") == 3723
    assert seconds("4ms") == pytest.approx(0.004)
    assert seconds("2 minutes") == seconds("120 seconds") == 120
    assert seconds("1500 milliseconds") == 1.5
    assert seconds("12") is None
    assert seconds("2 days") is None


KEYS = st.sampled_from(
    [
        "error",
        "message",
        "code",
        "type",
        "status",
        "details",
        "metadata",
        "raw",
        "retryDelay",
        "detail",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from([200, 400, 404, 429, 500]),
    JSON,
    st.dictionaries(st.sampled_from(["retry-after", "x"]), st.text(max_size=9)),
)
def test_any_body_and_any_headers_are_classified(
    status: int, body: Any, headers: dict[str, str]
) -> None:
    error = classify(status, headers, json.dumps(body).encode(), now=0.0)

    assert error.status == status
    assert isinstance(classify_event(body), ProviderError)


@given(st.binary(max_size=60))
def test_garbage_is_classified(body: bytes) -> None:
    assert classify(500, {}, body).kind == "transient"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": "Incorrect API key provided. You can obtain one at x.ai."}, "auth"),
        (400, {"error": "Model not found: grok-9"}, "not_found"),
        (400, {"message": "Input Tokens Exceeded: Number of input tokens ..."}, "context_overflow"),
        (
            400,
            {"error": {"type": "too_many_prompt_tokens", "message": "Too long."}},
            "context_overflow",
        ),
        (
            400,
            {"error": {"message": "The supported API model names are a or b"}},
            "not_found",
        ),
        (500, {"error": {"message": "tools param requires --jinja flag"}}, "invalid_request"),
    ],
)
def test_errors_of_recorded_servers_have_their_kind(status: int, body: Any, kind: str) -> None:
    error = classify(status, {}, json.dumps(body).encode())

    assert (error.kind, error.retryable) == (kind, False)


def test_a_wait_until_a_date_is_counted_from_now() -> None:
    headers = {"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}

    wait = classify(429, headers, b"").retry_after

    assert wait is not None
    assert 0 < wait < 4_102_444_800 - 1_700_000_000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": [], "detail": "x"}, "HTTP 400: x"),
        ({"message": 5, "detail": "x"}, "HTTP 400: x"),
        ({"message": {"a": "é"}}, 'HTTP 400: {"a": "é"}'),
        ({"message": "said: busy", "metadata": {"raw": "busy"}}, "HTTP 400: said: busy"),
        ({"message": "failed", "metadata": {"raw": "busy"}}, "HTTP 400: failed: busy"),
    ],
)
def test_the_message_is_the_first_text_of_the_body(body: Any, message: str) -> None:
    assert str(fail(400, {"error": body})) == f"acme: {message}"


def test_the_reason_in_the_details_of_google_decides_the_kind() -> None:
    details = [{"reason": "API_KEY_INVALID"}]

    assert fail(400, {"error": {"message": "x", "details": details}}).kind == "auth"
    assert fail(400, {"error": {"message": "x"}}).kind == "invalid_request"


@pytest.mark.parametrize(
    ("code", "status"), [("429", 429), (503, 503), ("4290", None), (True, None), (399, None)]
)
def test_a_status_may_be_in_the_body(code: Any, status: int | None) -> None:
    assert read_body(json.dumps({"error": {"code": code}})).status == status


def test_the_texts_of_an_error_are_bounded() -> None:
    structured = fail(400, {"error": {"message": "m" * 999, "code": "c" * 999}})
    plain = fail(400, "p" * 9999)
    page = fail(400, f"  <HTML>{'x' * 9999}")

    assert len(str(structured)) == len("acme: HTTP 400: ") + 300
    assert len(str(plain)) == len("acme: HTTP 400: ") + 300
    assert len(structured.code or "") == 100
    assert len(plain.body) == 2000
    assert str(page) == "acme: HTTP 400: the server sent an HTML page instead of JSON"


@pytest.mark.parametrize(("size", "kind"), [(4000, "context_overflow"), (4001, "invalid_request")])
def test_a_plain_text_is_searched_up_to_4000_characters(size: int, kind: str) -> None:
    assert fail(400, "maximum context length".rjust(size, "x")).kind == kind


def test_a_large_number_is_a_unix_time_and_a_smaller_one_a_duration() -> None:
    waits = [
        fail(429, "", {"retry-after": number}, now=10.0).retry_after
        for number in ("1000000000", "1000000001", "100000000000", "100000000001")
    ]

    assert waits == [1e9, 1e9 - 9, 1e11 - 10, pytest.approx(0.001 * 100_000_000_001)]


def test_the_code_of_an_inner_error_is_one_of_the_names() -> None:
    inner = {"code": "ResponsibleAIPolicyViolation"}

    said = read_body(json.dumps({"error": {"code": "bad", "innererror": inner}}))

    assert said.names == {"bad", "responsibleaipolicyviolation"}
    assert said.code == "bad"


def test_an_error_inside_a_stream_may_be_a_text() -> None:
    error = classify_event("busy")

    assert (str(error), error.body) == ("busy", "busy")
