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
    errors,
    tool,
)
from glue.decision import PendingCall, PermissionRequest
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


def request(tool: str, target: str) -> PermissionRequest:
    return PermissionRequest(tool=tool, action=tool, target=target, arguments={})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.BudgetExceeded("tokens", 10, 12, sent=False),
            "the budget of 10 tokens is too small: the prompt has 12 tokens",
        ),
        (
            errors.BudgetExceeded("seconds", 90, 90.5),
            "the budget of 90 seconds is spent: 90.5 seconds used",
        ),
        (errors.BudgetExceeded("usd", 1, 1234.5), "the budget of $1.00 is spent: $1,234.50 used"),
        (
            errors.BudgetExceeded("usd", 0.0001, 0.0005),
            "the budget of $0.0001 is spent: $0.0005 used",
        ),
        (
            errors.MaxTurnsExceeded(3, 3),
            "max_turns reached: 3 of 3; raise the limit and resume to continue",
        ),
        (
            errors.GuardHalted("repeat", 5),
            "the run was halted after 5 equal calls in a row (guard 'repeat')",
        ),
        (
            errors.GuardHalted("errors", 6),
            "the run was halted after 6 turns with only failed calls in a row (guard 'errors')",
        ),
        (
            errors.Stalled(2, 3),
            "the model replied 3 times in a row without a tool call; StallBudget allows 2",
        ),
        (errors.Cancelled(), "the run was cancelled"),
        (errors.ContextOverflow(), "the transcript no longer fits the model's context window"),
        (errors.EmptyReply(), "the model sent an empty reply"),
        (errors.EmptyReply(provider="acme"), "acme: the model sent an empty reply"),
        (errors.MissingKey("acme", ["A", "B"]), "acme: no key; set A or B"),
        (errors.MissingKey("", ["A"], "set a key"), "set a key"),
        (errors.GitError("git failed"), "git failed"),
        (errors.UnknownProvider("no such name", "opnai", ["openai"]), "no such name"),
        (
            errors.RunPaused(
                [
                    PendingCall(
                        id="a",
                        tool="deploy",
                        arguments={},
                        request=request("deploy", "1.4"),
                    )
                ]
            ),
            (
                "the run waits for 1 call: a (deploy 1.4); answer with "
                "resume(decisions={id: glue.allow()})"
            ),
        ),
        (
            errors.RunPaused([PendingCall(id="a", tool="ext", arguments={})], "s"),
            (
                "session 's' waits for 1 call: a (ext); answer with resume(decisions={id: result}) "
                "or session.reject_pending(reason)"
            ),
        ),
    ],
)
def test_the_message_of_an_error_states_what_happened_and_what_to_do(
    error: GlueError, message: str
) -> None:
    assert str(error) == message


def test_errors_have_their_facts_as_attributes() -> None:
    empty = errors.EmptyReply(provider="acme", model="a-1")
    failed = errors.ProviderError("gone", kind="auth", body="denied")
    last = errors.FailoverError("all failed", kind="timeout", attempts=[])
    limit = errors.MaxTurnsExceeded(3, 4)
    budget = errors.BudgetExceeded("usd", 1, 2)
    guard = errors.GuardHalted("repeat", 5)

    assert (empty.kind, empty.provider, empty.model) == ("empty", "acme", "a-1")
    assert (failed.emitted, failed.ambiguous, failed.answered) == (False, False, True)
    assert (failed.retryable, failed.body, failed.status) == (False, "denied", None)
    assert (last.provider, last.attempts, last.retryable) == ("failover", (), True)
    assert (limit.limit, limit.used, limit.kind) == (3, 4, "turns")
    assert (budget.kind, budget.limit, budget.used) == ("usd", 1, 2)
    assert (guard.kind, guard.count) == ("repeat", 5)
    assert (errors.Stalled(2, 3).budget, errors.Stalled(2, 3).observed) == (2, 3)
    assert errors.OutputError("x", ["a: missing"]).faults == ("a: missing",)
    assert errors.UnknownProvider("x", "opnai", ["openai"]).close == ("openai",)
    assert errors.MissingKey("acme", ["A"]).variables == ("A",)
    assert (errors.GitError("x").kind, errors.GitError("x", kind="missing").kind) == (
        "failed",
        "missing",
    )


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "transient", "timeout", "empty"])
def test_a_request_may_be_repeated_after_these_failures(kind: Any) -> None:
    assert ProviderError("x", kind=kind).retryable
    assert not ProviderError("x", kind=kind, retryable=False).retryable


def test_a_result_is_attached_to_an_error() -> None:
    error = errors.Cancelled()
    attach_result(error, None)

    assert error.result is None
    assert innermost(error) is error
