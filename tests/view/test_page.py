"""The page of a transcript: it is complete, and hostile texts do nothing in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fakes.examples import examples
from fakes.transcripts import parse, reply, result, small_transcript, transcript
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import glue
from glue.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Unknown,
    Usage,
    UserMessage,
    user,
)
from glue.provider import Attempt
from glue.view.page import index, page
from glue.view.transcript import Listed, Note, ShownMessage, Transcript

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16


HOSTILE_TEXTS = (
    '<script>document.title="owned"</script>',
    "<img src=http://127.0.0.1:9/x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</pre></details></article></main></style></script><h1>out</h1>",
    "<!-- --><base href='http://evil.example/'><meta http-equiv=refresh content='0;url=http://evil.example'>",
    "javascript:alert(1)//&#x3c;b&#x3e;&lt;b&gt;",
    "]]><![CDATA[<b>",
    "a\x00b\x1b[31mred\u202egnp.exe\u2066\ufeff\U000e0041\ud800",
)


def test_the_page_of_a_small_transcript(snapshot: SnapshotAssertion) -> None:
    html = page(small_transcript())

    body = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>", "", html)
    assert re.sub(r"sha256-[^']+", "sha256-...", body) == snapshot


def test_the_same_transcript_gives_the_same_page() -> None:
    assert page(small_transcript()) == page(small_transcript())


def test_every_text_and_figure_is_on_the_page() -> None:
    shown = "".join(parse(page(small_transcript())).text)

    for text in (
        "What is in a.py?",
        "I should look.",
        "print(1)",
        "no path",
        "It prints",
        " one.",
        "HTTP 529",
    ):
        assert text in shown
    for figure in (
        "3.5 s",
        "tools 400 ms",
        "1,200 (1,000 cached) → 80 (12 thinking) tokens",
        "$0.0031",
        "+10.0 s",
    ):
        assert figure in shown


def test_cut_replies_continuations_and_attempts_are_marked() -> None:
    parsed = parse(page(small_transcript()))
    shown = "".join(parsed.text)

    assert "cut off at the output cap" in shown
    assert {"class": "badge bad", "title": "length"} in parsed.all("b", "badge")
    assert {"class": "badge", "href": "#r2"} in parsed.all("a", "badge")
    assert "continues 2" in shown
    assert "HTTP 429: slow down" in shown
    assert "took 500 ms · next try after 2.0 s" in shown


def test_calls_are_folded_with_their_results() -> None:
    parsed = parse(page(small_transcript()))

    assert [attrs["class"] for attrs in parsed.all("details", "call")] == ["call good", "call bad"]
    assert not any("open" in attrs for attrs in parsed.all("details"))


def test_only_blocks_with_problems_are_marked_as_such() -> None:
    parsed = parse(page(small_transcript()))

    assert [attrs["id"] for attrs in parsed.all("article", "problem")] == ["r1", "r2", "m6"]
    assert [attrs["id"] for attrs in parsed.all("article")] == ["m1", "r1", "r2", "m4", "r3", "m6"]


def test_unknown_figures_are_not_mentioned() -> None:
    shown = "".join(parse(page(transcript(user("hi"), reply(Text(text="hello"))))).text)

    for word in ("cost", "tokens", "time", "begun", "forked", "attempts", "None", "unknown"):
        assert word not in shown.replace("time line", "")


def test_an_empty_transcript_has_a_note() -> None:
    shown = "".join(parse(page(transcript())).text)

    assert "there are no messages yet" in shown


def test_the_cost_names_the_number_of_replies_with_a_known_price() -> None:
    priced = reply(Text(text="a"), usage=Usage(input=1, output=1, cost=0.5))
    other = reply(Text(text="b"), usage=Usage(input=1, output=1))

    shown = "".join(parse(page(transcript(priced, other))).text)

    assert "$0.5000 for 1 of 2 replies" in shown


def test_the_usage_of_sub_agents_is_included() -> None:
    asked = reply(
        ToolCall(id="c", name="look", arguments="{}"), usage=Usage(input=10, output=1, cost=0.25)
    )
    spent = {"input": 100, "output": 20, "cost": 0.5}
    answered = ToolMessage(
        call_id="c", name="look", content=(Text(text="found"),), meta={"usage": spent}
    )

    shown = "".join(parse(page(transcript(asked, answered))).text)

    assert "110 in, 21 out" in shown
    assert "$0.7500" in shown


@pytest.mark.parametrize("origin", ["continue", "repair", "nudge", "wrap_up", "summary"])
def test_messages_of_the_loop_are_not_shown_as_the_users(origin: str) -> None:
    parsed = parse(page(transcript(user("hi"), user("go on", origin=origin))))

    assert [attrs["class"] for attrs in parsed.all("article")] == ["said", "said loop"]


def test_excluded_messages_are_marked() -> None:
    old = UserMessage(content=(Text(text="old"),), excluded=True)
    answer = AssistantMessage(content=(Text(text="older"),), excluded=True)

    text = "".join(parse(page(transcript(old, answer))).text)
    assert text.count("no longer sent to the model") == 2


def test_long_texts_are_complete_and_folded() -> None:
    text = "".join(f"line {number} of many\n" for number in range(5_000))
    asked = reply(ToolCall(id="c", name="look", arguments="{}"))

    parsed = parse(page(transcript(asked, result("c", text))))

    assert len(parsed.all("details", "rest")) == 1
    assert f"show all {len(text):,} characters" in "".join(parsed.text)
    for number in (0, 39, 40, 4_999):
        assert f"line {number} of many\n" in "".join(parsed.text)


def test_code_that_is_split_by_a_fold_remains_code() -> None:
    code = "x = 1\n" * 200

    parsed = parse(page(transcript(user(f"Look:\n```python\n{code}```\nSo."))))

    kinds = [
        attrs["class"] for tag, attrs in parsed.tags if tag == "pre" or attrs.get("class") == "text"
    ]
    assert kinds == ["text", "code", "code", "text"]


def everywhere(text: str) -> Transcript:
    """Return a transcript with a text in every place that a stranger controls."""
    asked = (
        ToolCall(id=text, name=text, arguments=json.dumps({text: text, "b": [text]})),
        ToolCall(id="2", name=text, arguments=text, complete=False),
    )
    parts = (
        Text(text=text),
        Thinking(text=text),
        Image(url=f"https://{text}"),
        Image(media_type=text, data=text.encode(errors="replace")),
        File(media_type=text, data=b"x", name=text),
        Opaque(wire=text, data={text: text}),
        Unknown(data={"type": text, "more": text}),
    )
    tried = Attempt(provider=text, model=text, kind=text, detail=text)
    messages: tuple[Message, ...] = (
        UserMessage(content=parts, origin=text, meta={text: text}),
        AssistantMessage(
            content=(*parts, *asked),
            provider=text,
            model=text,
            stop_reason=glue.StopReason.UNKNOWN,
            raw_stop_reason=text,
            meta={"dropped_calls": [text]},
        ),
        ToolMessage(call_id=text, name=text, content=parts, meta={text: [text]}),
        ToolMessage(call_id="nobody's", name=text, content=parts, is_error=True),
    )
    return Transcript(
        title=text,
        source=text,
        parent=text,
        system=text,
        tools=(glue.messages.ToolSpec(name=text, description=text, parameters={text: text}),),
        items=(
            *(ShownMessage(message=message, attempts=(tried,)) for message in messages),
            Note(kind="failed", text=text, attempts=(tried,)),
            Note(kind="heading", text=text),
        ),
    )


MARKDOWN_TAGS = frozenset(
    "blockquote code em h5 li ol strong table tbody td th thead tr ul".split()
)


def shape(html: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(tag, tuple(attrs)) for tag, attrs in parse(html).tags]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts_add_no_tags(text: str) -> None:
    plain = "a" * len(text)

    assert shape(page(everywhere(text))) == shape(page(everywhere(plain)))


@cache
def usual_tags() -> frozenset[str]:
    """The tags of a page whose texts contain no markup."""
    return frozenset(tag for tag, _ in parse(page(everywhere("a"))).tags) | {"pre", *MARKDOWN_TAGS}


@given(
    st.text(
        alphabet=st.sampled_from("<>&\"'`/=! \n\t-;#x3abscript\x00\u202e\ud800"),
        min_size=1,
        max_size=40,
    )
)
@settings(max_examples=examples(150), deadline=None)
def test_no_text_becomes_markup(text: str) -> None:
    html = page(everywhere(text))
    found = parse(html).tags

    assert {tag for tag, _ in found} <= usual_tags()
    for tag, attrs in found:
        if tag in MARKDOWN_TAGS:
            assert set(attrs) <= {"class", "value"}
            assert re.fullmatch(
                r"d\d|\d*|name", (attrs.get("class") or "") + (attrs.get("value") or "")
            )
    assert html.count("<script>") == html.count("<style>") == 1
    html.encode()


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_page_links_only_to_itself_and_has_no_inline_handlers(text: str) -> None:
    parsed = parse(page(everywhere(text)))

    for tag, attrs in parsed.tags:
        assert tag not in (
            "link",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "video",
            "audio",
            "source",
            "use",
        )
        for name, value in attrs.items():
            assert not name.startswith("on")
            assert name not in ("style", "srcset", "action", "ping", "xlink:href")
            if name == "href":
                assert re.fullmatch(r"#r\d+", value or "")
            if name == "src":
                assert (value or "").startswith("data:image/")


def test_only_bytes_that_are_images_are_shown_as_images() -> None:
    pictures = (
        Image(data=PNG),
        Image(data=b"<svg onload=alert(1)>", media_type="image/svg+xml"),
        Image(data=b"<html>", media_type="image/png"),
        Image(url="https://example.com/tracker.png"),
    )

    parsed = parse(page(transcript(user(*pictures))))

    assert len(parsed.all("img")) == 1
    assert (parsed.all("img")[0]["src"] or "").startswith("data:image/png;base64,")
    assert "image at https://example.com/tracker.png, not fetched" in "".join(parsed.text)


def test_the_content_security_policy_allows_only_the_pages_own_script_and_style() -> None:
    html = page(small_transcript())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)

    for tag in ("style", "script"):
        (inside,) = re.findall(rf"(?s)<{tag}>(.*?)</{tag}>", html)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_text_has_enough_contrast_in_light_and_dark_mode() -> None:
    style = (Path(page.__code__.co_filename).parent / "page.css").read_text()
    colours = {
        name: pair
        for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)
    }

    def shine(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    pairs = [
        (text, back)
        for text in ("text", "dim", "link", "bad")
        for back in ("back", "card", "sunk", "said")
    ]
    for text, back in [*pairs, ("good", "card"), ("bad", "bad-back"), ("text", "found")]:
        for mode in (0, 1):
            low, high = sorted((shine(colours[text][mode]), shine(colours[back][mode])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, back, mode)


def test_the_assets_are_in_the_wheel() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["glue.view"]

    assert sorted(listed) == sorted(
        path.name
        for path in (root / "glue" / "view").iterdir()
        if path.suffix in (".css", ".html", ".js")
    )


def test_the_page_of_unusual_messages(snapshot: SnapshotAssertion) -> None:
    def asks(id: str, arguments: str = "{}", *, complete: bool = True) -> ToolCall:
        return ToolCall(id=id, name="look", arguments=arguments, complete=complete)

    first = reply(
        Thinking(text=""),
        asks("bad", '{"path": '),
        asks("cut", '{"path": ', complete=False),
        asks("list", "[1, 2]"),
        asks("long", json.dumps({"a": "x" * 70, **{f"k{n}": n for n in range(9)}})),
        asks("waits"),
        asks("runs"),
        asks("lost"),
        meta={"pending": {"waits": {}}, "reason": "why"},
    )
    step = reply(Text(text="inner"), model="sub", usage=Usage(input=1, output=2, cost=0.5))
    steps = (ShownMessage(message=user("do it")), ShownMessage(message=step))
    usage = {"input": 10, "output": 5, "cost": 0.25}
    found = ToolMessage(call_id="list", name="look", content=(), meta={"usage": usage})
    odd = user(
        Text(text="see"),
        Image(media_type="image/png", url="http://127.0.0.1:9/x"),
        Image(media_type="image/png", data=b"no image"),
        File(media_type="application/pdf", data=b"%PDF", name="a.pdf"),
        origin="steering",
    )
    tried = Attempt(provider="one", model="m", kind="", previous_cap=100, next_cap=200)
    items = (
        ShownMessage(message=odd, at=0.0),
        ShownMessage(message=replace(user("later"), excluded=True), at=1.0),
        ShownMessage(message=user("after a pause"), at=61.0),
        ShownMessage(message=first, at=62.0, running=frozenset(("runs",)), attempts=(tried,)),
        ShownMessage(
            message=found, at=63.5, seconds=1.5, steps=(*steps, Note(kind="event", text="e"))
        ),
        ShownMessage(message=result("elsewhere", "whose?", is_error=True)),
        Note(kind="heading", text="Part 2"),
        ShownMessage(
            message=reply(
                Unknown(data={"type": "new"}), Opaque(wire="w", data=[1]), stop_reason="refusal"
            )
        ),
    )
    tools = (ToolSpec(name="look", description="Look at it.", parameters={"type": "object"}),)

    html = page(
        Transcript(
            title="odd <b>",
            source="messages",
            items=items,
            parent="other",
            system="Be kind.",
            tools=tools,
        )
    )

    body = html[html.index("<header") : html.index("</main>")]
    assert body.replace("><", ">\n<") == snapshot


def test_a_long_meta_and_times_out_of_range_are_shown_short() -> None:
    message = reply(Text(text="x"), meta={"k" * 50: "v" * 200, "usage": {"input": 1}, "n": 7})
    items = tuple(ShownMessage(message=message, at=at) for at in (5.0, 4.0, 1e14))

    html = page(Transcript(title="t", source="s", items=items))

    assert f'<p class="meta">{"k" * 39}…: {"v" * 119}… · n: 7</p>' in html
    assert '<time title="1970-01-01 00:00:05 UTC">start</time>' in html
    assert '<time title="1970-01-01 00:00:04 UTC"></time>' in html


def test_replies_that_stopped_early_are_counted() -> None:
    cut = reply(Text(text="x"), stop_reason="max_tokens")

    for replies, shown in (([cut], "1 reply"), ([cut, cut], "2 replies")):
        assert f'<dt>stopped early</dt><dd><b class="bad">{shown}</b></dd>' in page(
            transcript(*replies)
        )


def item(message: Message, at: float | None = None, **fields: Any) -> ShownMessage:
    return ShownMessage(message=message, at=at, **fields)


def page_of(*items: ShownMessage) -> str:
    return page(Transcript(title="t", source="session", items=items))


@pytest.mark.parametrize(
    ("waited", "shown"), [(59.9, ""), (60.0, '<span class="figures">after 1 m 0 s</span>')]
)
def test_a_prompt_after_a_minute_mentions_the_pause(waited: float, shown: str) -> None:
    html = page_of(item(user("a"), 1e9), item(user("b"), 1e9 + waited))

    assert ('<span class="figures">after' in html) == bool(shown)
    assert shown in html


def test_the_margin_has_the_time_since_the_first_message() -> None:
    html = page_of(
        *(item(user("x"), at) for at in (None, 1.7e9, 1.7e9 + 2.5, 1.7e9 - 3, 1.7e9, None))
    )

    rails = re.findall(r'<div class="rail">(.*?)</div>', html)
    texts = [re.sub("<[^>]+>", "", rail) for rail in rails]
    assert texts == ["", "start", "+2.5 s", "", "start", ""]
    assert [bool(rail) for rail in rails] == [False, True, True, True, True, False]
    assert 'title="2023-11-14 22:13:20 UTC"' in rails[1]


def test_a_switch_to_another_model_is_marked() -> None:
    models = ["", "a", "a", "b", "b"]
    replies = [item(reply(Text(text="x"), provider="p" if m else "", model=m)) for m in models]

    cards = re.findall(r'<article class="turn.*?</article>', page_of(*replies), re.DOTALL)

    assert ["another model" in card for card in cards] == [False, False, False, True, False]
    assert ["assistant" in card for card in cards] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("attempt", "figures"),
    [
        (Attempt(provider="", seconds=0.0009), ""),
        (Attempt(provider="", seconds=0.001), "took 1 ms"),
        (Attempt(provider="", delay=2.0), "next try after 2.0 s"),
        (Attempt(provider="", previous_cap=1000, next_cap=4000), "output cap 1,000 → 4,000"),
        (Attempt(provider="", next_cap=4000), "output cap 0 → 4,000"),
    ],
)
def test_a_failed_attempt_shows_its_known_figures(attempt: Attempt, figures: str) -> None:
    html = page_of(item(reply(Text(text="x")), attempts=(attempt,)))

    assert f'<span class="who">an attempt</span><span class="figures">{figures}</span></p>' in html
    assert '<b class="badge bad">failed</b>' in html


def brief_of(arguments: str) -> str:
    asked = ToolCall(id="c", name="look", arguments=arguments)
    [text] = re.findall(r'<span class="brief">(.*?)</span>', page_of(item(reply(asked))))
    return str(text)


def test_the_arguments_of_a_call_are_shortened_to_one_line() -> None:
    many = {f"k{number}": number for number in range(9)}

    assert brief_of(json.dumps(many)) == ", ".join(f"k{number}={number}" for number in range(8))
    assert brief_of(json.dumps({"a": "x" * 58})) == f"a=&quot;{'x' * 58}&quot;"
    assert brief_of(json.dumps({"a": "x" * 59})) == f"a=&quot;{'x' * 58}…"
    assert brief_of("{}") == brief_of("") == ""
    assert brief_of("[1, 2]") == "[1, 2]"
    assert brief_of("{bad") == "{bad"


def test_a_call_that_was_cut_off_has_no_note_about_its_json() -> None:
    whole = ToolCall(id="c", name="look", arguments="{bad")
    cut = replace(whole, complete=False)

    for asked, has_note in ((whole, True), (cut, False)):
        html = page_of(item(reply(asked)))
        assert ("the arguments are not valid JSON" in html) == has_note
        assert ('<b class="badge bad">cut off</b>' in html) == (not has_note)


def test_the_state_of_a_call_without_a_result() -> None:
    asked = ToolCall(id="c", name="look", arguments="{}")
    waits = item(reply(asked, meta={"pending": {"c": {}}}))
    runs = item(reply(asked), running=frozenset({"c"}))

    assert '<details class="call lost">' in page_of(item(reply(asked)))
    assert "no result" in page_of(item(reply(asked)))
    for shown, state in ((waits, "waits for an answer"), (runs, "in progress")):
        html = page_of(shown)
        assert '<details class="call open">' in html
        assert f'<b class="badge">{state}</b>' in html
        assert ("<b>1 waiting</b>" in html) == (shown is waits)


def test_the_names_of_many_tools_are_shortened() -> None:
    tools = tuple(ToolSpec(name=f"tool_{number:02}") for number in range(40))

    html = page(transcript(user("x"), tools=tools))

    [names] = re.findall(r"40 tools <small>(.*?)</small>", html)
    assert names == f"{', '.join(tool.name for tool in tools)[:199]}…"


def test_the_index_links_to_each_page_and_marks_failed_runs() -> None:
    first = Listed(file="a&b.html", kind="run", title="Fix <it>", at=1.7e9, figures="2 replies")
    second = replace(first, file="s.html", kind="session", title="", text="Done.", failed=True)

    html = index([first, second])

    parsed = parse(html)
    assert [each["href"] for each in parsed.all("a", "who")] == ["a&b.html", "s.html"]
    assert [each["class"] for each in parsed.all("article")] == ["listed", "listed problem"]
    rows = re.findall(r"<article.+?</article>", html)
    assert all("id" not in each for each in parsed.all("article"))
    assert "".join(parse(rows[0]).text) == "2023-11-14runFix <it>2 replies"
    assert "".join(parse(rows[1]).text) == "2023-11-14sessionuntitled2 repliesDone."
    assert '<time title="2023-11-14 22:13:20 UTC">' in rows[0]
    assert "<div><dt>transcripts</dt><dd>2</dd></div>" in html
