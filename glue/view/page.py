"""HTML of a transcript: header, turns, tool calls, figures; a pure function."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from string import Template

from glue.messages import (
    HUMAN_ORIGINS,
    AssistantMessage,
    File,
    Image,
    Json,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
)
from glue.provider import Attempt
from glue.text import count, dollars, seconds
from glue.view.html import brief, escape, fold, literal, prose
from glue.view.sources import Block, Entry, Listed, Note, Transcript, Turn, arrange, has_problem, is_cut, usage_of

# What the bytes must begin with for a picture to be shown; anything else is named, never loaded.
_PICTURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_META_SHOWN_ELSEWHERE = frozenset(("attempts", "usage", "placeholder"))


def part(item: Part) -> str:
    """Show any part but a call."""
    if isinstance(item, Text):
        return prose(item.text) if item.text.strip() else ""
    if isinstance(item, Thinking):
        if not item.text.strip():
            return _named("thinking that the vendor keeps to itself")
        return fold("thinking", f"thinking <small>{count(len(item.text), 'character')}</small>", prose(item.text))
    if isinstance(item, Image):
        if item.data is None:
            return _named(f"image at {item.url}, not fetched")
        size, begins = count(len(item.data), "byte"), _PICTURES.get(item.media_type)
        if begins is None or not item.data.startswith(begins):
            return _named(f"image ({item.media_type}, {size}), not shown")
        return f'<img src="data:{item.media_type};base64,{base64.b64encode(item.data).decode()}" alt="image, {size}">'
    if isinstance(item, File):
        return _named(f"file {item.name or ''} ({item.media_type}, {count(len(item.data), 'byte')})")
    if isinstance(item, Opaque):
        return fold("odd", f"kept for {escape(item.wire)}", literal(pretty(item.data)))
    if isinstance(item, Unknown):
        return fold("odd", f"{brief(str(item.data.get('type')), 40)} of a newer version", literal(pretty(item.data)))
    return ""


def _named(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def call(asked: ToolCall, result: Entry | None) -> str:
    """Show a call and its result on one line that unfolds."""
    arguments, short = _arguments(asked)
    body = f"<h4>arguments</h4>{arguments}"
    figures = [] if asked.complete else ['<b class="badge bad">cut off</b>']
    state, mark, why = "lost", "–", ""
    if result is None or not isinstance(message := result.message, ToolMessage):
        figures.append("no result")
    else:
        state, mark, name = ("bad", "✗", "error") if message.is_error else ("good", "✓", "result")
        if result.steps:
            blocks = arrange(result.steps)
            figures.append(count(sum(isinstance(block, Turn) for block in blocks), "step"))
            body += f'<h4>steps</h4><div class="steps">{"".join(map(_step, blocks))}</div>'
        body += f"<h4>{name}</h4>{_content(message)}{extra(message.meta)}"
        figures += [] if result.seconds is None else [seconds(result.seconds)]
        if (usage := usage_of((message.meta or {}).get("usage"))) is not None:
            figures += [count(usage.total, "token"), *([] if usage.cost is None else [dollars(usage.cost)])]
        figures += [count(len(message.text), "character")] if message.text else []
        if message.is_error:
            why = f'<span class="why" dir="auto">{brief(message.text, 200)}</span>'
    title = (
        f'<span class="mark">{mark}</span><code class="name">{escape(asked.name)}</code>'
        f'<span class="brief">{short}</span><span class="figures">{" · ".join(figures)}</span>{why}'
    )
    return fold(f"call {state}", title, body)


def _step(block: Block) -> str:
    """Show a step of a sub-agent inside the call that asked for it."""
    if isinstance(block, Note):
        return f'<p class="note {block.kind}"><span>{escape(block.text)}</span></p>'
    if isinstance(block, Entry):
        return "".join(map(part, block.message.content))
    head = f'<span class="who" dir="auto">{escape(_model(block.message) or "assistant")}</span>'
    head += f'<span class="figures">{_figures(block)}</span>'
    return f'<div class="step"><header>{head}</header>{_reply(block)}</div>'


def _reply(turn: Turn) -> str:
    body = "".join(part(item) for item in turn.message.content)
    return body + "".join(call(asked, answered) for asked, answered in turn.calls)


def _content(message: ToolMessage) -> str:
    shown = [literal(item.text) if isinstance(item, Text) else part(item) for item in message.content]
    return "".join(shown) or literal("")


def _arguments(asked: ToolCall) -> tuple[str, str]:
    """Give the arguments in full, and on one line."""
    try:
        values = json.loads(asked.arguments or "{}")
    except (ValueError, RecursionError):
        note = "" if not asked.complete else '<p class="none">not valid JSON</p>'
        return note + literal(asked.arguments), brief(asked.arguments, 120)
    if not isinstance(values, dict):
        return literal(pretty(values)), brief(asked.arguments, 120)
    if not values:
        return '<p class="none">none</p>', ""
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{literal(_plain(value))}</dd>" for key, value in values.items())
    texts = [(key, json.dumps(value, ensure_ascii=False)) for key, value in list(values.items())[:8]]
    short = ", ".join(f"{key}={text if len(text) <= 60 else text[:59] + '…'}" for key, text in texts)
    return f'<dl class="arguments">{rows}</dl>', brief(short, 160)


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else pretty(value)


def pretty(value: Json) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return str(value)


def extra(meta: Mapping[str, Json] | None) -> str:
    """Show what was noted beside a message."""
    shown = {key: value for key, value in (meta or {}).items() if key not in _META_SHOWN_ELSEWHERE}
    pairs = " · ".join(f"{brief(str(key), 40)}: {brief(_plain(value), 120)}" for key, value in shown.items())
    return f'<p class="meta">{pairs}</p>' if pairs else ""


WIDTH, HEIGHT, MOST = 1000, 44, 250


def bar(turn: Turn, longest: float) -> str:
    """Draw one reply to the scale of the longest."""
    if not turn.seconds or not longest:
        return ""
    model = 100 * (turn.model_seconds or 0.0) / longest
    tools = 100 * (turn.tool_seconds or 0.0) / longest
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="6"/><rect class="model" width="{model:.2f}" height="6"/>'
        f'<rect class="tools" x="{model:.2f}" width="{tools:.2f}" height="6"/></svg>'
    )


def strip(turns: Sequence[Turn]) -> str:
    """Draw all replies in a row: their time where it is known, or else their tokens."""
    timed = any(turn.seconds for turn in turns)
    size = -(-len(turns) // MOST) or 1
    groups = [turns[at : at + size] for at in range(0, len(turns), size)]
    sums = [[sum(parts) for parts in zip(*(_figure(turn, timed) for turn in group), strict=True)] for group in groups]
    most = max(map(sum, sums), default=0.0)
    if len(turns) < 2 or not most:
        return ""
    step = WIDTH / len(groups)
    drawn = [
        _column(place * step, step, parts, most, group, timed)
        for place, (group, parts) in enumerate(zip(groups, sums, strict=True))
    ]
    kinds = ("model", "tools") if timed else ("input tokens", "output tokens")
    each = "each reply" if size == 1 else f"each {size} replies"
    tallest = seconds(most) if timed else count(int(most), "token")
    return (
        f'<figure><svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{"time" if timed else "tokens"} of {each}">{"".join(drawn)}</svg>'
        f'<figcaption><span>{each}, at most {tallest}</span><span class="key"><i class="model"></i>{kinds[0]}</span>'
        f'<span class="key"><i class="tools"></i>{kinds[1]}</span>'
        '<span class="key"><i class="bad"></i>problems</span></figcaption></figure>'
    )


def _column(left: float, step: float, parts: Sequence[float], most: float, turns: Sequence[Turn], timed: bool) -> str:
    wide = step * 0.8 if step > 8 else step
    low, high = ((HEIGHT - 5) * part / most for part in parts)
    first, last = turns[0].number, turns[-1].number
    name = f"reply {first}" if first == last else f"replies {first} to {last}"
    figures = " + ".join(seconds(part) if timed else f"{part:,.0f}" for part in parts)
    bad = f'<rect class="bad" x="{left:.2f}" width="{wide:.2f}" height="3"/>' if any(map(has_problem, turns)) else ""
    return (
        f'<a href="#r{first}" tabindex="-1"><title>{name}: {figures}</title>'
        f'<rect class="track" x="{left:.2f}" width="{step:.2f}" height="{HEIGHT}"/>'
        f'<rect class="model" x="{left:.2f}" y="{HEIGHT - low:.2f}" width="{wide:.2f}" height="{low:.2f}"/>'
        f'<rect class="tools" x="{left:.2f}" y="{HEIGHT - low - high:.2f}" width="{wide:.2f}" height="{high:.2f}"/>'
        f"{bad}</a>"
    )


def _figure(turn: Turn, timed: bool) -> tuple[float, float]:
    usage = usage_of(turn.message.usage) or Usage()
    return (turn.model_seconds or 0.0, turn.tool_seconds or 0.0) if timed else (usage.input, usage.output)


def facts(transcript: Transcript, blocks: Sequence[Block]) -> list[tuple[str, str]]:
    """Give names and values, as HTML."""
    turns = [block for block in blocks if isinstance(block, Turn)]
    entries = [entry for entry in transcript.entries if isinstance(entry, Entry)]
    begun = transcript.created or next((entry.at for entry in entries if entry.at), None)
    models = dict.fromkeys(_model(turn.message) for turn in turns)
    calls = [result for turn in turns for _, result in turn.calls]
    failed = sum(result is not None and getattr(result.message, "is_error", False) for result in calls)
    kinds = {"model": sum(turn.model_seconds or 0.0 for turn in turns)}
    kinds["tools"] = sum(turn.tool_seconds or 0.0 for turn in turns)
    tried = sum(len(block.entry.attempts) for block in turns)
    tried += sum(len(block.attempts) for block in blocks if isinstance(block, Note))
    cut = sum(is_cut(turn.message) for turn in turns)
    found = [
        ("from", escape(transcript.source)),
        ("forked from", escape(transcript.parent)),
        ("begun", moment(begun) if begun else ""),
        ("model", ", ".join(escape(name) for name in models if name)),
        ("messages", f"{len(entries):,}"),
        ("replies", f"{len(turns):,}" if turns else ""),
        ("tool calls", " ".join(filter(None, (f"{len(calls):,}", _bad(failed, "failed")))) if calls else ""),
        *_spent(turns, entries),
        ("time", " + ".join(f"{seconds(value)} {name}" for name, value in kinds.items() if value)),
        ("failed attempts", _bad(tried)),
        ("stopped early", _bad(cut, "reply" if cut == 1 else "replies")),
    ]
    return [(name, value) for name, value in found if value]


def _bad(number: int, word: str = "") -> str:
    return f'<b class="bad">{f"{number:,} {word}".rstrip()}</b>' if number else ""


def _model(of: AssistantMessage | Attempt) -> str:
    return ":".join(filter(None, (of.provider, of.model)))


def moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError, TypeError):
        return ""


def _spent(turns: Sequence[Turn], entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Say what replies, thrown-away attempts and sub-agents cost."""
    said = [turn.message.usage for turn in turns]
    said += [attempt.usage for turn in turns for attempt in turn.entry.attempts]
    said += [(entry.message.meta or {}).get("usage") for entry in entries if isinstance(entry.message, ToolMessage)]
    usages = [usage for usage in map(usage_of, said) if usage is not None]
    if not usages:
        return []
    taken, given, cached = (
        sum(getattr(usage, name) or 0 for usage in usages) for name in ("input", "output", "cache_read")
    )
    costs = [usage.cost for usage in usages if usage.cost is not None]
    part = "" if len(costs) == len(usages) else f" for {len(costs)} of {len(usages)} replies"
    return [
        ("tokens", f"{taken:,} in{f' ({cached:,} cached)' if cached else ''}, {given:,} out"),
        ("cost", dollars(sum(costs)) + part if costs else ""),
    ]


MARK = "<!doctype html><!-- glue view -->"
_PAUSE = 60.0  # seconds between messages that are worth a word

# Reasons and origins that are no plain words by themselves.
_STOPS = {
    "max_tokens": "cut off at the output cap",
    "context_window": "the context window was full",
    "refusal": "refused",
    "pause_turn": "paused by the provider",
    "unknown": "unknown stop",
    "max_turns": "out of turns",
    "token_budget": "out of budget",
}
_ORIGINS = {
    "steering": "user, while it ran",
    "follow_up": "user, follow-up",
    "continue": "continuation",
    "wrap_up": "wrap-up",
    "summary": "summary of what came before",
}


def page(transcript: Transcript) -> str:
    """Make one HTML page that loads nothing and runs no script but its own."""
    blocks = arrange(transcript.entries)
    turns = [block for block in blocks if isinstance(block, Turn)]
    start = next((entry.at for entry in transcript.entries if isinstance(entry, Entry) and entry.at), None)
    longest = max((turn.seconds for turn in turns), default=0.0)
    before = ""
    body = [] if blocks else ['<p class="none">there are no messages yet</p>\n']
    for number, block in enumerate(blocks, 1):
        if isinstance(block, Turn):
            model = _model(block.message)
            body.append(_turn(block, longest, start, changed=bool(before) and model != before))
            before = model
        elif isinstance(block, Entry):
            body.append(_said(block, number, start))
        elif block.kind == "heading":
            body.append(f"<h2>{escape(block.text)}</h2>\n")
        else:
            mark = '<b class="badge bad">failed</b>' if block.kind == "failed" else ""
            text = f'<p class="note {block.kind}">{mark}<span>{escape(block.text)}</span></p>'
            tried = "".join(map(_attempt, block.attempts))
            body.append(_article("event", f"m{number}", has_problem(block), "", tried + text))
    return _document(transcript.title, facts(transcript, blocks), strip(turns) + _setting(transcript), body)


def index(listed: Sequence[Listed]) -> str:
    """Make the page that lists transcripts, each with a link to its own page beside this one."""
    rows = []
    for each in listed:
        link = f'<a class="who" href="{escape(each.file)}" dir="auto">{brief(each.title, 120) or "untitled"}</a>'
        head = f'<b class="badge">{escape(each.kind)}</b>{link}<span class="figures">{escape(each.figures)}</span>'
        body = f'<p class="text" dir="auto">{brief(each.text, 300)}</p>' if each.text else ""
        when = f'<time title="{moment(each.at)}">{moment(each.at)[:10]}</time>'
        rows.append(_article("listed", "", each.failed, when, f"<header>{head}</header>{body}"))
    return _document("transcripts", [("transcripts", f"{len(listed):,}")], "", rows)


def _document(name: str, facts: Iterable[tuple[str, str]], top: str, body: Iterable[str]) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    rows = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    whole = Template(_asset("page.html")).substitute(
        policy=policy, title=escape(name), style=style, script=script, facts="".join(rows), top=top, body="".join(body)
    )
    return f"{MARK}\n{whole}\n"


@cache
def _asset(name: str) -> str:
    return files("glue.view").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _setting(transcript: Transcript) -> str:
    """Show what every request began with, where it is known."""
    out = tools = ""
    if transcript.system:
        size = count(len(transcript.system), "character")
        out += fold("setting", f"instructions <small>{size}</small>", prose(transcript.system))
    for tool in transcript.tools:
        title = f'<code class="name">{escape(tool.name)}</code>'
        title += f'<span class="brief">{brief(tool.description, 160)}</span>'
        tools += fold("call", title, prose(tool.description) + literal(pretty(tool.parameters)))
    if tools:
        names = brief(", ".join(tool.name for tool in transcript.tools), 200)
        out += fold("setting", f"{count(len(transcript.tools), 'tool')} <small>{names}</small>", tools)
    return out


def _article(kind: str, id: str, is_problem: bool, rail: str, body: str) -> str:
    kind += " problem" if is_problem else ""
    place = f' id="{id}"' if id else ""
    inner = f'<div class="rail">{rail}</div><div class="card">{body}</div>'
    return f'<article class="{kind}"{place}>{inner}</article>\n'


def _rail(entry: Entry, start: float | None) -> str:
    if entry.at is None or start is None:
        return ""
    offset = entry.at - start
    shown = f"+{seconds(offset)}" if offset > 0 else "start" if offset == 0 else ""
    return f'<time title="{moment(entry.at)}">{shown}</time>'


def _said(entry: Entry, number: int, start: float | None) -> str:
    message = entry.message
    if isinstance(message, ToolMessage):
        title = f'<code class="name">{escape(message.name)}</code><span class="brief">result without its call</span>'
        body = fold(f"call {'bad' if message.is_error else 'good'}", title, _content(message))
        return _article("said", f"m{number}", has_problem(entry), _rail(entry, start), body)
    origin = message.origin if isinstance(message, UserMessage) else "user"
    person = origin in HUMAN_ORIGINS
    waited = ""
    if person and entry.waited is not None and entry.waited >= _PAUSE:
        waited = f'<span class="figures">after {seconds(entry.waited)}</span>'
    who = escape(_ORIGINS.get(origin, origin))
    head = f'<header><span class="who">{who}</span>{_excluded(entry)}{waited}</header>'
    body = head + ("".join(map(part, message.content)) or '<p class="none">empty</p>') + extra(message.meta)
    kind = "said" if person else "said loop"
    return _article(kind, f"m{number}", has_problem(entry), _rail(entry, start), body)


def _excluded(entry: Entry) -> str:
    return '<b class="badge">not sent any more</b>' if entry.message.excluded else ""


def _turn(turn: Turn, longest: float, start: float | None, *, changed: bool) -> str:
    message, name = turn.message, f"r{turn.number}"
    badges = _excluded(turn.entry)
    if is_cut(message):
        raw = f' title="{escape(message.raw_stop_reason)}"' if message.raw_stop_reason else ""
        reason = str(message.stop_reason)
        badges += f'<b class="badge bad"{raw}>{escape(_STOPS.get(reason, reason.replace("_", " ")))}</b>'
    if turn.continues is not None:
        badges += f'<a class="badge" href="#r{turn.continues}">continues {turn.continues}</a>'
    if changed:
        badges += '<b class="badge">another model</b>'
    head = (
        f'<header><a class="number" href="#{name}">{turn.number}</a>'
        f'<span class="who" dir="auto">{escape(_model(message) or "assistant")}</span>'
        f'{badges}<span class="figures">{_figures(turn)}</span>{bar(turn, longest)}</header>'
    )
    tried = "".join(map(_attempt, turn.entry.attempts))
    body = tried + head + (_reply(turn) or '<p class="none">empty</p>') + extra(message.meta)
    return _article("turn", name, has_problem(turn), _rail(turn.entry, start), body)


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
    who = escape(_model(attempt) or "an attempt")
    words = [f'<b class="badge bad">{escape(attempt.kind or "failed")}</b>', f'<span class="who">{who}</span>']
    if attempt.detail:
        words.append(f'<span class="detail" dir="auto">{brief(attempt.detail, 400)}</span>')
    after = []
    if attempt.seconds >= 0.001:
        after.append(f"took {seconds(attempt.seconds)}")
    if attempt.delay:
        after.append(f"next try after {seconds(attempt.delay)}")
    if attempt.next_cap:
        after.append(f"output cap {attempt.previous_cap or 0:,} → {attempt.next_cap:,}")
    words.append(f'<span class="figures">{" · ".join(after)}</span>')
    return f'<p class="attempt">{"".join(words)}</p>'
