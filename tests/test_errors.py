"""Errors: messages, pickling, results, and groups."""

from __future__ import annotations

import pickle
from typing import Any

import anyio
import pytest

import glue
from glue import (
    Agent,
    Limits,
    Outcome,
    Usage,
    tool,
)
from glue.errors import (
    BudgetExceeded,
    Cancelled,
    EmptyReply,
    GlueError,
    MaxTurnsExceeded,
    MissingKey,
    ProviderError,
    RunError,
    attach_result,
    innermost,
)
from glue.testing import Script, calls, repeat, say


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BudgetExceeded("usd", 0.05, 0.2), "the budget of $0.05 is spent: $0.20 used"),
        (BudgetExceeded("tokens", 1, 1), "the budget of 1 token is spent: 1 token used"),
        (
            BudgetExceeded("tokens", 20000, 20001),
            "the budget of 20,000 tokens is spent: 20,001 tokens used",
        ),
    ],
)
def test_a_spent_budget_is_printed_with_its_unit(error: BudgetExceeded, message: str) -> None:
    assert str(error) == message


def test_a_run_without_budget_raises_an_error_that_names_the_budget() -> None:
    usage = Usage(input=1, output=1, cost=0.2)
    agent = Agent(Script(say("x", usage=usage)), limits=Limits(usd_budget=0.05))

    with pytest.raises(RunError) as raised:
        agent.run_sync("hi", unwrap=True, limits=Limits(usd_budget=0.0))

    assert "$0.00" in str(raised.value)
    assert raised.value.result.outcome is Outcome.BUDGET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("gone", kind="transient", provider="acme", status=503, retry_after=2.0),
        BudgetExceeded("tokens", 10, 12, sent=False),
        MissingKey("acme", ["ACME_KEY", "ACME_TOKEN"]),
    ],
)
def test_errors_can_be_pickled_with_their_attributes(error: GlueError) -> None:
    copied: Any = pickle.loads(pickle.dumps(error))

    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [("transient", None, True), ("auth", None, False), ("rate_limited", False, False)],
)
def test_an_error_is_retryable_by_its_kind_unless_the_server_decides(
    kind: Any, given: bool | None, expected: bool
) -> None:
    assert ProviderError("x", kind=kind, retryable=given).retryable is expected


def test_the_error_of_a_limit_tells_how_to_continue() -> None:
    error = MaxTurnsExceeded(5, 5, "requests")

    assert str(error) == "max_requests reached: 5 of 5; raise the limit and resume to continue"


def test_the_innermost_error_of_groups_is_the_first() -> None:
    error = ExceptionGroup("a", [ExceptionGroup("b", [KeyError("x"), OSError("y")])])

    assert repr(innermost(error)) == "KeyError('x')"
    assert innermost(error.exceptions[0].exceptions[1]).args == ("y",)


def test_an_interrupt_precedes_other_errors_of_a_group() -> None:
    error = BaseExceptionGroup("a", [ValueError("x"), KeyboardInterrupt()])

    assert isinstance(innermost(error), KeyboardInterrupt)


def test_a_result_is_not_attached_to_an_error_that_has_no_room_for_it() -> None:
    class Slotted(BaseException):
        @property
        def result(self) -> None:
            return None

    error = Slotted()

    attach_result(error, None)

    assert error.result is None


@tool
async def pause() -> str:
    """Pause, so that other tasks run."""
    await anyio.lowlevel.checkpoint()
    return "ok"


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("no", kind="auth", provider="p", model="m", status=401, retry_after=1.5),
        EmptyReply(provider="p"),
        MaxTurnsExceeded(3, 3),
        BudgetExceeded("usd", 1.0, 2.0),
        glue.errors.FailoverError("all", kind="auth", attempts=()),
        glue.errors.MissingKey("p", ["KEY"]),
        glue.errors.UnknownProvider("no p", "p", ["q"]),
        glue.errors.OutputError("no", ["a"]),
        Cancelled(),
    ],
)
def test_errors_survive_a_pickle(error: GlueError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


async def test_an_error_with_a_result_survives_a_pickle() -> None:
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Agent(Script(repeat(calls("pause"))), tools=[pause], limits=Limits(max_turns=1)).run(
            "go"
        )

    again = pickle.loads(pickle.dumps(caught.value))

    assert caught.value.result is not None
    assert again.result.messages == caught.value.result.messages
    assert again.result.error is again
