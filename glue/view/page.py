"""One page, whole in itself: a pure function from a transcript to HTML."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from glue.types import Attempt, ToolCall, ToolMessage, ToolSpec, UserMessage
from glue.view.escape import count, dollars, escape, one_line, seconds
from glue.view.facts import facts, moment
from glue.view.model import Block, Entry, Note, Said, Transcript, Turn, arrange, has_problem, is_cut, usage_of
from glue.view.parts import call, extra, fold, literal, part, pretty, prose, result
from glue.view.strip import bar, strip

MARK = "<!doctype html><!-- glue view -->"
_PAUSE = 60.0  # seconds between messages that are worth a word

_STOPS = {
    "max_tokens": "cut off at the output cap",
    "context_window": "the context window was full",
    "refusal": "refused",
    "pause_turn": "paused by the provider",
    "malformed_call": "malformed call",
    "cancelled": "cancelled",
    "error": "error",
    "unknown": "unknown stop",
    "max_turns": "out of turns",
    "token_budget": "out of budget",
}
_ORIGINS = {
    "user": "user",
    "steering": "user, while it ran",
    "follow_up": "user, follow-up",
    "continue": "continuation",
    "repair": "repair",
    "nudge": "nudge",
    "wrap_up": "wrap-up",
    "summary": "summary of what came before",
}


def page(transcript: Transcript) -> str:
    """Make one HTML page that loads nothing and runs no script but its own."""
    blocks = arrange(transcript.entries)
    turns = [block for block in blocks if isinstance(block, Turn)]
    style, script = _asset("page.css"), _asset("page.js")
    title = escape(transcript.title)
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return "".join(
        (
            f'{MARK}\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title} · glue</title><style>{style}</style></head>\n<body>",
            _BAR,
            f'<header class="top"><h1 dir="auto">{title}</h1><dl class="facts">',
            *(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts(transcript, blocks)),
            f"</dl>{strip(turns)}{_setting(transcript)}</header>\n<main>\n",
            *_body(blocks, turns, _start(transcript)),
            '</main>\n<p class="none" id="nothing" hidden>nothing fits</p>',
            "<footer>made by glue view; everything is in this file, and it loads nothing</footer>",
            f"<script>{script}</script></body></html>\n",
        )
    )


_BAR = (
    '<nav><input id="search" type="search" placeholder="search  /" aria-label="search" autocomplete="off" '
    'spellcheck="false"><output id="found"></output>'
    '<button id="previous" title="previous (Shift+Enter)" hidden>↑</button>'
    '<button id="next" title="next (Enter)" hidden>↓</button><span class="gap"></span>'
    '<label><input id="problems" type="checkbox"> problems only</label>'
    '<button id="open">unfold all</button><button id="fold">fold all</button>'
    '<button id="theme" title="light or dark" aria-label="light or dark">◐</button></nav>\n'
)


@cache
def _asset(name: str) -> str:
    return files("glue.view").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _setting(transcript: Transcript) -> str:
    """Show what every request began with, where it is known."""
    out = ""
    if transcript.system:
        size = count(len(transcript.system), "character")
        out += fold("setting", f"instructions <small>{size}</small>", prose(transcript.system))
    if transcript.tools:
        names = one_line(", ".join(tool.name for tool in transcript.tools), 200)
        title = f"{count(len(transcript.tools), 'tool')} <small>{names}</small>"
        out += fold("setting", title, "".join(map(_tool, transcript.tools)))
    return out


def _tool(tool: ToolSpec) -> str:
    title = f'<code class="name">{escape(tool.name)}</code><span class="brief">{one_line(tool.description, 160)}</span>'
    return fold("call", title, prose(tool.description) + literal(pretty(tool.parameters)))


def _start(transcript: Transcript) -> float | None:
    return next((entry.at for entry in transcript.entries if isinstance(entry, Entry) and entry.at), None)


def _body(blocks: Sequence[Block], turns: Sequence[Turn], start: float | None) -> list[str]:
    if not blocks:
        return ['<p class="none">there are no messages yet</p>\n']
    longest = max((turn.seconds for turn in turns), default=0.0)
    before = ""
    out = []
    for number, block in enumerate(blocks, 1):
        if isinstance(block, Turn):
            model = ":".join(filter(None, (block.message.provider, block.message.model)))
            out.append(_turn(block, longest, start, changed=bool(before) and model != before))
            before = model
        elif isinstance(block, Said):
            out.append(_said(block, number, start))
        elif block.kind == "heading":
            out.append(f"<h2>{escape(block.text)}</h2>\n")
        else:
            out.append(_note(block, number))
    return out


def _article(kind: str, id: str, block: Block, rail: str, body: str) -> str:
    kind += " problem" if has_problem(block) else ""
    inner = f'<div class="rail">{rail}</div><div class="card">{body}</div>'
    return f'<article class="{kind}" id="{id}">{inner}</article>\n'


def _rail(entry: Entry, start: float | None) -> str:
    if entry.at is None or start is None:
        return ""
    offset = entry.at - start
    shown = f"+{seconds(offset)}" if offset > 0 else "start" if offset == 0 else ""
    return f'<time title="{moment(entry.at)}">{shown}</time>'


def _said(block: Said, number: int, start: float | None) -> str:
    message = block.entry.message
    if isinstance(message, ToolMessage):
        return _article("said", f"m{number}", block, _rail(block.entry, start), result(message))
    origin = message.origin if isinstance(message, UserMessage) else "user"
    who = _ORIGINS.get(origin, origin)
    person = origin in ("user", "steering", "follow_up")
    waited = ""
    if person and block.waited is not None and block.waited >= _PAUSE:
        waited = f'<span class="figures">after {seconds(block.waited)}</span>'
    head = f'<header><span class="who">{escape(who)}</span>{_excluded(block.entry)}{waited}</header>'
    body = "".join(map(part, message.content)) or '<p class="none">empty</p>'
    kind = "said" if person else "said loop"
    return _article(kind, f"m{number}", block, _rail(block.entry, start), head + body + extra(message.meta))


def _excluded(entry: Entry) -> str:
    return '<b class="badge">not sent any more</b>' if entry.message.excluded else ""


def _turn(turn: Turn, longest: float, start: float | None, *, changed: bool) -> str:
    message, name = turn.message, f"r{turn.number}"
    model = ":".join(filter(None, (message.provider, message.model))) or "assistant"
    badges = _excluded(turn.entry) + _stop(turn)
    if turn.continues is not None:
        badges += f'<a class="badge" href="#r{turn.continues}">continues {turn.continues}</a>'
    if changed:
        badges += '<b class="badge">another model</b>'
    head = (
        f'<header><a class="number" href="#{name}">{turn.number}</a><span class="who" dir="auto">{escape(model)}</span>'
        f'{badges}<span class="figures">{_figures(turn)}</span>{bar(turn, longest)}</header>'
    )
    body = "".join(part(item) for item in message.content if not isinstance(item, ToolCall))
    body += "".join(call(asked, answered) for asked, answered in turn.calls)
    tried = "".join(map(_attempt, turn.entry.attempts))
    body = body or '<p class="none">empty</p>'
    return _article("turn", name, turn, _rail(turn.entry, start), tried + head + body + extra(message.meta))


def _stop(turn: Turn) -> str:
    message = turn.message
    if not is_cut(message):
        return ""
    raw = f' title="{escape(message.raw_stop_reason)}"' if message.raw_stop_reason else ""
    reason = str(message.stop_reason)
    return f'<b class="badge bad"{raw}>{escape(_STOPS.get(reason, reason))}</b>'


def _figures(turn: Turn) -> str:
    usage = usage_of(turn.message.usage)
    figures = []
    if turn.model_seconds is not None:
        figures.append(f'<span title="until the reply was stored">{seconds(turn.model_seconds)}</span>')
    if turn.tool_seconds is not None:
        figures.append(f'<span title="until the results were stored">tools {seconds(turn.tool_seconds)}</span>')
    if usage is not None:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
        figures.append(f"{usage.input:,}{cached} → {usage.output:,}{thought} tokens")
        figures += [] if usage.cost is None else [dollars(usage.cost)]
    return " · ".join(figures)


def _attempt(attempt: Attempt) -> str:
    who = ":".join(filter(None, (attempt.provider, attempt.model))) or "an attempt"
    words = [f'<b class="badge bad">{escape(attempt.kind or "failed")}</b>', f'<span class="who">{escape(who)}</span>']
    if attempt.detail:
        words.append(f'<span class="detail" dir="auto">{one_line(attempt.detail, 400)}</span>')
    after = []
    if attempt.seconds >= 0.001:
        after.append(f"took {seconds(attempt.seconds)}")
    if attempt.delay:
        after.append(f"next try after {seconds(attempt.delay)}")
    if attempt.next_cap:
        after.append(f"output cap {attempt.previous_cap or 0:,} → {attempt.next_cap:,}")
    words.append(f'<span class="figures">{" · ".join(after)}</span>')
    return f'<p class="attempt">{"".join(words)}</p>'


def _note(note: Note, number: int) -> str:
    mark = '<b class="badge bad">failed</b>' if note.kind == "failed" else ""
    body = (
        "".join(map(_attempt, note.attempts))
        + f'<p class="note {note.kind}">{mark}<span>{escape(note.text)}</span></p>'
    )
    return _article("event", f"m{number}", note, "", body)
