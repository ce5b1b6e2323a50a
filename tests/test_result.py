"""The result of a run and its JSON."""

from __future__ import annotations

from typing import Any

import pytest

from glue import Outcome, RunResult, StopReason, Usage, user
from glue.errors import BudgetExceeded, ProviderError
from glue.result import error_to_json, result_to_json


def result(**fields: Any) -> RunResult[Any]:
    given: dict[str, Any] = {
        "messages": (user("hi"),),
        "new_messages": (),
        "text": "x",
        "outcome": Outcome.DONE,
        "stop_reason": StopReason.END_TURN,
        "usage": Usage(input=1, output=2, cost=0.5),
        **fields,
    }
    return RunResult(**given)


def test_unwrap_returns_the_result_of_a_run_without_error() -> None:
    done = result()

    assert done.unwrap() is done


def test_unwrap_raises_the_error_with_the_result() -> None:
    stopped = result(outcome=Outcome.BUDGET, error=BudgetExceeded("usd", 1, 2))

    with pytest.raises(BudgetExceeded) as caught:
        stopped.unwrap()

    assert caught.value.result is stopped


def test_the_cost_and_completeness_are_those_of_usage_and_outcome() -> None:
    assert (result().cost, result().complete) == (0.5, True)
    assert not result(outcome=Outcome.TRUNCATED).complete


def test_the_transcript_is_not_in_the_repr() -> None:
    assert "hi" not in repr(result())


def test_the_json_of_a_result_has_its_outcome_usage_and_error() -> None:
    error = ProviderError("gone", kind="transient", provider="acme")

    data = result_to_json(result(outcome=Outcome.FAILED, error=error, seconds=1.23456), "s")

    assert data == {
        "type": "result",
        "outcome": "failed",
        "exit_code": 1,
        "stop_reason": "end_turn",
        "text": "x",
        "output": None,
        "usage": {
            "input": 1,
            "output": 2,
            "cache_read": None,
            "cache_write": None,
            "reasoning": None,
            "cost": 0.5,
        },
        "cost": 0.5,
        "turns": 0,
        "requests": 0,
        "seconds": 1.235,
        "run_id": "",
        "session": "s",
        "notice": None,
        "error": {"class": "ProviderError", "message": "acme: gone", "kind": "transient"},
    }


def test_the_json_of_an_error_without_kind_has_null() -> None:
    assert error_to_json(ValueError("x")) == {"class": "ValueError", "message": "x", "kind": None}
