"""The pieces of a message as HTML. Every text of a stranger passes through `escape`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping

from glue.types import File, Image, Json, Opaque, Part, Text, Thinking, ToolCall, ToolMessage, Unknown
from glue.view.escape import count, dollars, escape, one_line, seconds, split
from glue.view.model import Entry, usage_of

# What the bytes must begin with for a picture to be shown; anything else is named, never loaded.
_PICTURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_FENCE = re.compile(r"^ {0,3}(```|~~~)[^\n]*\n?", re.MULTILINE)
_META_SHOWN_ELSEWHERE = frozenset(("attempts", "usage", "placeholder"))


def prose(text: str) -> str:
    """Show what was said: plain text, with fenced code set apart."""
    head, rest = split(text)
    fenced = len(_FENCE.findall(head)) % 2 == 1
    return _fenced(head, False) + _rest(len(text), _fenced(rest, fenced) if rest else "")


def _fenced(text: str, inside: bool) -> str:
    out = []
    for piece in _FENCE.split(text)[::2]:
        if piece.strip():
            out.append(_pre(piece.strip("\n"), "code" if inside else "text"))
        inside = not inside
    return "".join(out)


def literal(text: str) -> str:
    """Show a text exactly, the rest of a long one behind "show all"."""
    if not text:
        return '<p class="none">empty</p>'
    head, rest = split(text)
    return _pre(head, "raw") + _rest(len(text), _pre(rest, "raw") if rest else "")


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind}" dir="auto">\n{escape(text)}</pre>'  # HTML drops a line end right after <pre>


def _rest(size: int, body: str) -> str:
    return f'<details class="rest"><summary>show all {size:,} characters</summary>{body}</details>' if body else ""


def fold(kind: str, title: str, body: str) -> str:
    return f'<details class="{kind}"><summary>{title}</summary>{body}</details>'


def part(item: Part) -> str:
    """Show any part but a call."""
    if isinstance(item, Text):
        return prose(item.text) if item.text.strip() else ""
    if isinstance(item, Thinking):
        return _thinking(item)
    if isinstance(item, Image):
        return _image(item)
    if isinstance(item, File):
        return _named(f"file {item.name or ''} ({item.media_type}, {count(len(item.data), 'byte')})")
    if isinstance(item, Opaque):
        return fold("odd", f"kept for {escape(item.wire)}", literal(pretty(item.data)))
    if isinstance(item, Unknown):
        return fold("odd", f"{one_line(str(item.data.get('type')), 40)} of a newer version", literal(pretty(item.data)))
    return ""


def _thinking(item: Thinking) -> str:
    if not item.text.strip():
        return _named("thinking that the vendor keeps to itself")
    return fold("thinking", f"thinking <small>{count(len(item.text), 'character')}</small>", prose(item.text))


def _image(item: Image) -> str:
    if item.data is None:
        return _named(f"image at {item.url}, not fetched")
    begins = _PICTURES.get(item.media_type)
    if begins is None or not item.data.startswith(begins):
        return _named(f"image ({item.media_type}, {count(len(item.data), 'byte')}), not shown")
    data = base64.b64encode(item.data).decode()
    return f'<img src="data:{item.media_type};base64,{data}" alt="image, {count(len(item.data), "byte")}">'


def _named(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def call(asked: ToolCall, result: Entry | None) -> str:
    """Show a call and its result on one line that unfolds."""
    message = result.message if result is not None and isinstance(result.message, ToolMessage) else None
    if message is None:
        state, mark = "lost", "–"
    else:
        state, mark = ("bad", "✗") if message.is_error else ("good", "✓")
    arguments, brief = _arguments(asked)
    body = [f"<h4>arguments</h4>{arguments}"]
    figures = []
    if not asked.complete:
        figures.append('<b class="badge bad">cut off</b>')
    if message is None:
        figures.append("no result")
    else:
        body.append(f"<h4>{'error' if message.is_error else 'result'}</h4>{_content(message)}{extra(message.meta)}")
        figures += _figures(message, result.seconds if result is not None else None)
    title = (
        f'<span class="mark">{mark}</span><code class="name">{escape(asked.name)}</code>'
        f'<span class="brief">{brief}</span><span class="figures">{" · ".join(figures)}</span>'
    )
    return fold(f"call {state}", title, "".join(body))


def result(message: ToolMessage) -> str:
    """Show a result whose call is not there."""
    title = f'<code class="name">{escape(message.name)}</code><span class="brief">result without its call</span>'
    return fold(f"call {'bad' if message.is_error else 'good'}", title, _content(message))


def _content(message: ToolMessage) -> str:
    shown = [literal(item.text) if isinstance(item, Text) else part(item) for item in message.content]
    return "".join(shown) or literal("")


def _figures(message: ToolMessage, took: float | None) -> list[str]:
    figures = [] if took is None else [seconds(took)]
    usage = usage_of((message.meta or {}).get("usage"))
    if usage is not None:
        figures.append(count(usage.total, "token"))
        figures += [] if usage.cost is None else [dollars(usage.cost)]
    size = len(message.text)
    return [*figures, count(size, "character")] if size else figures


def _arguments(asked: ToolCall) -> tuple[str, str]:
    """Give the arguments in full, and on one line."""
    try:
        values = json.loads(asked.arguments or "{}")
    except (ValueError, RecursionError):
        note = "" if not asked.complete else '<p class="none">not valid JSON</p>'
        return note + literal(asked.arguments), one_line(asked.arguments, 120)
    if not isinstance(values, dict):
        return literal(pretty(values)), one_line(asked.arguments, 120)
    if not values:
        return '<p class="none">none</p>', ""
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{literal(_plain(value))}</dd>" for key, value in values.items())
    brief = ", ".join(f"{key}={_short(value)}" for key, value in list(values.items())[:8])
    return f'<dl class="arguments">{rows}</dl>', one_line(brief, 160)


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else pretty(value)


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def pretty(value: Json) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return str(value)


def extra(meta: Mapping[str, Json] | None) -> str:
    """Show what was noted beside a message."""
    shown = {key: value for key, value in (meta or {}).items() if key not in _META_SHOWN_ELSEWHERE}
    pairs = " · ".join(f"{one_line(str(key), 40)}: {one_line(_plain(value), 120)}" for key, value in shown.items())
    return f'<p class="meta">{pairs}</p>' if pairs else ""
