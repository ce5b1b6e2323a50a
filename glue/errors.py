"""The classes of errors that glue raises.

GlueError
├── ProviderError           a request failed, or its reply cannot be read; `kind` is the reason
│   ├── EmptyReply          the model sent an empty reply at every attempt
│   └── FailoverError       every provider of a failover list failed; see `attempts`
├── RunError                a run ended before its answer; `result` has its transcript
│   ├── MaxTurnsExceeded
│   ├── BudgetExceeded
│   ├── GuardHalted
│   ├── Stalled
│   ├── ContextOverflow
│   ├── Cancelled
│   └── RunPaused           calls wait for a decision or a result; `pending` lists them
├── OutputError             the answer does not fit the type or schema of `output=`
├── InvalidContinuation     a transcript cannot be resumed: its last run is complete, for example
├── ToolError               a mistake of the model: a tool raises it, and the model sees it
├── ConfigError             a name, a key, a URL or a file that the user has to correct
│   ├── UnknownProvider
│   └── MissingKey
├── PromptError             a prompt, or a version of it, does not exist
├── StoreError              a transcript cannot be read or written
│   ├── SessionBusy         another prompt or process uses the session
│   └── NewerSchema         a newer version of glue wrote the session: it cannot be changed
├── UnsafePath              a path is outside the root, or is not a regular file
├── GitError                git failed; `kind` is the reason
└── ReplayError             a cassette cannot be used, or a request is not in it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from glue.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from glue.decision import PendingCall
    from glue.messages import Usage
    from glue.provider import Attempt
    from glue.result import RunResult

# The names that users need. The other names are only for the folders of this repository.
__all__ = [
    "BudgetExceeded",
    "Cancelled",
    "ConfigError",
    "ContextOverflow",
    "EmptyReply",
    "ErrorKind",
    "FailoverError",
    "GitError",
    "GitErrorKind",
    "GlueError",
    "GuardHalted",
    "InvalidContinuation",
    "MaxTurnsExceeded",
    "MissingKey",
    "NewerSchema",
    "OutputError",
    "PromptError",
    "ProviderError",
    "ReplayError",
    "RunError",
    "RunPaused",
    "SessionBusy",
    "Stalled",
    "StoreError",
    "ToolError",
    "UnknownProvider",
    "UnsafePath",
]

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


GitErrorKind: TypeAlias = Literal[
    "failed", "missing", "timeout", "too_large", "memory", "damaged", "unsafe", "usage"
]


# The parameters of ProviderError that are stored with its message, to create the error again.
PROVIDER_ERROR_FIELDS = tuple(
    "kind provider model status code retry_after request_id emitted retryable body".split()
)


class GlueError(Exception):
    """The base class of all errors of glue.

    `result` is the result of the run that the error ended, or None if no run had begun.
    """

    result: RunResult[Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle must not call `__init__`, whose parameters differ from class to class.
        return type(self).__new__, (type(self), *self.args), self.__dict__


def attach_result(error: BaseException, result: RunResult[Any] | None) -> None:
    """Set `error.result` to `result`, if the class of the error allows new attributes."""
    try:
        error.result = result  # type: ignore[attr-defined]
    except AttributeError:
        return  # the class has slots


def innermost(error: BaseException) -> BaseException:
    """Return the most serious error in an exception group, or `error` if it is not a group.

    The most serious error is the first that is not an `Exception`, such as KeyboardInterrupt, or
    else the first error. If it is a group, choose from it in the same way.
    """
    while isinstance(error, BaseExceptionGroup):
        error = next(
            (each for each in error.exceptions if not isinstance(each, Exception)),
            error.exceptions[0],
        )
    return error


class ProviderError(GlueError):
    """A request to a model failed, or its reply cannot be read.

    try:
        result = await agent.run("Hello")
    except ProviderError as error:
        if error.kind == "quota":
            ...
    """

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
        self.code = code  # the server's own code, such as "insufficient_quota"
        self.retry_after = retry_after  # seconds, as the server advised
        self.request_id = request_id
        self.emitted = emitted  # whether the caller has already seen a part of the reply
        self.retryable = kind in ("rate_limited", "overloaded", "transient", "timeout", "empty")
        if retryable is not None:  # the server sent this value, or waiting does not help
            self.retryable = retryable
        self.ambiguous = False  # whether the server may have processed the request nevertheless
        self.answered = True  # False if the connection failed before the response began
        self.usage = usage
        self.body = body  # the server's response, shortened, with keys masked


class EmptyReply(ProviderError):
    """The model sent an empty reply at every attempt."""

    def __init__(
        self, message: str = "the model sent an empty reply", *, provider: str = "", model: str = ""
    ) -> None:
        super().__init__(message, kind="empty", provider=provider, model=model)


class FailoverError(ProviderError):
    """Every provider of a failover list failed.

    `kind` is the kind of the last failure, or "context_overflow" if any failure had this kind.
    """

    def __init__(self, message: str, *, kind: ErrorKind, attempts: Sequence[Attempt]) -> None:
        super().__init__(message, kind=kind, provider="failover")
        self.attempts = tuple(attempts)


class RunError(GlueError):
    """A run ended before the model gave its answer."""


class MaxTurnsExceeded(RunError):
    """A run reached `max_turns` or `max_requests`; `kind` is "turns" or "requests"."""

    def __init__(self, limit: int, used: int, kind: str = "turns") -> None:
        super().__init__(
            f"max_{kind} reached: {used} of {limit}; raise the limit and resume to continue"
        )
        self.limit, self.used, self.kind = limit, used, kind


class BudgetExceeded(RunError):
    """A run reached a limit of its budget; `kind` is "tokens", "usd" or "seconds"."""

    def __init__(self, kind: str, limit: float, used: float, *, sent: bool = True) -> None:
        amount = _amount(used, kind)
        spent = f"is spent: {amount} used" if sent else f"is too small: the prompt has {amount}"
        super().__init__(f"the budget of {_amount(limit, kind)} {spent}")
        self.kind, self.limit, self.used = kind, limit, used


def _amount(value: float, kind: str) -> str:
    """Return an amount of a budget as text: "$0.05", "20,000 tokens" or "90 seconds"."""
    if kind == "usd":
        whole, _, cents = f"{value:,.4f}".rstrip("0").partition(".")
        return f"${whole}.{cents:0<2}"
    return count(round(value), "token") if kind == "tokens" else f"{round(value, 3):g} {kind}"


class GuardHalted(RunError):
    """The policy `Guards` ended the run after equal calls or failed turns in a row.

    `kind` is "repeat" for equal calls, or "errors" for turns in which all calls failed.
    """

    def __init__(self, kind: str, count: int) -> None:
        what = "equal calls" if kind == "repeat" else "turns with only failed calls"
        super().__init__(f"the run was halted after {count} {what} in a row (guard {kind!r})")
        self.kind, self.count = kind, count


class Stalled(RunError):
    """The policy `StallBudget` ended the run: too many replies in a row without a tool call."""

    def __init__(self, budget: int, observed: int) -> None:
        super().__init__(
            f"the model replied {observed} times in a row without a tool call; "
            f"StallBudget allows {budget}"
        )
        self.budget, self.observed = budget, observed


class ContextOverflow(RunError):
    """The transcript does not fit the context window, and could not be compacted."""

    def __init__(
        self, message: str = "the transcript no longer fits the model's context window"
    ) -> None:
        super().__init__(message)


class Cancelled(RunError):
    """The run was cancelled: by its `Cancel` token, its task, a hook, or the provider."""

    def __init__(self, message: str = "the run was cancelled") -> None:
        super().__init__(message)


class RunPaused(RunError):
    """The run waits for decisions on tool calls, or for their results."""

    def __init__(self, pending: Sequence[PendingCall] = (), session: str = "") -> None:
        where = f"session {session!r}" if session else "the run"
        calls = ", ".join(f"{call.id} ({call.summary})" for call in pending)
        # An external tool has no request to decide on: the caller supplies its result instead.
        forms = {"result" if call.request is None else "glue.allow()" for call in pending}
        answers = ", ".join(f"id: {form}" for form in sorted(forms))
        reject = " or session.reject_pending(reason)" if session else ""
        super().__init__(
            f"{where} waits for {count(len(pending), 'call')}: {calls}; "
            f"answer with resume(decisions={{{answers}}}){reject}"
        )
        self.pending = tuple(pending)


class OutputError(GlueError):
    """The answer does not fit `output=`, and the model could not correct it."""

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class InvalidContinuation(GlueError):
    """A transcript cannot be resumed: it is empty, or its last run was refused or is complete."""


class ToolError(GlueError):
    """A tool raises this for a mistake of the model. The model gets the text as an error result.

    @tool
    async def price(article: str) -> float:
        "Return the price of an article."
        if article not in PRICES:
            raise ToolError(f"there is no article {article!r}; search for it first")
        return PRICES[article]
    """


class ConfigError(GlueError):
    """The user has to correct a name, a key, a URL or a file."""


class UnknownProvider(ConfigError):
    """The name of a provider is not in the catalog. `close` contains similar names."""

    def __init__(self, message: str, name: str, close: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.name, self.close = name, tuple(close)


class MissingKey(ConfigError):
    """A provider needs an API key, and none of its environment variables is set.

    `provider` is "" if the user named no provider.
    """

    def __init__(self, provider: str, variables: Sequence[str], message: str = "") -> None:
        names = " or ".join(variables)
        super().__init__(message or f"{provider}: no key; set {names}")
        self.provider, self.variables = provider, tuple(variables)


class PromptError(GlueError):
    """A prompt, or a version of it, does not exist."""


class StoreError(GlueError):
    """A transcript cannot be read or written."""


class SessionBusy(StoreError):
    """Another prompt or another process uses the session."""


class NewerSchema(StoreError):
    """A newer version of glue wrote the session, so this version can read but not change it."""


class UnsafePath(GlueError):
    """A path is outside the root folder, or does not lead to a regular file."""


class GitError(GlueError):
    """git failed, timed out or wrote too much output; `kind` is the reason."""

    def __init__(self, message: str, *, kind: GitErrorKind = "failed") -> None:
        super().__init__(message)
        self.kind = kind


class ReplayError(GlueError):
    """A cassette cannot be used, or the requests of a program differ from those in it."""
