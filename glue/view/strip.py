"""How long replies took, as bars: one beside each reply, and all of them in a row at the top."""

from __future__ import annotations

from collections.abc import Sequence

from glue.view.escape import count, seconds
from glue.view.model import Turn, has_problem, usage_of

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
    spent = [_time(turn) if timed else _tokens(turn) for turn in turns]
    if len(turns) < 2 or not any(map(sum, spent)):
        return ""
    size = -(-len(turns) // MOST)
    groups = [range(start, min(start + size, len(turns))) for start in range(0, len(turns), size)]
    sums = [tuple(sum(spent[index][side] for index in group) for side in (0, 1)) for group in groups]
    most = max(map(sum, sums))
    step = WIDTH / len(groups)
    drawn = [
        _column(place * step, step, parts, most, [turns[index] for index in group], timed)
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


def _time(turn: Turn) -> tuple[float, float]:
    return turn.model_seconds or 0.0, turn.tool_seconds or 0.0


def _tokens(turn: Turn) -> tuple[float, float]:
    usage = usage_of(turn.message.usage)
    return (0.0, 0.0) if usage is None else (float(usage.input), float(usage.output))


def _column(left: float, step: float, parts: tuple[float, ...], most: float, turns: Sequence[Turn], timed: bool) -> str:
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
