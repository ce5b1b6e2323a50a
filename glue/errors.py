"""Errors: every class that is raised on purpose.

GlueError
├── ProviderError           a model could not be asked; `kind` says why
│   ├── EmptyReply          nothing visible came back, after every try
│   └── FailoverError       every provider of a chain failed; `attempts` says how
├── RunError                a run ended early; `result` holds what there is
│   ├── MaxTurnsExceeded
│   ├── BudgetExceeded
│   ├── GuardHalted
│   ├── Stalled
│   ├── ContextOverflow
│   └── Cancelled
├── OutputError             the reply never fitted the asked-for type
├── InvalidContinuation     there is nothing to go on from
├── ToolError               what a model got wrong; goes back to the model
├── ConfigError             a name, a key, a URL or a file that the user has to mend
│   ├── UnknownProvider
│   └── MissingKey
├── PromptError             a prompt or a version that does not exist
├── StoreError              a transcript that cannot be read or written
│   ├── SessionBusy         another prompt, or another process, holds the session
│   └── NewerSchema         written by a newer version: may be read, not changed
├── UnsafePath              a path that leads outside, or to what is no regular file
├── GitError                git refused, timed out or said too much; `kind` says which
└── ReplayError             a program departed from its cassette
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from glue.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glue.events import RunResult
    from glue.messages import Usage
    from glue.provider import Attempt

ErrorKind: TypeAlias = Literal[
    "auth",
    "quota",
    "rate_limited",
    "overloaded",
    "transient",
    "timeout",
    "invalid_request",
    "not_found",
    "context_overflow",
    "content_filter",
    "protocol",
    "empty",
]


GitErrorKind: TypeAlias = Literal["failed", "missing", "timeout", "too_large", "memory", "damaged", "unsafe", "usage"]


# What a provider's error is made of besides its text, for whoever writes one down and makes it again.
PROVIDER_ERROR_FIELDS = tuple("kind provider model status code retry_after request_id emitted retryable body".split())


class GlueError(Exception):
    """The root of all errors of this package. `result` is set where a run was under way."""

    result: RunResult[Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).__new__, (type(self), *self.args), self.__dict__  # whatever the class's own __init__ takes


def attach_result(error: BaseException, result: RunResult[Any] | None) -> None:
    """Put what a run has produced on the error that ends it."""
    try:
        error.result = result  # type: ignore[attr-defined]
    except AttributeError:
        return  # a class with slots


def innermost(error: BaseException) -> BaseException:
    """Give the first error inside groups, which say less than it; a signal such as Ctrl-C goes before it."""
    while isinstance(error, BaseExceptionGroup):
        error = next((each for each in error.exceptions if not isinstance(each, Exception)), error.exceptions[0])
    return error


class ProviderError(GlueError):
    """A model could not be asked, or its answer could not be read."""

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        emitted: bool = False,
        retryable: bool | None = None,
        usage: Usage | None = None,
        body: str = "",
    ) -> None:
        super().__init__(f"{provider}: {message}" if provider else message)
        self.kind = kind
        self.provider = provider
        self.model = model
        self.status = status
        self.code = code  # what the server itself calls the error, such as "insufficient_quota"
        self.retry_after = retry_after  # seconds, as the server advised
        self.request_id = request_id
        self.emitted = emitted  # whether the caller had already seen some of the answer
        self.retryable = kind in ("rate_limited", "overloaded", "transient", "timeout", "empty")
        if retryable is not None:  # the server's own word, or a limit that waiting does not mend
            self.retryable = retryable
        self.ambiguous = False  # whether the server may have done all the same what was asked
        self.usage = usage
        self.body = body  # what the server said, shortened, keys masked


class EmptyReply(ProviderError):
    def __init__(self, message: str = "the model said nothing", *, provider: str = "", model: str = "") -> None:
        super().__init__(message, kind="empty", provider=provider, model=model)


class FailoverError(ProviderError):
    """Every provider of a chain failed. `kind` is that of the last failure, or an overflow if there was one."""

    def __init__(self, message: str, *, kind: ErrorKind, attempts: Sequence[Attempt]) -> None:
        super().__init__(message, kind=kind, provider="failover")
        self.attempts = tuple(attempts)


class RunError(GlueError):
    """A run ended before the model was done."""


class MaxTurnsExceeded(RunError):
    def __init__(self, limit: int, used: int, kind: str = "turns") -> None:
        super().__init__(f"max_{kind} reached: {used} of {limit}; raise the limit and resume to go on")
        self.limit, self.used, self.kind = limit, used, kind


class BudgetExceeded(RunError):
    def __init__(self, kind: str, limit: float, used: float, *, sent: bool = True) -> None:
        amount = _amount(used, kind)
        spent = f"is spent: {amount} used" if sent else f"is too small: the prompt has {amount}"
        super().__init__(f"the budget of {_amount(limit, kind)} {spent}")
        self.kind, self.limit, self.used = kind, limit, used


def _amount(value: float, kind: str) -> str:
    """Write a sum as people do: $0.05, 20,000 tokens, 90 seconds."""
    if kind == "usd":
        whole, _, cents = f"{value:,.4f}".rstrip("0").partition(".")
        return f"${whole}.{cents:0<2}"
    return count(round(value), "token") if kind == "tokens" else f"{round(value, 3):g} {kind}"


class GuardHalted(RunError):
    def __init__(self, kind: str, count: int) -> None:
        super().__init__(f"stopped by the {kind} guard after {count} in a row")
        self.kind, self.count = kind, count


class Stalled(RunError):
    def __init__(self, budget: int, observed: int) -> None:
        super().__init__(f"the model settled {observed} times without a tool call; {budget} allowed")
        self.budget, self.observed = budget, observed


class ContextOverflow(RunError):
    def __init__(self, message: str = "the transcript no longer fits the model's context window") -> None:
        super().__init__(message)


class Cancelled(RunError):
    def __init__(self, message: str = "the run was cancelled") -> None:
        super().__init__(message)


class OutputError(GlueError):
    """The reply never fitted the type that `output=` asked for."""

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class InvalidContinuation(GlueError):
    """There is no prompt or tool result that a model could answer."""


class ToolError(GlueError):
    """Raised by a tool: the text goes to the model as an error result."""


class ConfigError(GlueError):
    """The user has to mend a name, a key, a URL or a file."""


class UnknownProvider(ConfigError):
    def __init__(self, message: str, name: str, close: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.name, self.close = name, tuple(close)


class MissingKey(ConfigError):
    def __init__(self, provider: str, variables: Sequence[str]) -> None:
        names = " or ".join(variables)
        super().__init__(f"{provider}: no key; set {names}")
        self.provider, self.variables = provider, tuple(variables)


class PromptError(GlueError):
    """A prompt, or a version of it, that does not exist."""


class StoreError(GlueError):
    """A transcript that cannot be read or written."""


class SessionBusy(StoreError):
    """Another prompt, or another process, holds the session."""


class NewerSchema(StoreError):
    """Written by a newer version of glue."""


class UnsafePath(GlueError):
    """A path that leads outside the root, or to what is no regular file."""


class GitError(GlueError):
    """git refused, timed out or said too much; `kind` says which."""

    def __init__(self, message: str, *, kind: GitErrorKind = "failed") -> None:
        super().__init__(message)
        self.kind = kind


class ReplayError(GlueError):
    """A program departed from its cassette."""
