"""Events of long tool calls: the progress of a tool, and a call that waits for a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glue.decision import PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    """Progress of a running tool. If the tool is an agent, `event` is an event of its run."""

    call_id: str
    name: str
    text: str = ""
    data: Any = None
    event: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPending:
    """A tool call that waits for a decision or for a result from outside the run.

    The run ends with the outcome `paused`.
    """

    call: PendingCall
