"""The line on a terminal that shows the progress of a review."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from glue import AssistantMessage
from glue.agents.review.records import Bundle
from glue.cli.screen import ProgressLine, Screen
from glue.events import Event, MessageEnd, RequestStart, ToolEnd
from glue.text import format_dollars


class ReviewProgress:
    """A listener that keeps one progress line up to date if the output is a terminal."""

    def __init__(self, bundle: Bundle, screen: Screen | None = None) -> None:
        self.line = ProgressLine(screen or Screen(sys.stderr))
        self.hunks = sum(len(diff.hunks) for diff in bundle.files)
        self.files: set[str] = set()
        self.requests = self.findings = self.tokens = 0
        self.cost = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RequestStart):
            self.requests += 1
        elif isinstance(event, ToolEnd) and not event.message.is_error:
            if event.call.name == "report_finding":
                self.findings += 1
            elif event.call.name == "read_file":
                with suppress(ValueError, TypeError):
                    self.files.add(str(json.loads(event.call.arguments)["path"]))
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            usage = event.message.usage
            if usage:
                self.tokens += usage.total
                self.cost += usage.cost or 0.0
        self.line.draw(str(self))

    def __str__(self) -> str:
        cost = f", {format_dollars(self.cost)}" if self.cost else ""
        return (
            f"reviewing {self.hunks} hunks: request {self.requests}, {len(self.files)} files read, "
            f"{self.findings} findings, {self.tokens:,} tokens{cost}"
        )

    def end(self) -> None:
        """Erase the progress line."""
        self.line.hide()
