"""Transcripts for tests of the viewer, and a parser of its HTML pages."""

from __future__ import annotations

from html.parser import HTMLParser

import glue
from glue.messages import (
    AssistantMessage,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
    user,
)
from glue.provider import Attempt
from glue.view.transcript import Note, ShownMessage, Transcript


class Page(HTMLParser):
    """A parsed page: its tags and its text. The parser checks that every tag is closed."""

    VOID = frozenset(("meta", "input", "img", "br"))

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID and not (self.stack and self.stack[-1] == "svg" and tag == "rect"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.tags
            if name == tag and set(kind.split()) <= set((attrs.get("class") or "").split())
        ]


def parse(html: str) -> Page:
    parsed = Page(html)
    assert parsed.stack == []
    return parsed


def transcript(*messages: Message, **known: object) -> Transcript:
    items = tuple(ShownMessage(message=message) for message in messages)
    return Transcript(title="demo", source="messages", items=items, **known)  # type: ignore[arg-type]


def reply(*content: Part, **fields: object) -> AssistantMessage:
    return AssistantMessage(content=content, **fields)  # type: ignore[arg-type]


def result(call_id: str, text: str, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="look", content=(Text(text=text),), is_error=is_error)


def small_transcript() -> Transcript:
    """Return a transcript with a call, a failed call, an attempt, a continuation and a failure."""
    usage = Usage(input=1200, output=80, cache_read=1000, reasoning=12, cost=0.0031)
    asks = (
        ToolCall(id="c1", name="look", arguments='{"path": "a.py", "lines": [1, 2]}'),
        ToolCall(id="c2", name="look", arguments="{}"),
    )
    tried = Attempt(
        provider="one",
        model="m",
        kind="rate_limited",
        detail="HTTP 429: slow down",
        delay=2.0,
        seconds=0.5,
    )
    return Transcript(
        title="demo",
        source="session",
        created=1_700_000_000.0,
        items=(
            ShownMessage(message=user("What is in a.py?"), at=1_700_000_000.0),
            ShownMessage(
                message=reply(
                    Thinking(text="I should look."),
                    Text(text="Looking:\n\n```python\nprint(1)\n```\nSo."),
                    *asks,
                    usage=usage,
                    provider="two",
                    model="m-1",
                    stop_reason=glue.StopReason.TOOL_USE,
                ),
                at=1_700_000_003.5,
                attempts=(tried,),
            ),
            ShownMessage(message=result("c1", "print(1)\n"), at=1_700_000_003.9),
            ShownMessage(message=result("c2", "no path", is_error=True), at=1_700_000_003.9),
            ShownMessage(
                message=reply(
                    Text(text="It prints"),
                    stop_reason=glue.StopReason.MAX_TOKENS,
                    raw_stop_reason="length",
                ),
                at=1_700_000_010.0,
            ),
            ShownMessage(message=user("Go on.", origin="continue"), at=1_700_000_010.001),
            ShownMessage(
                message=reply(Text(text=" one."), provider="two", model="m-1"), at=1_700_000_011.0
            ),
            Note(kind="failed", text="two: overloaded: HTTP 529"),
        ),
    )
