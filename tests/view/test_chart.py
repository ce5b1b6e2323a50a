"""Charts of the time or the tokens of replies."""

from __future__ import annotations

import re

from fakes.transcripts import reply, transcript

from glue.messages import (
    Text,
    Usage,
)
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
