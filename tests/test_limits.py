"""Limits: their values are checked, and a function may supply them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from glue import Limits, Outcome, StopReason, run
from glue.limits import estimate_tokens, override_limits, read_limits
from glue.testing import Script


@pytest.mark.parametrize(
    ("name", "value", "error", "allowed"),
    [
        ("max_turns", -1, ValueError, "0 or more"),
        ("max_turns", "3", TypeError, "None for no limit"),
        ("max_turns", True, TypeError, "a whole number"),
        ("max_turns", 2.5, TypeError, "a whole number"),
        ("max_requests", -1, ValueError, "0 or more"),
        ("grace", None, TypeError, "a whole number"),
        ("token_budget", -5, ValueError, "0 or more"),
        ("usd_budget", "1", TypeError, "a number"),
        ("usd_budget", float("nan"), ValueError, "0 or more"),
        ("seconds", -0.5, ValueError, "0 or more"),
        ("parallel_tools", 0, ValueError, "1 or more"),
        ("repeat_halt", 0, ValueError, "1 or more"),
        ("truncated_batch", "stop", ValueError, "'run' or 'void'"),
        ("tool_choice", "", TypeError, "'auto'"),
        ("tool_choice", 3, TypeError, "'auto'"),
        ("estimator", 4, TypeError, "callable"),
        ("continuation_max_attempts", None, TypeError, "a whole number"),
    ],
)
def test_a_wrong_value_is_an_error_with_the_name_and_the_allowed_values(
    name: str, value: Any, error: type[Exception], allowed: str
) -> None:
    with pytest.raises(error, match=f"^{name} must be .*{allowed}"):
        Limits(**{name: value})


def test_budgets_and_guards_may_be_none() -> None:
    limits = Limits(
        max_turns=None, max_requests=None, seconds=None, repeat_halt=None, error_nudge=None
    )

    assert limits.max_turns is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("budget_usd", "usd_budget"), ("timeout", "seconds"), ("max_turn", "max_turns")],
)
def test_an_unknown_limit_is_an_error_with_a_similar_name(wrong: str, right: str) -> None:
    with pytest.raises(TypeError, match=f"does not take '{wrong}'; did you mean {right}?"):
        Limits(**{wrong: 1})  # type: ignore[arg-type]


def test_read_limits_returns_the_defaults_for_none() -> None:
    assert read_limits(None) == Limits()


def test_read_limits_calls_a_function_each_time() -> None:
    turns = iter([1, 2])

    def source() -> Limits:
        return Limits(max_turns=next(turns))

    assert read_limits(source).max_turns == 1
    assert read_limits(source).max_turns == 2


def test_override_limits_replaces_fields_and_keeps_a_function_a_function() -> None:
    fixed = override_limits(Limits(grace=2), max_turns=5)
    changing = override_limits(lambda: Limits(grace=2), max_turns=5)

    assert fixed == Limits(grace=2, max_turns=5)
    assert callable(changing)
    assert changing() == fixed


def test_stop_reasons_that_end_a_run_have_an_outcome() -> None:
    assert {reason: reason.outcome for reason in StopReason if reason.outcome} == {
        StopReason.CONTEXT_WINDOW: Outcome.CONTEXT_WINDOW,
        StopReason.REFUSAL: Outcome.REFUSED,
        StopReason.CANCELLED: Outcome.CANCELLED,
        StopReason.ERROR: Outcome.FAILED,
    }


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_four_characters_are_estimated_as_one_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


async def test_s075_tokens_are_estimated_by_the_given_function() -> None:
    assert Limits().estimator("x" * 400) == 100
    assert Limits().estimator("") == 0
    assert Limits().estimator("x") == 1

    result = await run(
        Script(),
        "three words here",
        limits=Limits(token_budget=3, estimator=lambda t: len(t.split())),
    )

    assert (result.outcome, result.requests) == ("budget", 0)


@pytest.mark.parametrize("wrong", [0, "", {}, ()])
def test_an_empty_value_is_not_taken_for_missing_limits(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"limits must be a glue\.Limits"):
        read_limits(wrong)


def test_a_run_without_limits_of_its_own_has_these() -> None:
    found = {each.name: getattr(Limits(), each.name) for each in fields(Limits)}

    assert found.pop("estimator") is estimate_tokens
    assert found == {
        "max_turns": 32,
        "max_requests": 50,
        "grace": 0,
        "token_budget": None,
        "usd_budget": None,
        "seconds": None,
        "continuation_max_attempts": 3,
        "continuation_max_output_chars": 120_000,
        "continuation_max_total_completion_tokens": None,
        "continuation_tool_repair_attempts": 1,
        "truncated_batch": "run",
        "tool_choice": "auto",
        "parallel_tools": 8,
        "repeat_nudge": 3,
        "repeat_halt": 5,
        "error_nudge": 3,
        "error_halt": 6,
    }


def test_the_smallest_values_of_limits_are_accepted() -> None:
    for name in ("max_turns", "max_requests", "grace", "token_budget", "usd_budget", "seconds"):
        smallest: dict[str, Any] = {name: 0}
        assert getattr(Limits(**smallest), name) == 0
    for name in ("parallel_tools", "repeat_nudge", "repeat_halt", "error_nudge", "error_halt"):
        smallest = {name: 1}
        assert getattr(Limits(**smallest), name) == 1
    assert (Limits(usd_budget=0.05).usd_budget, Limits(seconds=1.5).seconds) == (0.05, 1.5)


def test_each_outcome_has_an_exit_code_and_perhaps_a_stop_reason() -> None:
    assert {outcome.value: (outcome.exit_code, outcome.tag) for outcome in Outcome} == {
        "done": (0, None),
        "wrapped_up": (0, None),
        "max_turns": (3, StopReason.MAX_TURNS),
        "budget": (3, StopReason.TOKEN_BUDGET),
        "halted": (3, None),
        "stalled": (3, None),
        "context_window": (3, StopReason.CONTEXT_WINDOW),
        "truncated": (4, StopReason.MAX_TOKENS),
        "refused": (5, StopReason.REFUSAL),
        "cancelled": (130, StopReason.CANCELLED),
        "paused": (6, None),
        "failed": (1, StopReason.ERROR),
    }
    assert [outcome for outcome in Outcome if outcome.complete] == ["done", "wrapped_up"]
