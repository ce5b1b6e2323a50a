"""The end of a prompt in the protocol's words: one function from an outcome to a stop reason."""

from __future__ import annotations

from typing import Any

from glue.acp.rpc import AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, RpcError
from glue.errors import ConfigError, MissingKey, ProviderError
from glue.limits import Outcome
from glue.result import RunResult

STOP_REASONS = {
    Outcome.DONE: "end_turn",
    Outcome.WRAPPED_UP: "end_turn",
    Outcome.MAX_TURNS: "max_turn_requests",
    Outcome.BUDGET: "max_tokens",
    Outcome.HALTED: "end_turn",
    Outcome.STALLED: "end_turn",
    Outcome.CONTEXT_WINDOW: "max_tokens",
    Outcome.TRUNCATED: "max_tokens",
    Outcome.REFUSED: "refusal",
    Outcome.CANCELLED: "cancelled",
}


def answer(result: RunResult[Any]) -> dict[str, Any]:
    """Give the protocol's stop reason for an outcome; a failure is an error with what is known of it."""
    if result.outcome is Outcome.FAILED:
        raise failure(result.error, result)
    usage = result.usage
    meta = {
        **(dict(result.meta) if result.meta else {}),
        "outcome": str(result.outcome),
        "turns": result.turns,
        "requests": result.requests,
        "usage": {"inputTokens": usage.input, "outputTokens": usage.output, "totalTokens": usage.total},
        **({"cost": result.cost} if result.cost is not None else {}),
        **({"notice": result.notice} if result.notice else {}),
        **({"detail": str(result.error)} if result.error else {}),
    }
    return {"stopReason": STOP_REASONS[result.outcome], "_meta": meta}


def plain(outcome: Outcome) -> dict[str, Any]:
    """Answer a prompt that no model was asked about."""
    return {"stopReason": STOP_REASONS[outcome], "_meta": {"outcome": str(outcome)}}


def failure(error: BaseException | None, result: RunResult[Any] | None = None) -> RpcError:
    """Make the error that a request is answered with."""
    data: dict[str, Any] = {"outcome": str(Outcome.FAILED), "error": type(error).__name__}
    code = INTERNAL
    if isinstance(error, ProviderError):
        data |= {"kind": error.kind, "provider": error.provider, "model": error.model, "status": error.status}
        code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL
    elif isinstance(error, ConfigError):
        code = AUTH_REQUIRED if isinstance(error, MissingKey) else INVALID_PARAMS
    if result is not None:
        data |= {"turns": result.turns, "requests": result.requests}
    return RpcError(code, str(error or "the run failed"), data)
