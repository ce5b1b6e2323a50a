"""Charts as SVG: the time or tokens of replies as bars, and models as points of score and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glue.messages import Usage
from glue.text import count, format_dollars, format_seconds
from glue.view.html import escape
from glue.view.sources import usage_of
from glue.view.transcript import ShownReply, has_problem

WIDTH, HEIGHT = 1000, 44  # of the chart of all replies
MAX_COLUMNS = 250  # if there are more replies, several share a column


def bar(reply: ShownReply, longest: float) -> str:
    """Return an SVG bar of a reply's time and its tools' time, or "" if both are unknown or zero.

    A reply of `longest` seconds fills the whole width.
    """
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
    """Return a bar chart of the replies as HTML, or "" if there is nothing to compare.

    That is so for fewer than two replies, and if neither times nor tokens are known. The chart
    shows seconds if any are known, otherwise tokens. In a long run a bar is the sum of several
    replies.
    """
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
    """Return one column of the chart as SVG, with a link to the first reply of the column."""
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
    """Return the sums of model and tool seconds if `timed`, else of input and output tokens."""
    if timed:
        model = sum(reply.model_seconds or 0.0 for reply in replies)
        return model, sum(reply.tool_seconds or 0.0 for reply in replies)
    usages = [usage_of(reply.message.usage) or Usage() for reply in replies]
    return sum(usage.input for usage in usages), sum(usage.output for usage in usages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A model in a chart of score against cost: its name, cost, score and interval of the score."""

    name: str
    cost: float | None  # None is drawn left of the axis, as "no price"
    score: float  # from 0 to 1, like its interval
    low: float
    high: float


def scatter(points: Sequence[Point]) -> str:
    """Return a chart of score against cost as HTML; vertical lines show the score intervals."""
    width, height, left, bottom = 720, 300, 60, 46
    dearest = max((point.cost or 0.0 for point in points), default=0.0)
    inner, high = width - left - 170, height - bottom - 14  # names need room on the right
    has_unknown = any(point.cost is None for point in points)
    zero = 110 if has_unknown else 24

    def place(cost: float | None, score: float) -> tuple[float, float]:
        share = (cost or 0.0) / dearest if dearest else 0.0
        across = 24 if cost is None else zero + share * (inner - zero)
        return left + across, 14 + (1 - score) * high

    marks = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = place(None, share)[1]
        marks.append(
            f'<line class="grid" x1="{left}" x2="{left + inner}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    ticks = [(dearest * share, format_dollars(dearest * share)) for share in (0.0, 0.5, 1.0)]
    for cost, text in (*(ticks if dearest else ()), *([(None, "no price")] if has_unknown else ())):
        x = place(cost, 0.0)[0]
        marks.append(f'<text x="{x:.1f}" y="{height - 28}" text-anchor="middle">{text}</text>')
    named: list[float] = []
    for point in sorted(points, key=lambda each: -each.score):
        x, y = place(point.cost, point.score)
        top, end = (place(None, score)[1] for score in (point.high, point.low))
        label = y + 4
        while any(abs(label - other) < 16 for other in named):  # names must not overlap
            label += 4
        named.append(label)
        price = "cost unknown" if point.cost is None else format_dollars(point.cost)
        marks.append(
            f"<g><title>{escape(point.name)}: {point.score:.0%}, {price}</title>"
            f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{end:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
            f'<text class="point" x="{x + 10:.1f}" y="{label:.1f}">{escape(point.name)}</text></g>'
        )
    middle = left + inner / 2
    marks.append(f'<text x="{middle}" y="{height - 8}" text-anchor="middle">cost of a trial</text>')
    return (
        f'<figure><svg class="scatter" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="score against cost">{"".join(marks)}</svg></figure>'
    )
