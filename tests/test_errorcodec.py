"""`glue.errorcodec`: errors as JSON and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import glue
from glue import errors
from glue.codec import from_json, to_json
from glue.decision import PendingCall
from glue.errorcodec import decode_error, encode_error
from glue.provider import Attempt


def again(error: BaseException) -> Any:
    return decode_error(json.loads(json.dumps(encode_error(error))))


@pytest.mark.parametrize(
    "error",
    [
        errors.MaxTurnsExceeded(4, 4),
        errors.BudgetExceeded("usd", 0.5, 0.6),
        errors.GuardHalted("repeat", 5),
        errors.Stalled(1, 2),
        errors.ContextOverflow(),
        errors.Cancelled(),
        errors.OutputError("no answer", ["x: missing"]),
        errors.RunPaused([PendingCall(id="c", tool="deploy", arguments={"x": 1})], "s"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_class_message_and_attributes(error: errors.GlueError) -> None:
    decoded = again(error)

    assert type(decoded) is type(error)
    assert str(decoded) == str(error)
    for name, value in vars(error).items():
        got = getattr(decoded, name)
        assert got == (list(value) if isinstance(got, list) else value)


def test_an_error_of_a_provider_keeps_usage_and_attempts() -> None:
    attempt = Attempt(provider="acme", model="a-1", kind="overloaded", seconds=0.5)
    error = errors.FailoverError("all failed", kind="overloaded", attempts=[attempt])
    error.usage = glue.Usage(input=3)
    error.status = 503

    decoded = again(error)

    assert (decoded.attempts, decoded.usage, decoded.status) == ((attempt,), error.usage, 503)
    assert decoded.retry_after is None


def test_an_error_of_an_unknown_class_becomes_a_run_error() -> None:
    decoded = decode_error({"class": "FromTheFuture", "message": "new", "fields": {"x": 1}})

    assert type(decoded) is errors.RunError
    assert (str(decoded), decoded.x) == ("new", 1)  # type: ignore[attr-defined]


def test_the_result_on_an_error_is_not_encoded() -> None:
    error = errors.Cancelled()
    error.result = object()  # type: ignore[assignment]

    assert encode_error(error)["fields"] == {}


def test_only_fields_that_differ_from_their_default_are_encoded() -> None:
    attempt = Attempt(provider="acme", kind="overloaded")
    error = errors.FailoverError("all failed", kind="overloaded", attempts=[attempt])
    error.usage = glue.Usage(input=3)

    fields = encode_error(error)["fields"]

    assert fields["attempts"] == [{"provider": "acme", "kind": "overloaded"}]
    assert fields["usage"] == {"input": 3}


def test_an_attribute_of_any_type_can_be_encoded() -> None:
    error = errors.GlueError("odd")
    error.place, error.number = Path("/tmp/x"), 1j  # type: ignore[attr-defined]

    assert encode_error(error)["fields"] == {"place": "/tmp/x", "number": "1j"}


def test_a_record_with_an_error_is_encoded_and_decoded() -> None:
    @dataclass
    class Row:
        error: errors.GlueError | None = None

    decoded = from_json(Row, to_json(Row(errors.ContextOverflow("too long"))))

    assert type(decoded.error) is errors.ContextOverflow
    assert str(decoded.error) == "too long"
