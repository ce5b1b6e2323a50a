"""The live page in Chromium: prompts, questions, pending calls, errors and the stop button."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.browser import Browser
from fakes.browser import browser as browser  # a fixture

pytestmark = pytest.mark.browser

AGENT = '''
import glue
from glue.errors import ProviderError
from glue.testing import Script, call, calls, repeat, say


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"


@glue.tool(needs_permission=True, target="path")
def save(path: str, old: str = "", new: str = "") -> str:
    """Change a file."""
    return f"saved {path}"


@glue.tool(external=True)
def approve(version: str) -> str:
    """Ask the release manager."""
    raise AssertionError("another system answers")


def reply(request):
    last = request.messages[-1]
    if isinstance(last, glue.ToolMessage):
        html = "<img src=x onerror=alert(1)><script>hacked=1</script>"
        return say(f"## Result\\n\\n**{last.text}**\\n\\n{html}", chunk=6)
    if "save" in last.text:
        change = {"path": "notes.txt", "old": "one\\ntwo\\n", "new": "one\\n2\\n"}
        return calls(call("save", change))
    if "release" in last.text:
        return calls(call("approve", {"version": "1.4"}))
    if "fail" in last.text:
        raise ProviderError("the model server is down", kind="overloaded", provider="demo")
    if "wait" in last.text:
        return say("slowly ...", delay=600)
    return calls(call("weather", {"city": "Oslo"}), text="Let me look.")


agent = glue.Agent(Script(repeat(reply)), tools=[weather, save, approve], name="demo")
'''


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve an agent, and yield the address that `glue serve` prints."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "agent.py").write_text(AGENT)
    command = [sys.executable, "-m", "glue", "serve", "agent.py", "--no-open", "--store", "chats"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture
def page(browser: Browser, address: str) -> Browser:
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    browser.open(address)
    browser.wait("return document.querySelector('#list li')")
    return browser


def send(page: Browser, prompt: str) -> None:
    page.run("document.getElementById('prompt').value = arguments[0]", prompt)
    page.run("document.getElementById('composer').requestSubmit()")


def idle(page: Browser) -> None:
    page.wait("return document.getElementById('stop').hidden && !document.getElementById('stream')")


@pytest.fixture
def picture(page: Browser) -> Callable[[str], None]:
    """Return a function that saves pictures of the page in GLUE_SCREENSHOTS, if that is set."""

    def save(name: str) -> None:
        folder = os.environ.get("GLUE_SCREENSHOTS")
        for width in (1280, 390) if folder else ():
            for theme in ("light", "dark"):
                page.devtools(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=900,
                    deviceScaleFactor=1,
                    mobile=width < 500,
                )
                page.run("document.documentElement.dataset.theme = arguments[0]", theme)
                page.run("scrollTo(0, document.body.scrollHeight)")
                page.screenshot(Path(str(folder)) / f"serve-{name}-{width}-{theme}.png")
        page.devtools("Emulation.clearDeviceMetricsOverride")

    return save


def text(page: Browser) -> str:
    return str(page.run("return document.querySelector('main').textContent"))


def test_a_prompt_streams_its_answer_and_html_of_the_model_is_text(
    page: Browser, address: str, picture: Callable[[str], None]
) -> None:
    send(page, "What is the weather?")
    idle(page)

    assert "Oslo: 21 degrees, dry" in text(page)
    assert "<script>hacked=1</script>" in text(page)
    assert page.run("return typeof hacked") == "undefined"
    assert page.run("return document.querySelectorAll('main script, main img').length") == 0
    page.wait("return document.querySelectorAll('#list button').length >= 1")
    origin = address.partition("/?")[0]
    assert all(url.startswith(origin) for url in page.requested())
    errors = [entry for entry in page.log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in errors if "favicon" not in entry["message"]] == []
    picture("tool")


def test_a_question_shows_the_diff_and_a_click_answers_it(
    page: Browser, picture: Callable[[str], None]
) -> None:
    send(page, "save it")
    page.wait("return document.querySelector('.asks')")
    assert page.run("return document.activeElement.dataset.answer") == "allow"
    assert "-two" in text(page)
    assert "+2" in text(page)
    picture("question")

    page.run("document.activeElement.click()")
    idle(page)

    assert "saved notes.txt" in text(page)


def test_a_paused_run_is_answered_after_a_reload(
    page: Browser, picture: Callable[[str], None]
) -> None:
    send(page, "release it")
    idle(page)
    page.command("/refresh")
    page.wait("return document.querySelector('[data-call]')")
    assert "waits for a result" in text(page)
    picture("paused")

    page.run("document.querySelector('[id^=text-]').value = 'approved by Ada'")
    page.run("document.querySelector('[data-call]').click()")
    page.wait("return !document.querySelector('[data-call]')")
    idle(page)

    assert "approved by Ada" in text(page)


def test_an_error_is_shown_where_the_user_types(
    page: Browser, picture: Callable[[str], None]
) -> None:
    send(page, "fail")
    page.wait("return document.getElementById('notice').classList.contains('bad')")
    idle(page)

    assert "the model server is down" in str(
        page.run("return document.getElementById('notice').innerText")
    )
    picture("error")


def test_the_stop_button_cancels_the_run(page: Browser) -> None:
    send(page, "wait")
    page.wait("return !document.getElementById('stop').hidden")

    page.run("document.getElementById('stop').click()")

    page.wait("return document.getElementById('notice').innerText.includes('cancelled')")
    idle(page)


def test_a_conversation_is_found_and_opened_again(page: Browser) -> None:
    send(page, "What about the albatross?")
    idle(page)
    page.run("document.getElementById('new').click()")
    page.wait("return document.querySelector('main').textContent.includes('no messages yet')")

    page.run("document.getElementById('find').value = 'albatross'")
    page.run("document.getElementById('find').dispatchEvent(new Event('input'))")
    page.wait("return document.querySelectorAll('#list button').length === 1")
    page.run("document.querySelector('#list button').click()")

    page.wait("return document.querySelector('main').textContent.includes('albatross')")
    assert "session=" in str(page.run("return location.search"))


def test_without_the_token_there_is_no_page(browser: Browser, address: str) -> None:
    browser.open(address.partition("?")[0])

    body = str(browser.run("return document.body.innerText"))
    assert "token is missing" in body


def test_the_page_fits_a_phone(page: Browser) -> None:
    send(page, "What is the weather?")
    idle(page)
    page.devtools(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=800,
        deviceScaleFactor=2,
        mobile=True,
    )

    wide = page.run("return document.documentElement.scrollWidth")

    assert wide <= 390
