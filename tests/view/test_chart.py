"""Charts of the time or the tokens of replies."""

from __future__ import annotations

import re

from fakes.transcripts import reply, transcript
from syrupy.assertion import SnapshotAssertion

from glue.messages import (
    Text,
    Usage,
)
from glue.view.chart import Point, bar, scatter, strip
from glue.view.page import page
from glue.view.transcript import ShownMessage, ShownReply, Transcript


def test_a_chart_of_many_replies_has_at_most_250_columns() -> None:
    items = tuple(
        ShownMessage(message=reply(Text(text="x")), at=float(number)) for number in range(3_000)
    )

    html = page(Transcript(title="long", source="session", items=items))

    assert len(re.findall(r'<a [^<>]*tabindex="-1"', html)) == 250
    assert len(re.findall(r'<article class="turn"', html)) == 3_000


def test_a_chart_shows_tokens_if_times_are_unknown() -> None:
    replies = [reply(Text(text="x"), usage=Usage(input=10, output=5)) for _ in range(3)]

    html = page(transcript(*replies))

    assert 'aria-label="tokens of each reply"' in html


def test_points_of_models_are_placed_by_cost_and_score_with_their_interval() -> None:
    html = scatter(
        [
            Point(name="good <b>", cost=0.004, score=1.0, low=0.5, high=1.0),
            Point(name="cheap", cost=0.002, score=0.5, low=0.25, high=0.75),
        ]
    )

    (x1, y1), (x2, y2) = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', html)
    assert float(x1) > float(x2)
    assert float(y1) < float(y2)
    assert len(re.findall('class="interval"', html)) == 2
    assert "good &lt;b&gt;" in html
    assert "no price" not in html


def test_a_model_without_a_price_is_not_drawn_as_free() -> None:
    html = scatter(
        [
            Point(name="local", cost=None, score=0.5, low=0.4, high=0.6),
            Point(name="free", cost=0.0, score=0.5, low=0.4, high=0.6),
        ]
    )

    places = re.findall(r'<circle cx="([\d.]+)"', html)
    labels = [float(y) for y in re.findall(r'class="point" x="[\d.]+" y="([\d.]+)"', html)]
    assert "no price" in html
    assert len(set(places)) == 2
    assert abs(labels[0] - labels[1]) >= 16  # names do not overlap


def lines(html: str) -> str:
    """Return HTML with each tag on a line of its own, for a snapshot that people can read."""
    return html.replace("><", ">\n<")


def test_the_drawing_of_models(snapshot: SnapshotAssertion) -> None:
    points = [
        Point(name="good", cost=0.004, score=1.0, low=0.5, high=1.0),
        Point(name="same", cost=0.001, score=1.0, low=0.75, high=1.0),
        Point(name="local", cost=None, score=0.5, low=0.25, high=0.75),
        Point(name="free", cost=0.0, score=0.0, low=0.0, high=0.25),
    ]

    assert lines(scatter(points)) == snapshot(name="with and without a price")
    assert lines(scatter(points[:1])) == snapshot(name="one model")
    assert lines(scatter(points[3:])) == snapshot(name="a model that is free")
    assert lines(scatter([])) == snapshot(name="no model")


def timed(number: int, seconds: float | None, *, ended: float | None = None) -> ShownReply:
    message = reply(Text(text="x"), usage=Usage(input=1_000 * number, output=10))
    results = []
    if ended is not None:
        results = [ShownMessage(message=message, seconds=ended)]
    shown = ShownMessage(message=message, seconds=seconds)
    return ShownReply(number=number, shown=shown, message=message, results=results)


def test_the_drawing_of_replies(snapshot: SnapshotAssertion) -> None:
    replies = [timed(1, 1.0), timed(2, 3.0, ended=1.0), timed(3, None)]
    unknown = [timed(number, None) for number in range(1, 5)]

    assert lines(strip(replies)) == snapshot(name="seconds")
    assert lines(strip(unknown)) == snapshot(name="tokens")
    assert strip(replies[:1]) == strip([]) == ""
    assert lines(bar(replies[1], 8.0)) == snapshot(name="bar")
    assert bar(replies[2], 8.0) == bar(replies[0], 0.0) == ""


def test_several_replies_share_a_column_if_there_are_many(snapshot: SnapshotAssertion) -> None:
    html = lines(strip([timed(number, 1.0) for number in range(1, 252)]))

    assert html.count("<a ") == 126
    assert "replies 1 to 2: 2.0 s + 0 ms" in html
    assert "reply 251: 1.0 s + 0 ms" in html
    assert "each 2 replies, at most 2.0 s" in html
    assert strip([timed(number, 1.0) for number in range(1, 251)]).count("<a ") == 250
