"""Progress of a review on a terminal: files read, hunks, findings so far, tokens and cost, in one line."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TextIO

from glue import AssistantMessage, Event
from glue.agents.review.records import Bundle
from glue.events import MessageEnd, RequestStart, ToolEnd


class ReviewProgress:
    """A listener that draws one line again with each step; silent where nobody looks."""

    def __init__(self, bundle: Bundle, file: TextIO | None = None) -> None:
        self.file = file if file is not None else sys.stderr
        self.is_on = self.file.isatty()
        self.hunks = sum(len(each.hunks) for each in bundle.files)
        self.files: set[str] = set()
        self.requests = self.findings = self.tokens = 0
        self.cost = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RequestStart):
            self.requests += 1
        elif isinstance(event, ToolEnd) and not event.message.is_error:
            self.findings += event.call.name == "report_finding"
            with suppress(ValueError, AttributeError, TypeError):
                self.files.add(str(json.loads(event.call.arguments)["path"]) if event.call.name == "read_file" else "")
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage) and event.message.usage:
            self.tokens += event.message.usage.total
            self.cost += event.message.usage.cost or 0.0
        self.draw()

    def __str__(self) -> str:
        files = len(self.files - {""})
        cost = f", ${self.cost:.4f}" if self.cost else ""
        return (
            f"reviewing {self.hunks} hunks: request {self.requests}, {files} files read, "
            f"{self.findings} findings, {self.tokens:,} tokens{cost}"
        )

    def draw(self) -> None:
        if self.is_on:
            self.file.write(f"\r{self}\x1b[K")
            self.file.flush()

    def end(self) -> None:
        """Take the line away."""
        if self.is_on and self.requests:
            self.file.write("\r\x1b[K")
            self.file.flush()
