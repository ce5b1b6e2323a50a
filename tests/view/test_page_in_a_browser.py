"""The page of a transcript in Chromium: it folds, searches, loads nothing and stays harmless."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import Browser
from fakes.browser import browser as browser  # a fixture

from glue.limits import StopReason
from glue.messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
    user,
)
from glue.provider import Attempt
from glue.view.page import index, page
from glue.view.transcript import Listed, Note, ShownMessage, Transcript

pytestmark = pytest.mark.browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Callable[[Transcript], Browser]:
    def open_page(transcript: Transcript) -> Browser:
        path = tmp_path / "page.html"
        path.write_text(page(transcript), encoding="utf-8")
        browser.open(path)
        return browser

    return open_page


# Returns the ids of the articles that are visible.
VISIBLE = """
const articles = [...document.querySelectorAll('main > article')];
return articles.filter(article => article.getClientRects().length).map(article => article.id)
"""


def long(turns: int = 1_500) -> Transcript:
    """A long transcript with failed calls, cut replies, retries and long results.

    A folded result of the reply 1,234 contains the word "needle".
    """
    entries: list[ShownMessage | Note] = []
    now = 1_750_000_000.0

    def add(message: Message, after: float, attempts: tuple[Attempt, ...] = ()) -> None:
        nonlocal now
        now += after
        entries.append(ShownMessage(message=message, at=now, attempts=attempts))

    add(user("Find out why the nightly build is slow, and fix it.\n\n- it began last Tuesday"), 0)
    for turn in range(1, turns + 1):
        calls = [
            ToolCall(
                id=f"{turn}.{n}",
                name=name,
                arguments=json.dumps({"path": f"larder/part_{turn}.py", "limit": 200}),
            )
            for n, name in enumerate(("read_file", "grep")[: 1 + turn % 2])
        ]
        thought = (
            Thinking(
                text="Every test opens a connection and runs the migrations again. " * (turn % 9)
            ),
        )
        usage = Usage(
            input=900 + 40 * turn, output=60 + turn % 300, cache_read=800 + 40 * turn, cost=0.002
        )
        cut = turn % 40 == 0
        text = (
            "The fixture is made again for each test:\n\n"
            "```python\ndb = connect()\n```\nI will share it."
        )
        reply = AssistantMessage(
            content=(*(thought if turn % 3 == 0 else ()), Text(text=text), *(() if cut else calls)),
            usage=usage,
            provider="anthropic",
            model="claude-haiku-4-5",
            stop_reason="max_tokens" if cut else "tool_use",  # type: ignore[arg-type]
        )
        tried = Attempt(
            provider="anthropic",
            kind="overloaded",
            detail="HTTP 529: Overloaded",
            delay=2.0,
            seconds=0.6,
        )
        add(reply, 0.8 + turn * 37 % 101 / 12, (tried,) if turn % 50 == 4 else ())
        if cut:
            add(user("Go on where you stopped.", origin="continue"), 0.01)
            continue
        for place, call in enumerate(calls):
            needle = "a needle in the haystack\n" if turn == 1_234 else ""
            output = (
                f"line of part {turn}\n" * (400 if turn % 10 == 0 else 8)
                + needle
                + "w" * (1_500 if turn % 25 == 1 else 0)
            )
            failed = turn % 30 == 7 and place == 0
            add(
                ToolMessage(
                    call_id=call.id, name=call.name, content=(Text(text=output),), is_error=failed
                ),
                0.4,
            )
    add(
        AssistantMessage(
            content=(Text(text="Done: three minutes again."),),
            stop_reason="max_turns",  # type: ignore[arg-type]
        ),
        3,
    )
    return Transcript(
        title="nightly-build", source="session", items=tuple(entries), created=1_750_000_000.0
    )


def test_a_long_page_loads_without_warnings_and_requests_nothing(
    show: Callable[[Transcript], Browser],
) -> None:
    browser = show(long())

    assert browser.run("return document.querySelectorAll('main > article.turn').length") == 1_501
    assert browser.run("return document.readyState") == "complete"
    assert browser.log("browser") == []
    assert {address.split(":")[0] for address in browser.requested()} == {"file"}


COUNT_TOO_WIDE = """
const boxes = [...document.querySelectorAll('pre, .card')];
return boxes.filter(box => box.scrollWidth > box.clientWidth + 1).length
"""


def test_nothing_is_wider_than_the_window(show: Callable[[Transcript], Browser]) -> None:
    browser = show(long(60))
    browser.run("document.getElementById('open').click()")

    for width in (1280, 700, 360):
        browser.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), (
            width
        )
        assert browser.run(COUNT_TOO_WIDE) == 0, width
    browser.devtools("Emulation.clearDeviceMetricsOverride")


def test_calls_fold_and_unfold(show: Callable[[Transcript], Browser]) -> None:
    browser = show(long(30))
    folds = "[...document.querySelectorAll('main details:not(.rest)')]"
    count_open = f"return {folds}.filter(fold => fold.open).length"
    every = browser.run(f"return {folds}.length")

    assert browser.run(count_open) == 0
    browser.run("document.querySelector('details.call > summary').click()")
    assert browser.run(count_open) == 1
    assert browser.run(
        "return document.querySelector('details.call pre.raw').getClientRects().length > 0"
    )
    browser.run("document.getElementById('open').click()")
    assert browser.run(count_open) == every
    browser.run("document.getElementById('fold').click()")
    assert browser.run(count_open) == 0


def test_the_rest_of_a_long_result_is_shown_on_demand(
    show: Callable[[Transcript], Browser],
) -> None:
    browser = show(long(12))
    height = "return document.querySelector('#r10 .call').getBoundingClientRect().height"

    browser.run("document.querySelector('#r10 .call > summary').click()")
    before = browser.run(height)
    browser.run("document.querySelector('#r10 .rest > summary').click()")

    assert browser.run(height) > before + 1_000
    assert (
        browser.run("return document.querySelector('#r10 .rest').textContent").count(
            "line of part 10"
        )
        > 300
    )


def test_search_unfolds_hits_and_escape_restores_the_page(
    show: Callable[[Transcript], Browser],
) -> None:
    browser = show(long())
    count = browser.run("return document.querySelectorAll('main > article').length")

    browser.type("NEEDLE in the")
    browser.wait("return document.getElementById('found').textContent.startsWith('1 of')")
    assert browser.run(VISIBLE) == ["r1234"]
    assert browser.run("return document.querySelector('#r1234 .call').open")
    assert browser.run("return CSS.highlights.get('found').size") == 1
    browser.key("Enter")
    assert browser.run("return document.getElementById('found').textContent") == "1 of 1"
    browser.key("Escape")

    assert len(browser.run(VISIBLE)) == count
    assert not browser.run("return document.querySelector('#r1234 .call').open")
    browser.type("a text that is not on the page")
    browser.wait("return !document.getElementById('nothing').hidden")
    assert browser.run(VISIBLE) == []
    assert browser.log("browser") == []


def test_enter_moves_through_the_hits_and_starts_again(
    show: Callable[[Transcript], Browser],
) -> None:
    browser = show(long(90))
    found = "return document.getElementById('found').textContent"

    browser.type("overloaded")
    browser.wait(found + ".startsWith('2 of')")
    seen = []
    for shift in (False, False, False, True):
        browser.key("Enter", shift=shift)
        seen.append(browser.run(found))

    assert seen == ["1 of 2", "2 of 2", "1 of 2", "2 of 2"]
    assert browser.run(VISIBLE) == ["r4", "r54"]


def test_the_page_can_show_only_problems(show: Callable[[Transcript], Browser]) -> None:
    browser = show(long(41))

    browser.run("document.getElementById('problems').click()")

    assert browser.run(VISIBLE) == ["r4", "r7", "r37", "r40", "r42"]


def test_light_and_dark_mode_follow_the_system_and_the_button(
    show: Callable[[Transcript], Browser],
) -> None:
    browser = show(long(3))
    back = "return getComputedStyle(document.body).backgroundColor"

    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.devtools("Emulation.setEmulatedMedia", features=[feature])
        browser.run("localStorage.clear(); delete document.documentElement.dataset.theme")
        seen.append(browser.run(back))
        for _ in range(2):
            browser.run("document.getElementById('theme').click()")
            seen.append(browser.run(back))
    browser.run("localStorage.clear()")
    browser.devtools("Emulation.setEmulatedMedia", features=[])

    light, dark = seen[0], seen[3]
    assert light != dark
    assert seen == [light, dark, light, dark, light, dark]


def hostile(address: str) -> Transcript:
    """A transcript with every attack that a model, a tool or a repository could try."""
    attacks = (
        f'<script src="{address}/s.js"></script><script>document.title="owned"</script>',
        f'<img src="{address}/i.png" onerror="document.title=\'owned\'">',
        f'"><svg onload="document.title=\'owned\'"><image href="{address}/v.svg"/></svg>',
        f'</pre></details></article></main></body><iframe src="{address}/f"></iframe>',
        f"</style><style>@import url({address}/c.css);</style>",
        f"</style><style>body {{ background: url({address}/b.png) }}</style>",
        f'</script><script>fetch("{address}/x")</script>',
        f'<link rel="stylesheet" href="{address}/l.css">',
        f'<meta http-equiv="refresh" content="0;url={address}/m"><base href="{address}/">',
        f'<form action="{address}/p"><input autofocus onfocus="document.title=\'owned\'"></form>',
        f"javascript:document.title='owned'//{address}/j",
        f"![picture]({address}/md.png) [link]({address}/a)",
        "\u202egnp.exe \x1b]0;owned\x07 \x00",
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="fetch(\'{address}/in\')"/>'
    parts: tuple[Part, ...] = (
        *(Text(text=text) for text in attacks),
        Image(url=f"{address}/url.png"),
        Image(data=svg.encode(), media_type="image/svg+xml"),
        Image(data=b"\x89PNG\r\n\x1a\n", media_type=f"image/png\" onerror=\"fetch('{address}/t')"),
    )
    asks = tuple(
        ToolCall(id=text, name=text, arguments=json.dumps({text: text})) for text in attacks
    )
    tried = Attempt(provider=attacks[0], model=attacks[1], kind=attacks[2], detail=attacks[3])
    messages: list[Message] = [user(*parts, origin=attacks[4])]
    messages.append(
        AssistantMessage(content=(*parts, *asks), provider=attacks[1], model=attacks[2])
    )
    messages += [ToolMessage(call_id=text, name=text, content=parts) for text in attacks]
    entries: tuple[ShownMessage | Note, ...] = (
        *(ShownMessage(message=message, attempts=(tried,)) for message in messages),
        Note(kind="failed", text=attacks[0]),
    )
    return Transcript(
        title=attacks[0], source=attacks[1], parent=attacks[2], system=attacks[5], items=entries
    )


def test_hostile_texts_run_nothing_and_load_nothing(
    show: Callable[[Transcript], Browser], loopback: Callable[..., Any]
) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    browser = show(hostile(server.url))
    browser.run("document.getElementById('open').click()")
    browser.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    browser.type("script")
    browser.wait("return document.getElementById('found').textContent")

    assert browser.run("return document.title").startswith("<script src=")
    assert browser.run("return document.scripts.length") == 1
    forbidden = "iframe, form, link, base, img, object, embed"
    assert browser.run(f"return document.querySelectorAll('{forbidden}').length") == 0
    assert browser.run("return document.styleSheets.length") == 1
    assert {address.split(":")[0] for address in browser.requested()} == {"file"}
    assert server.seen == []
    assert browser.log("browser") == []


def test_the_content_security_policy_blocks_injected_markup(
    browser: Browser, tmp_path: Path, loopback: Callable[..., Any]
) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    markup = (
        f'<script>document.title="owned"</script><script src="{server.url}/s.js"></script>'
        f'<img src="{server.url}/i.png" onerror="document.title=\'owned\'">'
        f'<iframe src="{server.url}/f"></iframe>'
    )
    path = tmp_path / "page.html"
    path.write_text(page(long(2)).replace("<main>", f"<main>{markup}"))

    browser.open(path)

    assert browser.run("return document.title") == "nightly-build · glue"
    assert server.seen == []


MARKDOWN = (
    """# Title

Some **bold**, `code` and a very long word: """
    + "x" * 400
    + """

- one
  - inner

| a | b |
| - | - |
| 1 | 2 |

```python
print("hello")
```
"""
)


def with_steps() -> Transcript:
    """A transcript with a sub-agent whose call failed, and an answer in Markdown."""
    inner = ToolCall(id="b", name="look", arguments='{"city": "Bergen"}')
    failed = ToolMessage(
        call_id="b", name="look", content=(Text(text="no station answers"),), is_error=True
    )
    steps = (
        ShownMessage(message=AssistantMessage(content=(inner,), stop_reason=StopReason.TOOL_USE)),
        ShownMessage(message=failed),
        ShownMessage(message=AssistantMessage(content=(Text(text="Bergen is **foggy**."),))),
    )
    outer = ToolCall(id="a", name="guide", arguments='{"prompt": "Bergen?"}')
    entries = (
        ShownMessage(message=user("Bergen?")),
        ShownMessage(message=AssistantMessage(content=(outer,), stop_reason=StopReason.TOOL_USE)),
        ShownMessage(
            message=ToolMessage(call_id="a", name="guide", content=(Text(text="foggy"),)),
            steps=steps,
        ),
        ShownMessage(message=AssistantMessage(content=(Text(text=MARKDOWN),))),
    )
    return Transcript(title="steps", source="events of a run", items=entries, system="- be brief")


def test_markdown_is_rendered_and_fits_the_window(show: Callable[[Transcript], Browser]) -> None:
    browser = show(with_steps())

    count = (
        "return document.querySelectorAll('main > article > .card > .prose ' + arguments[0]).length"
    )
    assert [browser.run(count, tag) for tag in ("h5", "strong", "li", "td")] == [1, 1, 2, 2]
    for width in (1280, 390):
        browser.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.devtools("Emulation.clearDeviceMetricsOverride")


def test_steps_of_a_sub_agent_unfold_inside_its_call(show: Callable[[Transcript], Browser]) -> None:
    browser = show(with_steps())

    inside = "document.querySelector('details.call details.call.bad')"
    assert not browser.run(f"return {inside}.checkVisibility()")
    browser.run("document.querySelector('details.call').open = true")
    assert browser.run(f"return {inside}.querySelector('.why').textContent") == "no station answers"
    assert browser.run(f"return {inside}.querySelector('.why').checkVisibility()")
    browser.type("no station")
    assert browser.wait("return document.getElementById('found').textContent") == "1 of 3"


def test_the_index_can_be_searched_and_links_to_its_pages(browser: Browser, tmp_path: Path) -> None:
    listed = [
        Listed(file=f"run-{n}.html", kind="run", title=f"prompt {n}", at=1.7e9 + n, failed=n == 1)
        for n in range(3)
    ]
    (tmp_path / "index.html").write_text(index(listed))
    (tmp_path / "run-2.html").write_text(page(with_steps()))

    browser.open(tmp_path / "index.html")
    browser.type("prompt 2")
    assert browser.wait("return document.getElementById('found').textContent") == "1 of 3"
    browser.run("document.querySelector('article:not(.missed) a').click()")

    assert browser.wait("return document.title") == "steps · glue"


def test_screenshots_are_written_for_review(
    show: Callable[[Transcript], Browser], tmp_path: Path
) -> None:
    folder = Path(os.environ.get("GLUE_SCREENSHOTS", tmp_path))
    browser = show(long())

    for scheme in ("light", "dark"):
        browser.devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        browser.screenshot(folder / f"top-{scheme}.png")
    folds = "document.querySelectorAll('#r10 details, #r11 details')"
    browser.run(f"for (const fold of {folds}) fold.open = true")
    browser.run("document.getElementById('r9').scrollIntoView()")
    browser.screenshot(folder / "unfolded-dark.png")
    browser.run("document.getElementById('r38').scrollIntoView()")
    browser.screenshot(folder / "stops-dark.png")
    browser.devtools("Emulation.setEmulatedMedia", features=[])
    browser.type("needle")
    browser.wait("return document.getElementById('found').textContent")
    browser.screenshot(folder / "search-light.png")

    assert all(path.stat().st_size > 10_000 for path in folder.glob("*.png"))
