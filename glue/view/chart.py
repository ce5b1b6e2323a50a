"""Bar charts of the time or the tokens of replies, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from glue.messages import Usage
from glue.text import count, format_seconds
from glue.view.sources import usage_of
from glue.view.transcript import ShownReply, has_problem

WIDTH, HEIGHT = 1000, 44  # of the chart of all replies
MAX_COLUMNS = 250  # if there are more replies, several share a column


def bar(reply: ShownReply, longest: float) -> str:
    """Return the time of one reply as a bar; `longest` seconds fill its whole width."""
    if not reply.seconds or not longest:
        return ""
    model = 100 * (reply.model_seconds or 0.0) / longest
    tools = 100 * (reply.tool_seconds or 0.0) / longest
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6"/>'
        f'<rect class="model" width="{model:.2f}" height="6"/>'
        f'<rect class="tools" x="{model:.2f}" width="{tools:.2f}" height="6"/></svg>'
    )


def strip(replies: Sequence[ShownReply]) -> str:
    """Return a chart of all replies: of their times if these are known, else of their tokens."""
    timed = any(reply.seconds for reply in replies)
    size = -(-len(replies) // MAX_COLUMNS) or 1  # replies in a column, rounded up
    groups = [replies[at : at + size] for at in range(0, len(replies), size)]
    sums = [_sums(group, timed) for group in groups]
    highest = max(map(sum, sums), default=0.0)
    if len(replies) < 2 or not highest:
        return ""
    step = WIDTH / len(groups)
    columns = [
        _column(place * step, step, parts, highest, group, timed)
        for place, (group, parts) in enumerate(zip(groups, sums, strict=True))
    ]
    kinds = ("model", "tools") if timed else ("input tokens", "output tokens")
    each = "each reply" if size == 1 else f"each {size} replies"
    tallest = format_seconds(highest) if timed else count(int(highest), "token")
    return (
        f'<figure><svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{"time" if timed else "tokens"} of {each}">'
        f"{''.join(columns)}</svg>"
        f"<figcaption><span>{each}, at most {tallest}</span>"
        f'<span class="key"><i class="model"></i>{kinds[0]}</span>'
        f'<span class="key"><i class="tools"></i>{kinds[1]}</span>'
        '<span class="key"><i class="bad"></i>problems</span></figcaption></figure>'
    )


def _column(
    left: float,
    step: float,
    parts: tuple[float, float],
    highest: float,
    replies: Sequence[ShownReply],
    timed: bool,
) -> str:
    """Return one column of the chart, with a link to its first reply."""
    width = step * 0.8 if step > 8 else step
    lower, upper = ((HEIGHT - 5) * part / highest for part in parts)
    first, last = replies[0].number, replies[-1].number
    name = f"reply {first}" if first == last else f"replies {first} to {last}"
    figures = " + ".join(format_seconds(part) if timed else f"{part:,.0f}" for part in parts)
    place = f'x="{left:.2f}"'
    model = f'y="{HEIGHT - lower:.2f}" width="{width:.2f}" height="{lower:.2f}"'
    tools = f'y="{HEIGHT - lower - upper:.2f}" width="{width:.2f}" height="{upper:.2f}"'
    problem = f'<rect class="bad" {place} width="{width:.2f}" height="3"/>'
    return (
        f'<a href="#r{first}" tabindex="-1"><title>{name}: {figures}</title>'
        f'<rect class="track" {place} width="{step:.2f}" height="{HEIGHT}"/>'
        f'<rect class="model" {place} {model}/>'
        f'<rect class="tools" {place} {tools}/>'
        f"{problem if any(map(has_problem, replies)) else ''}</a>"
    )


def _sums(replies: Sequence[ShownReply], timed: bool) -> tuple[float, float]:
    """Return the seconds of model and tools, or the tokens of input and output."""
    if timed:
        model = sum(reply.model_seconds or 0.0 for reply in replies)
        return model, sum(reply.tool_seconds or 0.0 for reply in replies)
    usages = [usage_of(reply.message.usage) or Usage() for reply in replies]
    return sum(usage.input for usage in usages), sum(usage.output for usage in usages)
