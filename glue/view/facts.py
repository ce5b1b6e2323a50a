"""What a transcript amounts to; what is not known is not mentioned."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from glue.types import Usage
from glue.view.escape import count, dollars, escape, seconds
from glue.view.model import Block, Entry, Said, Transcript, Turn, child_usages, is_cut, usage_of


def facts(transcript: Transcript, blocks: Sequence[Block]) -> list[tuple[str, str]]:
    """Give names and values, as HTML."""
    turns = [block for block in blocks if isinstance(block, Turn)]
    entries = [entry for entry in transcript.entries if isinstance(entry, Entry)]
    found = [
        ("from", escape(transcript.source)),
        ("forked from", escape(transcript.parent)),
        ("begun", _begun(transcript, entries)),
        ("model", _models(turns)),
        ("messages", f"{len(entries):,}"),
        ("replies", f"{len(turns):,}" if turns else ""),
        ("tool calls", _calls(turns)),
        *_spent(turns, list(child_usages(entries))),
        ("time", _time(turns)),
        ("failed attempts", _attempts(blocks)),
        ("stopped early", _stops(turns)),
    ]
    return [(name, value) for name, value in found if value]


def moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError, TypeError):
        return ""


def _begun(transcript: Transcript, entries: Sequence[Entry]) -> str:
    first = transcript.created or next((entry.at for entry in entries if entry.at), None)
    return moment(first) if first else ""


def _models(turns: Sequence[Turn]) -> str:
    names = dict.fromkeys(":".join(filter(None, (turn.message.provider, turn.message.model))) for turn in turns)
    return ", ".join(escape(name) for name in names if name)


def _calls(turns: Sequence[Turn]) -> str:
    results = [result for turn in turns for _, result in turn.calls]
    failed = sum(1 for result in results if result is not None and getattr(result.message, "is_error", False))
    if not results:
        return ""
    return f"{len(results):,}" + (f' <b class="bad">{failed:,} failed</b>' if failed else "")


def _spent(turns: Sequence[Turn], below: Sequence[Usage]) -> list[tuple[str, str]]:
    own = [usage for turn in turns if (usage := usage_of(turn.message.usage)) is not None]
    thrown = [usage for turn in turns for attempt in turn.entry.attempts if (usage := attempt.usage) is not None]
    usages = [*own, *thrown, *below]
    if not usages:
        return []
    taken = sum(usage.input for usage in usages)
    given = sum(usage.output for usage in usages)
    cached = sum(usage.cache_read or 0 for usage in usages)
    costs = [usage.cost for usage in usages if usage.cost is not None]
    part = "" if len(costs) == len(usages) else f" for {len(costs)} of {len(usages)} replies"
    return [
        ("tokens", f"{taken:,} in{f' ({cached:,} cached)' if cached else ''}, {given:,} out"),
        ("cost", dollars(sum(costs)) + part if costs else ""),
    ]


def _time(turns: Sequence[Turn]) -> str:
    model = sum(turn.model_seconds or 0.0 for turn in turns)
    tools = sum(turn.tool_seconds or 0.0 for turn in turns)
    said = [f"{seconds(value)} {name}" for value, name in ((model, "model"), (tools, "tools")) if value]
    return " + ".join(said)


def _attempts(blocks: Sequence[Block]) -> str:
    shown = [block.entry if isinstance(block, Turn) else block for block in blocks if not isinstance(block, Said)]
    tried = sum(len(item.attempts) for item in shown)
    return f'<b class="bad">{tried:,}</b>' if tried else ""


def _stops(turns: Sequence[Turn]) -> str:
    cut = sum(1 for turn in turns if is_cut(turn.message))
    return f'<b class="bad">{count(cut, "reply", "replies")}</b>' if cut else ""
