"""The result of a run and its JSON."""

from __future__ import annotations

from typing import Any

import pytest

from glue import AssistantMessage, Outcome, RunResult, StopReason, Text, ToolCall, Usage, user
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


def test_the_repr_is_one_short_line_with_the_answer_the_model_and_the_cost() -> None:
    reply = AssistantMessage(content=(Text(text="x" * 500),), model="m-1")
    long = result(text="x" * 500, new_messages=(user("hi"), reply), turns=1)

    assert repr(result()) == "RunResult(done: 'x', 0 turns, 1 tokens in, 2 out, $0.5000)"
    assert repr(long).startswith("RunResult(done: 'xxx")
    assert repr(long).endswith("…, m-1, 1 turn, 1 tokens in, 2 out, $0.5000)")
    assert len(repr(long)) < 180


def test_the_repr_names_the_error_and_the_notice() -> None:
    failed = result(outcome=Outcome.FAILED, error=ProviderError("gone", kind="empty"), notice="cut")

    assert "notice: cut, error: ProviderError('gone'))" in repr(failed)


def test_the_reply_and_the_model_are_those_of_the_last_reply_of_the_run() -> None:
    first, last = (
        AssistantMessage(content=(Text(text=text),), model=f"m-{text}") for text in ("1", "2")
    )

    done = result(new_messages=(user("hi"), first, last))

    assert (done.reply, done.model) == (last, "m-2")


def test_a_run_without_a_reply_has_no_model() -> None:
    failed = result(outcome=Outcome.FAILED)

    assert failed.model == ""
    with pytest.raises(ValueError, match="the run has no reply: it ended with the outcome failed"):
        _ = failed.reply


def test_the_json_of_a_result_has_its_outcome_usage_and_error() -> None:
    error = ProviderError("gone", kind="transient", provider="acme")

    data = result_to_json(result(outcome=Outcome.FAILED, error=error, seconds=1.23456), "s")

    assert data == {
        "type": "result",
        "outcome": "failed",
        "exit_code": 1,
        "stop_reason": "end_turn",
        "model": None,
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


def test_only_a_paused_run_has_pending_calls() -> None:
    waiting = ToolCall(id="1", name="deploy", arguments="{}")
    meta = {"pending": {"1": {"arguments": {}, "deferred": True}}}
    messages = (user("hi"), AssistantMessage(content=(waiting,), meta=meta))

    paused = result(messages=messages, outcome=Outcome.PAUSED)
    cancelled = result(messages=messages, outcome=Outcome.CANCELLED)

    assert [each.id for each in paused.pending] == ["1"]
    assert cancelled.pending == ()


def test_the_repr_shortens_a_long_answer_notice_and_error() -> None:
    error = ProviderError("e" * 300, kind="empty")
    shown = repr(result(text="x" * 300, notice="n" * 300, error=error, outcome=Outcome.FAILED))

    assert shown == (
        f"RunResult(failed: '{'x' * 98}…, 0 turns, 1 tokens in, 2 out, $0.5000, "
        f"notice: {'n' * 99}…, error: ProviderError('{'e' * 184}…)"
    )


def test_a_result_counts_nothing_by_default() -> None:
    done = result()

    counted = (done.turns, done.requests, done.continuations, done.repairs, done.seconds)
    assert counted == (0, 0, 0, 0, 0.0)


def test_the_repr_shows_the_output_in_place_of_the_text() -> None:
    assert repr(result(text="{}", output=[7])).startswith("RunResult(done: [7], ")


def test_the_json_of_a_result_without_error_or_reply_has_null() -> None:
    data = result_to_json(result(stop_reason=None, output=(1, 2)))

    assert (data["stop_reason"], data["error"], data["session"]) == (None, None, None)
    assert data["output"] == [1, 2]
