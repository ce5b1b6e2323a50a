"""Functions that return the HTML page of a transcript, and the page that lists transcripts."""

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
    UserMessage,
)
from glue.provider import Attempt
from glue.text import count, format_dollars, format_seconds
from glue.view.chart import bar, strip
from glue.view.html import brief, escape, fold, literal, prose
from glue.view.sources import usage_of
from glue.view.transcript import (
    Block,
    Listed,
    Note,
    ShownMessage,
    ShownReply,
    Transcript,
    arrange,
    has_problem,
    is_cut,
)

# The first bytes of the images that a page shows. Other images are named but not shown.
_IMAGES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
# Keys of messages' meta that the page shows in another form, or not at all.
_META_SHOWN_ELSEWHERE = frozenset(
    (
        "attempts",
        "usage",
        "placeholder",
        "command",
        "pending",
        "started",
        "later",
        "votes",
        "spent",
    )
)

MARK = "<!doctype html><!-- glue view -->"  # the beginning of every page
EMPTY = '<p class="none">there are no messages yet</p>\n'
_LOADS_NOTHING = "made by glue view; this page is a single file and loads no other file"
_PAUSE = 60.0  # seconds between messages that are long enough to mention

# Stop reasons and origins whose names are not plain words.
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
    "summary": "summary of earlier messages",
}


def part(item: Part) -> str:
    """Return the HTML of a part of a message; "" for a blank text or a tool call."""
    if isinstance(item, Text):
        return prose(item.text) if item.text.strip() else ""
    if isinstance(item, Thinking):
        if not item.text.strip():
            return _named("thinking that the provider does not show")
        size = count(len(item.text), "character")
        return fold("thinking", f"thinking <small>{size}</small>", prose(item.text))
    if isinstance(item, Image):
        if item.data is None:
            return _named(f"image at {item.url}, not fetched")
        size, begins = count(len(item.data), "byte"), _IMAGES.get(item.media_type)
        if begins is None or not item.data.startswith(begins):
            return _named(f"image ({item.media_type}, {size}), not shown")
        encoded = base64.b64encode(item.data).decode()
        return f'<img src="data:{item.media_type};base64,{encoded}" alt="image, {size}">'
    if isinstance(item, File):
        size = count(len(item.data), "byte")
        return _named(f"file {item.name or ''} ({item.media_type}, {size})")
    if isinstance(item, Opaque):
        return fold(
            "odd", f"opaque data for the API format {escape(item.wire)}", literal(pretty(item.data))
        )
    if isinstance(item, Unknown):
        kind = brief(str(item.data.get("type")), 40)
        title = f"message part of the unknown type {kind}, which a newer version of glue wrote"
        return fold("odd", title, literal(pretty(item.data)))
    return ""


def _named(text: str) -> str:
    """Return an HTML line in place of a part that cannot be shown."""
    return f'<p class="none">{escape(text)}</p>'


def call(asked: ToolCall, result: ShownMessage | None, *, open: str = "") -> str:
    """Return the HTML of a tool call and its result: one line, which the user can unfold.

    `open` is the state of a call without a result, such as "in progress"; "" if it is unknown.
    """
    arguments, short = _arguments(asked)
    body = f"<h4>arguments</h4>{arguments}"
    figures = [] if asked.complete else ['<b class="badge bad">cut off</b>']
    state, mark, error = "lost", "–", ""
    if result is None or not isinstance(message := result.message, ToolMessage):
        if open:
            state, mark = "open", "…"
        figures.append(f'<b class="badge">{open}</b>' if open else "no result")
    else:
        state, mark, name = ("bad", "✗", "error") if message.is_error else ("good", "✓", "result")
        if result.steps:
            blocks = arrange(result.steps)
            figures.append(count(sum(isinstance(block, ShownReply) for block in blocks), "step"))
            body += f'<h4>steps</h4><div class="steps">{"".join(map(_step, blocks))}</div>'
        body += f"<h4>{name}</h4>{_content(message)}{extra(message.meta)}"
        figures += _result_figures(result, message)
        if message.is_error:
            error = f'<span class="why" dir="auto">{brief(message.text, 200)}</span>'
    title = (
        f'<span class="mark">{mark}</span><code class="name">{escape(asked.name)}</code>'
        f'<span class="brief">{short}</span>'
        f'<span class="figures">{" · ".join(figures)}</span>{error}'
    )
    return fold(f"call {state}", title, body)


def _result_figures(result: ShownMessage, message: ToolMessage) -> list[str]:
    """Return texts for the time, tokens, cost and size of a result; leave out unknown figures."""
    figures = []
    if result.seconds is not None:
        figures.append(format_seconds(result.seconds))
    usage = usage_of((message.meta or {}).get("usage"))
    if usage is not None:
        figures.append(count(usage.total, "token"))
        if usage.cost is not None:
            figures.append(format_dollars(usage.cost))
    if message.text:
        figures.append(count(len(message.text), "character"))
    return figures


def _step(block: Block) -> str:
    """Return the HTML of a sub-agent's step, which is shown inside the call that started it."""
    if isinstance(block, Note):
        return f'<p class="note {block.kind}"><span>{escape(block.text)}</span></p>'
    if isinstance(block, ShownMessage):
        return "".join(map(part, block.message.content))
    head = f'<span class="who" dir="auto">{escape(_model(block.message) or "assistant")}</span>'
    head += f'<span class="figures">{_figures(block)}</span>'
    return f'<div class="step"><header>{head}</header>{_reply(block)}</div>'


def _reply(reply: ShownReply) -> str:
    """Return the HTML of the parts and the tool calls of a reply."""
    body = "".join(part(item) for item in reply.message.content)
    states = dict.fromkeys(reply.shown.running, "in progress")
    states |= dict.fromkeys(reply.waiting, "waits for an answer")
    return body + "".join(
        call(asked, result, open=states.get(asked.id, "")) for asked, result in reply.calls
    )


def _content(message: ToolMessage) -> str:
    """Return the HTML of a tool result; its texts are shown unchanged, not as Markdown."""
    shown = [
        literal(item.text) if isinstance(item, Text) else part(item) for item in message.content
    ]
    return "".join(shown) or literal("")


def _arguments(asked: ToolCall) -> tuple[str, str]:
    """Return the arguments of a call as HTML twice: in full, and shortened to one line."""
    try:
        values = json.loads(asked.arguments or "{}")
    except (ValueError, RecursionError):
        note = "" if not asked.complete else '<p class="none">the arguments are not valid JSON:</p>'
        return note + literal(asked.arguments), brief(asked.arguments, 120)
    if not isinstance(values, dict):
        return literal(pretty(values)), brief(asked.arguments, 120)
    if not values:
        return '<p class="none">none</p>', ""
    rows = "".join(
        f"<dt>{escape(key)}</dt><dd>{literal(_plain(value))}</dd>" for key, value in values.items()
    )
    short = []
    for key, value in list(values.items())[:8]:
        text = json.dumps(value, ensure_ascii=False)
        short.append(f"{key}={text if len(text) <= 60 else text[:59] + '…'}")
    return f'<dl class="arguments">{rows}</dl>', brief(", ".join(short), 160)


def _plain(value: Json) -> str:
    """Return a text unchanged, and any other value as indented JSON."""
    return value if isinstance(value, str) else pretty(value)


def pretty(value: Json) -> str:
    """Return a value as indented JSON, or as `str(value)` if it cannot be encoded."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return str(value)


def extra(meta: Mapping[str, Json] | None) -> str:
    """Return the HTML of a message's meta except keys shown elsewhere, or "" if no key is left."""
    shown = {key: value for key, value in (meta or {}).items() if key not in _META_SHOWN_ELSEWHERE}
    pairs = " · ".join(
        f"{brief(str(key), 40)}: {brief(_plain(value), 120)}" for key, value in shown.items()
    )
    return f'<p class="meta">{pairs}</p>' if pairs else ""


def facts(transcript: Transcript, blocks: Sequence[Block]) -> list[tuple[str, str]]:
    """Return the facts at the top of a page: pairs of a name and a value in HTML."""
    replies = [block for block in blocks if isinstance(block, ShownReply)]
    messages = [item for item in transcript.items if isinstance(item, ShownMessage)]
    begun = transcript.created or next((item.at for item in messages if item.at), None)
    models = dict.fromkeys(_model(reply.message) for reply in replies)
    results = [result for reply in replies for _, result in reply.calls]
    waiting = sum(
        result is None and asked.id in reply.waiting
        for reply in replies
        for asked, result in reply.calls
    )
    failed = sum(
        result is not None and getattr(result.message, "is_error", False) for result in results
    )
    times = {"model": sum(reply.model_seconds or 0.0 for reply in replies)}
    times["tools"] = sum(reply.tool_seconds or 0.0 for reply in replies)
    attempts = sum(len(reply.shown.attempts) for reply in replies)
    attempts += sum(len(block.attempts) for block in blocks if isinstance(block, Note))
    cut = sum(is_cut(reply.message) for reply in replies)
    waits = f"<b>{waiting:,} waiting</b>" if waiting else ""
    calls = " ".join(filter(None, (f"{len(results):,}", _bad(failed, "failed"), waits)))
    known_times = (f"{format_seconds(value)} {name}" for name, value in times.items() if value)
    found = [
        ("from", escape(transcript.source)),
        ("forked from", escape(transcript.parent)),
        ("begun", moment(begun) if begun else ""),
        ("model", ", ".join(escape(name) for name in models if name)),
        ("messages", f"{len(messages):,}"),
        ("replies", f"{len(replies):,}" if replies else ""),
        ("tool calls", calls if results else ""),
        *_spent(replies, messages),
        ("time", " + ".join(known_times)),
        ("failed attempts", _bad(attempts)),
        ("stopped early", _bad(cut, "reply" if cut == 1 else "replies")),
    ]
    return [(name, value) for name, value in found if value]


def _bad(number: int, word: str = "") -> str:
    """Return the HTML of a number in the colour of problems, or "" if the number is zero."""
    return f'<b class="bad">{f"{number:,} {word}".rstrip()}</b>' if number else ""


def _model(source: AssistantMessage | Attempt) -> str:
    """Return provider and model of a reply or an attempt, such as "openai:gpt-5"."""
    return ":".join(filter(None, (source.provider, source.model)))


def moment(at: float) -> str:
    """Return a time as text in UTC, or "" if the time is out of range."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError, TypeError):
        return ""


def _spent(
    replies: Sequence[ShownReply], messages: Sequence[ShownMessage]
) -> list[tuple[str, str]]:
    """Return the facts "tokens" and "cost" of a transcript, or [] if no usage is known.

    They include failed attempts and sub-agents.
    """
    values = [reply.message.usage for reply in replies]
    values += [attempt.usage for reply in replies for attempt in reply.shown.attempts]
    values += [
        (item.message.meta or {}).get("usage")
        for item in messages
        if isinstance(item.message, ToolMessage)
    ]
    usages = [usage for usage in map(usage_of, values) if usage is not None]
    if not usages:
        return []
    sent, received, cached = (
        sum(getattr(usage, name) or 0 for usage in usages)
        for name in ("input", "output", "cache_read")
    )
    costs = [usage.cost for usage in usages if usage.cost is not None]
    part = "" if len(costs) == len(usages) else f" for {len(costs)} of {len(usages)} replies"
    cached_text = f" ({cached:,} cached)" if cached else ""
    return [
        ("tokens", f"{sent:,} in{cached_text}, {received:,} out"),
        ("cost", format_dollars(sum(costs)) + part if costs else ""),
    ]


def page(transcript: Transcript) -> str:
    """Return the HTML page of a transcript. The page loads no other file."""
    blocks = arrange(transcript.items)
    body = [html for _, html in articles(blocks)]
    return document(transcript.title, header(transcript, blocks), body or [EMPTY])


def header(transcript: Transcript, blocks: Sequence[Block]) -> str:
    """Return the HTML above a transcript: facts (model, cost), chart, instructions and tools."""
    replies = [block for block in blocks if isinstance(block, ShownReply)]
    return fact_list(facts(transcript, blocks)) + strip(replies) + _setting(transcript)


def articles(blocks: Sequence[Block], prefix: str = "") -> list[tuple[str, str]]:
    """Return the id and the HTML of each block of a transcript; `prefix` begins the ids."""
    shown = [block.shown if isinstance(block, ShownReply) else block for block in blocks]
    times = [item.at for item in shown if isinstance(item, ShownMessage)]
    start = next(filter(None, times), None)
    replies = [block for block in blocks if isinstance(block, ShownReply)]
    longest = max((reply.seconds for reply in replies), default=0.0)
    found: list[tuple[str, str]] = []
    before = ""
    for number, block in enumerate(blocks, 1):
        anchor = f"{prefix}m{number}"
        if isinstance(block, ShownReply):
            anchor, model = f"{prefix}r{block.number}", _model(block.message)
            changed = bool(before) and model != before
            html = _reply_article(block, longest, start, prefix, changed=changed)
            before = model
        elif isinstance(block, ShownMessage):
            html = _message_article(block, anchor, start)
        elif block.kind == "heading":
            html = f"<h2>{escape(block.text)}</h2>\n"
        else:
            mark = '<b class="badge bad">failed</b>' if block.kind == "failed" else ""
            text = f'<p class="note {block.kind}">{mark}<span>{escape(block.text)}</span></p>'
            attempts = "".join(map(_attempt, block.attempts))
            html = article("event", anchor, has_problem(block), "", attempts + text)
        found.append((anchor, html))
    return found


def index(listed: Sequence[Listed]) -> str:
    """Return the HTML page that lists transcripts, with links to their pages."""
    rows = []
    for each in listed:
        title = brief(each.title, 120) or "untitled"
        head = (
            f'<b class="badge">{escape(each.kind)}</b>'
            f'<a class="who" href="{escape(each.file)}" dir="auto">{title}</a>'
            f'<span class="figures">{escape(each.figures)}</span>'
        )
        body = f'<p class="text" dir="auto">{brief(each.text, 300)}</p>' if each.text else ""
        when = f'<time title="{moment(each.at)}">{moment(each.at)[:10]}</time>'
        rows.append(article("listed", "", each.failed, when, f"<header>{head}</header>{body}"))
    top = fact_list([("transcripts", f"{len(listed):,}")])
    return document("transcripts", top, rows)


def document(
    title: str,
    top: str,
    body: Iterable[str],
    *,
    footer: str = _LOADS_NOTHING,
    live: bool = False,
    aside: str = "",
    style: str = "",
) -> str:
    """Return an HTML page whose Content-Security-Policy allows only glue's scripts and styles.

    A live page also has the script that talks to its server. `aside` is HTML before the title, and
    `style` is the name of a file with more styles.
    """
    styles = _asset("page.css") + (f"\n{_asset(style)}" if style else "")
    html = Template(_asset("page.html")).substitute(
        policy=content_policy(live=live, style=style),
        title=escape(title),
        style=styles,
        script=_asset("page.js"),
        top=top,
        body="".join(body),
        aside=aside,
        footer=footer,
        live=f"<script>{_asset('live.js')}</script>" if live else "",
    )
    return f"{MARK}\n{html}\n"


@cache
def content_policy(*, live: bool, style: str = "") -> str:
    """Return the Content-Security-Policy of a page; a live page may talk to its own server."""
    scripts = [_hash(_asset("page.js")), *([_hash(_asset("live.js"))] if live else [])]
    styles = _asset("page.css") + (f"\n{_asset(style)}" if style else "")
    connect = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(styles)};"
        f" script-src {' '.join(scripts)};{connect} base-uri 'none'; form-action 'none'"
    )


def fact_list(facts: Iterable[tuple[str, str]]) -> str:
    """Return the HTML list of facts at the top of a page; `facts` has names and HTML values."""
    rows = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{"".join(rows)}</dl>'


@cache
def _asset(name: str) -> str:
    return files("glue.view").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    """Return the hash of a script or style in the form that a Content-Security-Policy needs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _setting(transcript: Transcript) -> str:
    """Return the folded HTML of a transcript's instructions and tools, or "" if it has neither."""
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
        title = f"{count(len(transcript.tools), 'tool')} <small>{names}</small>"
        out += fold("setting", title, tools)
    return out


def article(kind: str, id: str, is_problem: bool, rail: str, body: str) -> str:
    """Return the HTML of one block of the page; `rail` is the time in its margin."""
    kind += " problem" if is_problem else ""
    place = f' id="{id}"' if id else ""
    inner = f'<div class="rail">{rail}</div><div class="card">{body}</div>'
    return f'<article class="{kind}"{place}>{inner}</article>\n'


def _rail(shown: ShownMessage, start: float | None) -> str:
    """Return the HTML of the time from `start` to a message, or "" if a time is unknown."""
    if shown.at is None or start is None:
        return ""
    offset = shown.at - start
    text = "start" if offset == 0 else ""
    if offset > 0:
        text = f"+{format_seconds(offset)}"
    return f'<time title="{moment(shown.at)}">{text}</time>'


def _message_article(shown: ShownMessage, anchor: str, start: float | None) -> str:
    """Return the HTML of a message that is not a reply.

    It is a message of the user or of the loop, or a tool result without its call.
    """
    message, rail = shown.message, _rail(shown, start)
    if isinstance(message, ToolMessage):
        title = f'<code class="name">{escape(message.name)}</code>'
        title += '<span class="brief">result without its call</span>'
        body = fold(f"call {'bad' if message.is_error else 'good'}", title, _content(message))
        return article("said", anchor, has_problem(shown), rail, body)
    origin = message.origin if isinstance(message, UserMessage) else "user"
    is_human = origin in HUMAN_ORIGINS
    waited = ""
    if is_human and shown.waited is not None and shown.waited >= _PAUSE:
        waited = f'<span class="figures">after {format_seconds(shown.waited)}</span>'
    who = escape(_ORIGINS.get(origin, origin))
    head = f'<header><span class="who">{who}</span>{_excluded(shown)}{waited}</header>'
    content = "".join(map(part, message.content)) or '<p class="none">empty</p>'
    kind = "said" if is_human else "said loop"
    body = head + content + extra(message.meta)
    return article(kind, anchor, has_problem(shown), rail, body)


def _excluded(shown: ShownMessage) -> str:
    """Return the HTML of a badge if a message is no longer sent to the model, otherwise ""."""
    return '<b class="badge">no longer sent to the model</b>' if shown.message.excluded else ""


def _reply_article(
    reply: ShownReply, longest: float, start: float | None, prefix: str, *, changed: bool
) -> str:
    """Return the HTML of a reply with its calls; `changed` marks a switch to another model."""
    message, anchor = reply.message, f"{prefix}r{reply.number}"
    badges = _excluded(reply.shown)
    if is_cut(message):
        raw = f' title="{escape(message.raw_stop_reason)}"' if message.raw_stop_reason else ""
        reason = str(message.stop_reason)
        text = escape(_STOPS.get(reason, reason.replace("_", " ")))
        badges += f'<b class="badge bad"{raw}>{text}</b>'
    if reply.continues is not None:
        earlier = reply.continues
        badges += f'<a class="badge" href="#{prefix}r{earlier}">continues {earlier}</a>'
    if changed:
        badges += '<b class="badge">another model than before</b>'
    head = (
        f'<header><a class="number" href="#{anchor}">{reply.number}</a>'
        f'<span class="who" dir="auto">{escape(_model(message) or "assistant")}</span>'
        f'{badges}<span class="figures">{_figures(reply)}</span>{bar(reply, longest)}</header>'
    )
    attempts = "".join(map(_attempt, reply.shown.attempts))
    content = _reply(reply) or '<p class="none">empty</p>'
    body = attempts + head + content + extra(message.meta)
    return article("turn", anchor, has_problem(reply), _rail(reply.shown, start), body)


def _figures(reply: ShownReply) -> str:
    """Return the HTML of the times, tokens and cost of a reply; leave out unknown figures."""
    usage = usage_of(reply.message.usage)
    figures = []
    if reply.model_seconds is not None:
        seconds = format_seconds(reply.model_seconds)
        figures.append(f'<span title="time until the reply was stored">{seconds}</span>')
    if reply.tool_seconds is not None:
        seconds = format_seconds(reply.tool_seconds)
        figures.append(f'<span title="time until the results were stored">tools {seconds}</span>')
    if usage is not None:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        thought = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
        figures.append(f"{usage.input:,}{cached} → {usage.output:,}{thought} tokens")
        if usage.cost is not None:
            figures.append(format_dollars(usage.cost))
    return " · ".join(figures)


def _attempt(attempt: Attempt) -> str:
    """Return the HTML line of a failed attempt: model, error, duration and delay."""
    who = escape(_model(attempt) or "an attempt")
    words = [
        f'<b class="badge bad">{escape(attempt.kind or "failed")}</b>',
        f'<span class="who">{who}</span>',
    ]
    if attempt.detail:
        words.append(f'<span class="detail" dir="auto">{brief(attempt.detail, 400)}</span>')
    figures = []
    if attempt.seconds >= 0.001:
        figures.append(f"took {format_seconds(attempt.seconds)}")
    if attempt.delay:
        figures.append(f"next try after {format_seconds(attempt.delay)}")
    if attempt.next_cap:
        figures.append(f"output cap {attempt.previous_cap or 0:,} → {attempt.next_cap:,}")
    words.append(f'<span class="figures">{" · ".join(figures)}</span>')
    return f'<p class="attempt">{"".join(words)}</p>'
