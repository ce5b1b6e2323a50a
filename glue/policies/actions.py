"""The rarer actions of policies (Poll, Change, Rewrite, Deliver), and the type of all actions.

The rarer actions are loaded at first use, because few runs have them and each takes a third of a
millisecond to define.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from glue.messages import Message, Request, UserMessage, user
from glue.policies.policy import Say, Stop

Waiting: TypeAlias = str | UserMessage | Sequence[str | UserMessage] | None
# A function that returns the waiting messages of a queue. It may be async.
Source: TypeAlias = Callable[[], Waiting | Awaitable[Waiting]]


@dataclass(frozen=True, slots=True)
class Poll:
    """An action of a policy: the loop calls `source` and adds the returned messages, as for `Say`.

    The loop calls `source` only if it is going to store the messages, so the source may forget
    the messages that it returns. If the source does not forget them, `sent`, which the loop calls
    with each stored message, has to remove the message from the source.
    """

    source: Source
    origin: str
    sent: Callable[[UserMessage], object] | None = None

    def say(self, waiting: Waiting) -> Say:
        """Return a `Say` of `waiting`, which `source` returned; strings in it become messages."""
        given = (waiting,) if isinstance(waiting, str | UserMessage) else waiting or ()
        messages = [user(each) if isinstance(each, str) else each for each in given]
        # Only the prompt of a run has the origin "user".
        own = (
            replace(each, origin=self.origin) if getattr(each, "origin", "") == "user" else each
            for each in messages
        )
        return Say(tuple(own), self.sent)


@dataclass(frozen=True, slots=True)
class Change:
    """An action of a policy: replace the planned request. The next policies get `request`."""

    request: Request

    def __post_init__(self) -> None:
        if not isinstance(self.request, Request):
            raise TypeError(f"Change takes a glue.Request, not {self.request!r}")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An action of a policy: a transcript that replaces the current transcript (compaction)."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Deliver:
    """An action of a policy: end the run with `text` as its answer, stored as a result of `tool`.

    `tool` is the name of the delivery tool, which the model did not call. The tool is not run.
    """

    tool: str
    text: str


Action: TypeAlias = Say | Poll | Stop | Change | Rewrite | Deliver | None  # None: do nothing
Hook: TypeAlias = Action | Awaitable[Action]  # the return type of a hook, which may be async
