"""Charts of the time or the tokens of replies."""

from __future__ import annotations

import re

from fakes.transcripts import reply, transcript

from glue.messages import (
    Text,
    Usage,
)
from glue.view.chart import Point, scatter
from glue.view.page import page
from glue.view.transcript import ShownMessage, Transcript


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
