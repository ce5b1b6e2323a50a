"""The page of a transcript: all of it, nothing but it, and nothing of it obeyed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import glue
from glue.cli.app import commands
from glue.errors import StoreError
from glue.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
    messages_to_json,
    user,
)
from glue.provider import Attempt
from glue.testing import Recorder, Script, call, calls, fail, repeat, say
from glue.view.html import escape, prose, split
from glue.view.page import MARK, page
from glue.view.sources import Entry, Note, Transcript, Turn, arrange, read_file, read_session

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16
HOSTILE = (
    '<script>document.title="owned"</script>',
    "<img src=http://127.0.0.1:9/x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</pre></details></article></main></style></script><h1>out</h1>",
    "<!-- --><base href='http://evil.example/'><meta http-equiv=refresh content='0;url=http://evil.example'>",
    "javascript:alert(1)//&#x3c;b&#x3e;&lt;b&gt;",
    "]]><![CDATA[<b>",
    "a\x00b\x1b[31mred\u202egnp.exe\u2066\ufeff\U000e0041\ud800",
)


class Page(HTMLParser):
    """What a browser would make of the page, as far as a test needs it."""

    VOID = frozenset(("meta", "input", "img", "br"))

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID and not (self.stack and self.stack[-1] == "svg" and tag == "rect"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.tags
            if name == tag and set(kind.split()) <= set((attrs.get("class") or "").split())
        ]


def parse(html: str) -> Page:
    parsed = Page(html)
    assert parsed.stack == []
    return parsed


def transcript(*messages: Message, **known: object) -> Transcript:
    entries = tuple(Entry(message=message) for message in messages)
    return Transcript(title="demo", source="messages", entries=entries, **known)  # type: ignore[arg-type]


def reply(*content: Part, **fields: object) -> AssistantMessage:
    return AssistantMessage(content=content, **fields)  # type: ignore[arg-type]


def result(call_id: str, text: str, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="look", content=(Text(text=text),), is_error=is_error)


def small() -> Transcript:
    """A little of everything."""
    usage = Usage(input=1200, output=80, cache_read=1000, reasoning=12, cost=0.0031)
    asks = (
        ToolCall(id="c1", name="look", arguments='{"path": "a.py", "lines": [1, 2]}'),
        ToolCall(id="c2", name="look", arguments="{}"),
    )
    tried = Attempt(
        provider="one", model="m", kind="rate_limited", detail="HTTP 429: slow down", delay=2.0, seconds=0.5
    )
    return Transcript(
        title="demo",
        source="session",
        created=1_700_000_000.0,
        entries=(
            Entry(message=user("What is in a.py?"), at=1_700_000_000.0),
            Entry(
                message=reply(
                    Thinking(text="I should look."),
                    Text(text="Looking:\n\n```python\nprint(1)\n```\nSo."),
                    *asks,
                    usage=usage,
                    provider="two",
                    model="m-1",
                    stop_reason=glue.StopReason.TOOL_USE,
                ),
                at=1_700_000_003.5,
                attempts=(tried,),
            ),
            Entry(message=result("c1", "print(1)\n"), at=1_700_000_003.9),
            Entry(message=result("c2", "no path", is_error=True), at=1_700_000_003.9),
            Entry(
                message=reply(Text(text="It prints"), stop_reason=glue.StopReason.MAX_TOKENS, raw_stop_reason="length"),
                at=1_700_000_010.0,
            ),
            Entry(message=user("Go on.", origin="continue"), at=1_700_000_010.001),
            Entry(message=reply(Text(text=" one."), provider="two", model="m-1"), at=1_700_000_011.0),
            Note(kind="failed", text="two: overloaded: HTTP 529"),
        ),
    )


# The page -----------------------------------------------------------------------------------------


def test_the_page_of_a_small_transcript(snapshot: SnapshotAssertion) -> None:
    html = page(small())

    body = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>", "", html)
    assert re.sub(r"sha256-[^']+", "sha256-...", body) == snapshot


def test_a_page_is_the_same_for_the_same_transcript() -> None:
    assert page(small()) == page(small())


def test_every_text_is_on_the_page() -> None:
    shown = "".join(parse(page(small())).text)

    for text in ("What is in a.py?", "I should look.", "print(1)", "no path", "It prints", " one.", "HTTP 529"):
        assert text in shown
    for figure in ("3.5 s", "tools 400 ms", "1,200 (1,000 cached) → 80 (12 thinking) tokens", "$0.0031", "+10.0 s"):
        assert figure in shown


def test_stops_continuations_and_attempts_are_marked() -> None:
    parsed = parse(page(small()))
    shown = "".join(parsed.text)

    assert "cut off at the output cap" in shown
    assert {"class": "badge bad", "title": "length"} in parsed.all("b", "badge")
    assert {"class": "badge", "href": "#r2"} in parsed.all("a", "badge")
    assert "continues 2" in shown
    assert "HTTP 429: slow down" in shown
    assert "took 500 ms · next try after 2.0 s" in shown


def test_calls_are_folded_with_their_results() -> None:
    parsed = parse(page(small()))

    assert [attrs["class"] for attrs in parsed.all("details", "call")] == ["call good", "call bad"]
    assert not any("open" in attrs for attrs in parsed.all("details"))


def test_problems_are_marked_and_nothing_else_is() -> None:
    parsed = parse(page(small()))

    assert [attrs["id"] for attrs in parsed.all("article", "problem")] == ["r1", "r2", "m6"]
    assert [attrs["id"] for attrs in parsed.all("article")] == ["m1", "r1", "r2", "m4", "r3", "m6"]


def test_what_is_not_known_is_not_mentioned() -> None:
    shown = "".join(parse(page(transcript(user("hi"), reply(Text(text="hello"))))).text)

    for word in ("cost", "tokens", "time", "begun", "forked", "attempts", "None", "unknown"):
        assert word not in shown.replace("time line", "")


def test_an_empty_transcript_says_so() -> None:
    shown = "".join(parse(page(transcript())).text)

    assert "there are no messages yet" in shown


def test_costs_of_some_replies_are_said_to_be_of_some() -> None:
    priced = reply(Text(text="a"), usage=Usage(input=1, output=1, cost=0.5))
    other = reply(Text(text="b"), usage=Usage(input=1, output=1))

    shown = "".join(parse(page(transcript(priced, other))).text)

    assert "$0.5000 for 1 of 2 replies" in shown


def test_what_sub_agents_spent_counts() -> None:
    asked = reply(ToolCall(id="c", name="look", arguments="{}"), usage=Usage(input=10, output=1, cost=0.25))
    spent = {"input": 100, "output": 20, "cost": 0.5}
    answered = ToolMessage(call_id="c", name="look", content=(Text(text="found"),), meta={"usage": spent})

    shown = "".join(parse(page(transcript(asked, answered))).text)

    assert "110 in, 21 out" in shown
    assert "$0.7500" in shown


@pytest.mark.parametrize("origin", ["continue", "repair", "nudge", "wrap_up", "summary"])
def test_what_the_loop_said_is_not_shown_as_the_users(origin: str) -> None:
    parsed = parse(page(transcript(user("hi"), user("go on", origin=origin))))

    assert [attrs["class"] for attrs in parsed.all("article")] == ["said", "said loop"]


def test_what_is_not_sent_any_more_is_marked() -> None:
    old = UserMessage(content=(Text(text="old"),), excluded=True)
    answer = AssistantMessage(content=(Text(text="older"),), excluded=True)

    assert "".join(parse(page(transcript(old, answer))).text).count("not sent any more") == 2


def test_long_texts_are_whole_and_folded() -> None:
    text = "".join(f"line {number} of many\n" for number in range(5_000))
    asked = reply(ToolCall(id="c", name="look", arguments="{}"))

    parsed = parse(page(transcript(asked, result("c", text))))

    assert len(parsed.all("details", "rest")) == 1
    assert f"show all {len(text):,} characters" in "".join(parsed.text)
    for number in (0, 39, 40, 4_999):
        assert f"line {number} of many\n" in "".join(parsed.text)


def test_code_that_is_cut_by_the_fold_goes_on_as_code() -> None:
    code = "x = 1\n" * 200

    parsed = parse(page(transcript(user(f"Look:\n```python\n{code}```\nSo."))))

    kinds = [attrs["class"] for tag, attrs in parsed.tags if tag == "pre" or attrs.get("class") == "text"]
    assert kinds == ["text", "code", "code", "text"]


@given(st.text(max_size=300).map(lambda text: text * 40) | st.text(alphabet="ab\n", max_size=9_000))
@settings(max_examples=60, deadline=None)
def test_parting_a_text_loses_nothing(text: str) -> None:
    head, rest = split(text)

    assert head + rest == text
    assert bool(head) == bool(text)


def test_many_replies_share_a_strip_of_bounded_size() -> None:
    entries = tuple(Entry(message=reply(Text(text="x")), at=float(number)) for number in range(3_000))

    html = page(Transcript(title="long", source="session", entries=entries))

    assert len(re.findall(r'<a [^<>]*tabindex="-1"', html)) == 250
    assert len(re.findall(r'<article class="turn"', html)) == 3_000


def test_without_times_the_strip_shows_tokens() -> None:
    replies = [reply(Text(text="x"), usage=Usage(input=10, output=5)) for _ in range(3)]

    html = page(transcript(*replies))

    assert 'aria-label="tokens of each reply"' in html


# Hostile content ----------------------------------------------------------------------------------


def everywhere(text: str) -> Transcript:
    """Put a text wherever a stranger could."""
    asked = (
        ToolCall(id=text, name=text, arguments=json.dumps({text: text, "b": [text]})),
        ToolCall(id="2", name=text, arguments=text, complete=False),
    )
    parts = (
        Text(text=text),
        Thinking(text=text),
        Image(url=text),
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
        tools=(glue.ToolSpec(name=text, description=text, parameters={text: text}),),
        entries=(
            *(Entry(message=message, attempts=(tried,)) for message in messages),
            Note(kind="failed", text=text, attempts=(tried,)),
            Note(kind="heading", text=text),
        ),
    )


MARKDOWN = frozenset("blockquote code em h5 li ol strong table tbody td th thead tr ul".split())


def shape(html: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(tag, tuple(attrs)) for tag, attrs in parse(html).tags]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_no_tag_of_the_page(text: str) -> None:
    plain = "a" * len(text)

    assert shape(page(everywhere(text))) == shape(page(everywhere(plain)))


@cache
def usual() -> frozenset[str]:
    """The tags of a page whose texts hold no markup."""
    return frozenset(tag for tag, _ in parse(page(everywhere("a"))).tags) | {"pre", *MARKDOWN}


@given(st.text(alphabet=st.sampled_from("<>&\"'`/=! \n\t-;#x3abscript\x00\u202e\ud800"), min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_no_text_is_markup(text: str) -> None:
    html = page(everywhere(text))
    found = parse(html).tags

    assert {tag for tag, _ in found} <= usual()
    for tag, attrs in found:
        if tag in MARKDOWN:
            assert set(attrs) <= {"class", "value"}
            assert re.fullmatch(r"d\d|\d*|name", (attrs.get("class") or "") + (attrs.get("value") or ""))
    assert html.count("<script>") == html.count("<style>") == 1
    html.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_points_nowhere_and_runs_nothing_inline(text: str) -> None:
    parsed = parse(page(everywhere(text)))

    for tag, attrs in parsed.tags:
        assert tag not in ("link", "iframe", "object", "embed", "form", "base", "video", "audio", "source", "use")
        for name, value in attrs.items():
            assert not name.startswith("on")
            assert name not in ("style", "srcset", "action", "ping", "xlink:href")
            if name == "href":
                assert re.fullmatch(r"#r\d+", value or "")
            if name == "src":
                assert (value or "").startswith("data:image/")


def test_pictures_are_shown_only_from_bytes_that_are_pictures() -> None:
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


def test_what_cannot_be_seen_is_shown() -> None:
    assert escape("a\x1b[31m\u202eb\x7f\u200b\ud800\r\n\tc") == "a␛[31m⟨U+202E⟩b␡⟨U+200B⟩⟨U+D800⟩\n\tc"


def test_joiners_of_scripts_and_emoji_stay() -> None:
    assert escape("\U0001f469\u200d\U0001f4bb\u200c") == "\U0001f469\u200d\U0001f4bb\u200c"


def test_the_policy_allows_our_own_script_and_style_alone() -> None:
    import base64
    import hashlib

    html = page(small())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)

    for tag in ("style", "script"):
        (inside,) = re.findall(rf"(?s)<{tag}>(.*?)</{tag}>", html)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_every_text_can_be_read_in_light_and_in_dark() -> None:
    style = (Path(page.__code__.co_filename).parent / "page.css").read_text()
    colours = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)}

    def shine(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    pairs = [(text, back) for text in ("text", "dim", "link", "bad") for back in ("back", "card", "sunk", "said")]
    for text, back in [*pairs, ("good", "card"), ("bad", "bad-back"), ("text", "found")]:
        for mode in (0, 1):
            low, high = sorted((shine(colours[text][mode]), shine(colours[back][mode])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, back, mode)


# Turns and times ----------------------------------------------------------------------------------


def test_times_of_a_copy_say_nothing() -> None:
    entries = [Entry(message=message, at=5.0) for message in (user("a"), reply(Text(text="b")))]

    (_, turn) = arrange(entries)

    assert isinstance(turn, Turn)
    assert turn.model_seconds is None


def test_a_summary_that_was_put_in_later_gives_no_negative_time() -> None:
    entries = [Entry(message=user("a", origin="summary"), at=9.0), Entry(message=reply(Text(text="b")), at=5.0)]

    (_, turn) = arrange(entries)

    assert isinstance(turn, Turn)
    assert turn.model_seconds is None


def test_results_belong_to_the_reply_before_them_also_when_ids_repeat() -> None:
    asked = reply(ToolCall(id="c", name="look", arguments="{}"))

    blocks = arrange([Entry(message=message) for message in (asked, result("c", "1"), asked, result("c", "2"))])

    found = [pair[1].message.text for block in blocks if isinstance(block, Turn) for pair in block.calls if pair[1]]
    assert found == ["1", "2"]


def test_calls_of_one_reply_under_one_id_have_a_result_each() -> None:
    asked = reply(*(ToolCall(id="c", name="look", arguments="{}") for _ in range(2)))

    (turn,) = arrange([Entry(message=message) for message in (asked, result("c", "1"), result("c", "2"))])

    assert isinstance(turn, Turn)
    assert [found.message.text for _, found in turn.calls if found is not None] == ["1", "2"]


def test_a_batch_took_as_long_as_its_slowest_call() -> None:
    asked = reply(ToolCall(id="a", name="x", arguments="{}"), ToolCall(id="b", name="x", arguments="{}"))
    entries = [
        Entry(message=asked),
        *(Entry(message=result(key, ""), seconds=took) for key, took in (("a", 3.0), ("b", 2.0))),
    ]

    (turn,) = arrange(entries)

    assert isinstance(turn, Turn)
    assert turn.tool_seconds == 3.0


# Sources ------------------------------------------------------------------------------------------

DAMAGED = b'{"type": "exchange", "number": 1e999, "events": [], "request": {}}'


@glue.tool
def look(path: str) -> str:
    """Look at a file."""
    return f"inside {path}"


@pytest.mark.parametrize("kind", ["files", "sessions.db"])
async def test_a_session_is_read_with_its_times(tmp_path: Path, kind: str) -> None:
    store = glue.FileStore(tmp_path / kind) if kind == "files" else glue.SQLiteStore(tmp_path / kind)
    agent = glue.Agent(Script(calls(call("look", {"path": "a.py"})), "It is there."), tools=[look])
    await agent.session("demo", store=store).prompt("Is a.py there?")

    read = await read_session(store, "demo")

    entries = [entry for entry in read.entries if isinstance(entry, Entry)]
    assert [entry.message.text for entry in entries] == ["Is a.py there?", "", "inside a.py", "It is there."]
    assert all(entry.at is not None for entry in entries)
    assert read.created is not None
    assert "It is there." in page(read)


async def test_what_was_taken_over_by_a_fork_has_no_times(tmp_path: Path) -> None:
    store = glue.FileStore(tmp_path)
    session = glue.Agent(Script("one", "two")).session("demo", store=store)
    await session.prompt("first")
    fork = await session.fork(id="other")
    await fork.prompt("second")

    read = await read_session(store, "other")

    assert [entry.at is None for entry in read.entries if isinstance(entry, Entry)] == [True, True, False, False]
    assert read.parent == "demo"


async def test_a_session_keeps_the_attempts_before_a_reply(tmp_path: Path) -> None:
    store = glue.FileStore(tmp_path)
    provider = glue.with_failover(Script(fail("overloaded", "HTTP 529")), Script("Here."))
    await glue.Agent(provider).session("demo", store=store).prompt("Hello?")

    entry = (await read_session(store, "demo")).entries[-1]

    assert isinstance(entry, Entry)
    assert [attempt.kind for attempt in entry.attempts] == ["overloaded"]
    assert "HTTP 529" in page(await read_session(store, "demo"))


async def test_a_cassette_is_read_as_one_conversation(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    script = Script(calls(call("look", {"path": "a.py"})), say("It is", stop="max_tokens"), " there.")
    agent = glue.Agent(Recorder(script, path), tools=[look], instructions="Be brief.")
    await agent.run("Is a.py there?")

    read = read_file(path)

    said = [entry.message.text for entry in read.entries if isinstance(entry, Entry)]
    assert said[:4] == ["Is a.py there?", "", "inside a.py", "It is"]
    assert said[-1] == " there."
    assert len(said) == 6
    assert read.system == "Be brief."
    assert [tool.name for tool in read.tools] == ["look"]


async def test_a_cassette_shows_failures_and_attempts(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    provider = glue.with_failover(
        Script(repeat(fail("overloaded", "HTTP 529")), name="one"), Script("Here.", fail("auth", "no key"))
    )
    agent = glue.Agent(Recorder(provider, path))
    await agent.run("Hello?")
    with pytest.raises(glue.GlueError):
        await agent.run("And now?")

    read = read_file(path)

    shown = "".join(parse(page(read)).text)
    assert "HTTP 529" in shown
    assert "script: auth" in shown
    assert "Conversation 2 of 2" in shown


def test_events_are_read(tmp_path: Path) -> None:
    asked = reply(ToolCall(id="c", name="look", arguments="{}"), stop_reason=glue.StopReason.TOOL_USE)
    answered = result("c", "found")
    events = [
        {"type": "run_start", "run_id": "1"},
        {"type": "attempt", "provider": "one", "kind": "timeout", "detail": "slow", "delay": 1.5, "seconds": "?"},
        {"type": "message_end", "message": messages_to_json([asked])[0]},
        {"type": "tool_end", "message": messages_to_json([answered])[0], "seconds": 0.25},
        {"type": "compacted", "before": 900, "after": 90, "removed": 7},
        {"type": "of_a_newer_version"},
        {"type": "run_end", "outcome": "failed"},
        {"type": "result", "outcome": "failed", "requests": 2, "seconds": 1.25, "error": {"message": "all is lost"}},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))

    shown = "".join(parse(page(read_file(path))).text)

    for text in (
        "timeout",
        "next try after 1.5 s",
        "250 ms",
        "compacted: before 900",
        "failed, 2 requests, 1.2 s: all is lost",
    ):
        assert text in shown
    assert shown.count("The run ended") == 1


@pytest.mark.parametrize(
    "form", [json.dumps, lambda said: "\n".join(map(json.dumps, said)), lambda said: json.dumps({"messages": said})]
)
def test_messages_are_read_as_a_list_and_as_lines(tmp_path: Path, form: Callable[[object], str]) -> None:
    path = tmp_path / "said.json"
    path.write_text(form(messages_to_json([user("hi"), reply(Text(text="hello"))])))

    read = read_file(path)

    assert [entry.message.text for entry in read.entries if isinstance(entry, Entry)] == ["hi", "hello"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello", "holds nothing that can be shown"),
        (b"", "holds nothing that can be shown"),
        (b'{"type": "run_start"}\n' + b"[" * 100_000, "line 2: not JSON"),
        (b"\xff\xfe", "is no text"),
        (b"{}", "holds nothing that can be shown"),
        (b'{"type": "nonsense"}', "holds nothing that can be shown"),
        (b'[{"role": "system"}]', "a message has an unknown role"),
        (b'[{"role": "user", "content": [{"type": "text", "text": 5}]}]', "holds 5 where a text belongs"),
        (b'{"type": "cassette", "schema": 1, "provider": "x"}\n{"type": "exchange", "number": 1}', "no cassette"),
        (b"SQLite format 3\0", "is a store of many sessions"),
        (b'{"type": "run_start"}\n{"type": "message_end"}', "is damaged: KeyError('message')"),
        (b'{"type": "run_start"}\n{"type": "tool_end", "message": 1e999}', "a message must be an object"),
        (b'{"type": "cassette", "schema": 1, "provider": "x"}\n' + DAMAGED, "line 2: the exchange is damaged"),
    ],
)
def test_what_is_no_transcript_is_refused_in_one_line(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)

    with pytest.raises(StoreError, match=re.escape(why)) as caught:
        read_file(path)

    assert "\n" not in str(caught.value)


def test_figures_that_are_no_numbers_are_not_known(tmp_path: Path) -> None:
    usage = {"input": "many", "output": None, "cost": "free", "cache_read": True}
    said = [{"role": "assistant", "content": [], "usage": usage, "meta": {"attempts": [1, {"delay": "x", "usage": 3}]}}]
    path = tmp_path / "said.json"
    path.write_text(json.dumps(said))

    assert "0 → 0 tokens" in page(read_file(path))


@pytest.mark.parametrize("odd", ["1e999", "NaN", "1" + "0" * 400, "-1e999", "true", '"x"', "[]", "{}", "null"])
def test_a_figure_that_nobody_can_read_is_left_out(tmp_path: Path, odd: str) -> None:
    message = json.dumps(messages_to_json([reply(Text(text="hello"), meta={"usage": 0})])[0])
    result = json.dumps(messages_to_json([ToolMessage(call_id="c", name="n", content=(), meta={"usage": 0})])[0])
    lines = (
        '{"type": "attempt", "provider": "one", "delay": ODD, "seconds": ODD, "next_cap": ODD, "usage": ODD}',
        '{"type": "message_end", "message": MESSAGE}'.replace("MESSAGE", message),
        '{"type": "message_end", "message": {"role": "assistant", "content": [], "meta": ODD, "usage": {"cost": ODD}}}',
        '{"type": "tool_end", "seconds": ODD, "message": MESSAGE}'.replace("MESSAGE", result.replace(": 0", ": ODD")),
        '{"type": "result", "outcome": "done", "requests": ODD, "seconds": ODD, "error": ODD}',
    )
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines).replace("ODD", odd))

    shown = "".join(parse(page(read_file(path))).text)

    assert "The run ended: done" in shown


def test_a_run_that_ended_in_an_error_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type": "run_start"}\n{"type": "error", "error": {"message": "no key"}, "exit_code": 2}\n')

    assert "The run ended: failed: no key" in "".join(parse(page(read_file(path))).text)


# The command --------------------------------------------------------------------------------------


def saved(folder: Path) -> Path:
    path = folder / "said.json"
    path.write_text(json.dumps(messages_to_json([user("hi"), reply(Text(text="hello"))])))
    return path


def test_the_command_writes_beside_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    first = CliRunner().invoke(commands, ["view", str(source)])
    again = CliRunner().invoke(commands, ["view", str(source)])

    assert first.output == again.output == "said.html\n"
    assert (work / "said.html").read_text().startswith(MARK)
    assert (work / "said.html").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in work.iterdir()] == ["said.html"]


def test_the_command_writes_over_no_strangers_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "said.html").write_text("mine")

    refused = CliRunner().invoke(commands, ["view", str(source)])
    named = CliRunner().invoke(commands, ["view", str(source), "-o", "other.html"])

    assert isinstance(refused.exception, glue.ConfigError)
    assert (tmp_path / "said.html").read_text() == "mine"
    assert named.output == "other.html\n"


def test_the_command_writes_to_stdout(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["view", str(saved(tmp_path)), "-o", "-"])

    assert done.output.startswith(MARK)


@pytest.mark.parametrize("kind", ["files", "sessions.db"])
def test_the_command_finds_a_session_in_a_store(tmp_path: Path, kind: str) -> None:
    store = glue.FileStore(tmp_path / kind) if kind == "files" else glue.SQLiteStore(tmp_path / kind)
    anyio.run(glue.Agent(Script("Here.")).session("demo", store=store).prompt, "Hello?")

    found = CliRunner().invoke(commands, ["view", "demo", "--store", str(tmp_path / kind), "-o", "-"])
    lost = CliRunner().invoke(commands, ["view", "other", "--store", str(tmp_path / kind)])

    assert "Here." in found.output
    assert "there is no session 'other'; there are: demo" in str(lost.exception)


def test_the_command_makes_no_store_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    done = CliRunner().invoke(commands, ["view", "demo"])

    assert isinstance(done.exception, glue.ConfigError)
    assert "no file 'demo'" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_assets_are_in_the_wheel() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["glue.view"]

    assert sorted(listed) == sorted(
        path.name for path in (root / "glue" / "view").iterdir() if path.suffix in (".css", ".html", ".js")
    )


# Markdown, sub-agents, the index -------------------------------------------------------------------

TOLD = """\
# Title with `code`

Some **bold** and *slanted* text, snake_case_name and 2 * 3 * 4,
on two lines.

- one
  - inner
3. three

> quoted

| a | b |
| - | - |
| `1` | <b> |

[text](javascript:alert(1)) ![x](http://127.0.0.1:9/x) <script>
"""


def test_markdown_is_rendered_with_tags_of_our_own() -> None:
    html = prose(TOLD)

    for piece in (
        "<h5>Title with <code>code</code></h5>",
        "Some <strong>bold</strong> and <em>slanted</em> text, snake_case_name and 2 * 3 * 4,\non two lines.",
        '<ul><li class="d0">one</li><li class="d1">inner</li></ul><ol><li class="d0" value="3">three</li></ol>',
        "<blockquote><p>quoted</p></blockquote>",
        "<th>a</th><th>b</th></tr></thead><tbody><tr><td><code>1</code></td><td>&lt;b&gt;</td>",
        "[text](javascript:alert(1)) ![x](http://127.0.0.1:9/x) &lt;script&gt;",
    ):
        assert piece in html
    assert "href" not in html
    assert "src=" not in html


@given(st.text(alphabet=st.sampled_from("*_`#>-|1. \n<&a~[]()!"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_markdown_keeps_every_letter_and_closes_every_tag(text: str) -> None:
    parsed = parse(prose(text))

    assert parsed.stack == []
    assert sorted(char for char in "".join(parsed.text) if char == "a") == sorted(char for char in text if char == "a")
    assert "".join(parsed.text).count("<") == text.count("<")


async def test_steps_of_a_sub_agent_are_nested_in_its_call(tmp_path: Path) -> None:
    from glue.cli.output import EventWriter

    @glue.tool
    def look(city: str) -> str:
        """Look at a city."""
        raise glue.ToolError(f"{city} is in the fog")

    child = glue.Agent(Script(calls(call("look", {"city": "Bergen"})), "It is foggy."), tools=[look])
    parent = glue.Agent(
        Script(calls(call("guide", {"prompt": "Bergen?"})), "Fog."),
        tools=[child.as_tool("guide", "Knows cities.")],
        instructions="Be brief.",
    )
    lines: list[str] = []
    await parent.run("And Bergen?", on_event=EventWriter(lines.append))
    (tmp_path / "events.jsonl").write_text("".join(lines))

    transcript = read_file(tmp_path / "events.jsonl")
    html = page(transcript)

    assert transcript.system == "Be brief."
    assert [tool.name for tool in transcript.tools] == ["guide"]
    assert "And Bergen?" in html
    steps = html.partition('<div class="steps">')[2]
    assert "look" in steps
    assert "It is foggy." in steps
    assert '<span class="why" dir="auto">Bergen is in the fog</span>' in steps
    assert "2 steps" in html


async def test_a_session_knows_its_instructions_and_tools(tmp_path: Path) -> None:
    @glue.tool
    def look(city: str) -> str:
        """Look at a city."""
        return city

    for store in (glue.FileStore(tmp_path / "files"), glue.SQLiteStore(tmp_path / "s.db")):
        agent = glue.Agent(Script("hi"), tools=[look], instructions="Be brief.")
        await agent.session("one", store=store).prompt("hello")

        transcript = await read_session(store, "one")

        assert transcript.system == "Be brief."
        assert [(tool.name, tool.description) for tool in transcript.tools] == [("look", "Look at a city.")]


def test_an_index_lists_sessions_and_runs(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")
    opened = tmp_path / "opened"
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    (tmp_path / "browser").chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{tmp_path / 'browser'} %s")
    cli("run", "-m", "offline", "-s", "kept <b>", "the first")
    cli("run", "-m", "nobody:x", "lost")

    ran = cli("view", "--open")

    path = Path(ran.out.strip())
    parsed = parse(path.read_text())
    links = [attrs["href"] or "" for tag, attrs in parsed.tags if tag == "a"]
    assert len(links) == 2
    assert all(re.fullmatch(r"(session|run)-[0-9a-f-]+\.html", link) for link in links)
    assert all((path.parent / link).is_file() for link in links)
    assert "kept <b>" in parsed.text
    assert path.parent.stat().st_mode & 0o077 == 0
    assert opened.read_text().strip() == path.as_uri()
    assert cli("view").out == ran.out
