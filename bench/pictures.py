"""Makes the pictures of the documentation from real programs: chat, viewer, serve, review comment.

    python bench/pictures.py [-o docs/pictures]

The chat runs in tmux, the pages in headless Chromium, 1280 pixels wide; on Debian install tmux,
chromium, chromium-driver, fonts-dejavu-core and fonts-noto-color-emoji. A script plays the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import demo
import picture
from markdown_it import MarkdownIt

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.browser import Browser, chromium

ROOT = Path(__file__).resolve().parent.parent
GLUE = Path(sys.executable).parent / "glue"
WIDTH = 1280
AGENT = '''
import glue
from glue.testing import Script, call, calls, repeat, say


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return {"Toronto": "21 degrees, dry", "Oslo": "9 degrees, rain"}.get(city, "unknown")


@glue.tool(needs_permission=True, target="path")
def save(path: str, text: str) -> str:
    """Save a text in a file."""
    return f"saved {path}"


def reply(request):
    last = request.messages[-1]
    usage = glue.Usage(input=412, output=58, cost=0.00007)
    if isinstance(last, glue.ToolMessage) and last.name == "save":
        return say("The packing list is in `trip.md`.", usage=usage)
    if isinstance(last, glue.ToolMessage):
        table = "| city | now | umbrella |\\n| --- | --- | --- |\\n"
        table += "| Toronto | 21 degrees, dry | no |\\n| Oslo | 9 degrees, rain | **yes** |\\n"
        return say(f"Take an umbrella to Oslo only.\\n\\n{table}", usage=usage)
    if "list" in last.text:
        listed = {"path": "trip.md", "text": "- umbrella\\n- coat\\n"}
        return calls(call("save", listed), usage=usage)
    both = [call("weather", {"city": city}) for city in ("Toronto", "Oslo")]
    return calls(*both, text="Let me look at both cities.", usage=usage)


agent = glue.Agent(
    Script(repeat(reply), model="demo-1"),
    tools=[weather, save],
    instructions="You help to plan trips. Answer briefly.",
    permission=glue.AllowAll(),
    name="trip",
)
'''
QUESTION = "I fly to Toronto and then to Oslo. Do I need an umbrella?"
COMMENT = """
<style>
body {{ font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; margin: 24px; color: #1f2328; }}
.box {{ border: 1px solid #d1d9e0; border-radius: 6px; margin: 0 0 20px; overflow: hidden; }}
.who {{ background: #f6f8fa; border-bottom: 1px solid #d1d9e0; padding: 8px 16px; }}
.text {{ padding: 4px 16px; }}
pre, code {{ font: 13px/1.6 "DejaVu Sans Mono", monospace; }}
code {{ background: #eff1f3; border-radius: 4px; padding: 1px 5px; }}
pre {{ margin: 0; background: #dafbe1; padding: 4px 16px; }}
pre.same {{ background: #fff; }}
</style>
<div class="box"><div class="who"><code>{path}</code></div><pre class="same">{before}</pre>
<pre>{line}</pre><div class="who"><b>github-actions</b> bot commented on line {number}</div>
<div class="text">{comment}</div></div>
<div class="box"><div class="who"><b>github-actions</b> bot commented</div>
<div class="text">{sticky}</div></div>
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "pictures")
    out = parser.parse_args().output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="glue-pictures-") as name:
        home = Path(name)
        (home / "agent.py").write_text(AGENT)
        chat(home, out / "chat.svg")
        with chromium(home / "profile") as browser:
            view(browser, home, out / "view.png")
            serve(browser, home, out / "serve.png")
            review(browser, home, out / "review.png")
    for path in sorted(out.iterdir()):
        print(f"{path} {path.stat().st_size / 1000:.0f} kB")
    return 0


def environment(home: Path) -> dict[str, str]:
    return {"PATH": f"{GLUE.parent}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}


def chat(home: Path, target: Path) -> None:
    """Chat in a terminal of tmux, and write a picture of its screen to `target`."""

    def tmux(*words: str) -> str:
        line = ["tmux", "-u", "-S", str(home / "tmux"), *words]
        done = subprocess.run(
            line, env=environment(home), check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def until(text: str) -> str:
        deadline = time.monotonic() + 60
        while text not in (shown := tmux("capture-pane", "-p", "-e")):
            if time.monotonic() > deadline:
                raise SystemExit(f"the chat never showed {text!r}:\n{shown}")
        return shown

    size = ("-x", "96", "-y", "21")
    command = f"exec {GLUE} chat agent.py -s trip"
    tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(home), "sh", "-c", command)
    try:
        until("/help")
        tmux("send-keys", QUESTION, "Enter")
        until("umbrella to")
        tmux("send-keys", "Write me a packing list.", "Enter")
        until("trip.md")
        time.sleep(1)  # the status line is drawn last
        screen = tmux("capture-pane", "-p", "-e").rstrip("\n")
    finally:
        tmux("kill-server")
    shown = f"$ glue chat agent.py -s trip\n{whole_lines(screen)}"
    target.write_text(picture.draw(shown, 96, "glue chat in a terminal"), encoding="utf-8")


def whole_lines(screen: str) -> str:
    """Return the screen with the colours of each line repeated at the start of the next line.

    tmux prints only the changes of colours.
    """
    lines, codes = [], ""
    for line in screen.split("\n"):
        lines.append(codes + line)
        for found in picture.SGR.finditer(line):
            codes = "" if found[1] in ("", "0") else codes + found[0]
    return "\n".join(lines)


def view(browser: Browser, home: Path, target: Path) -> None:
    """Write a picture of the page of the chat's session to `target`."""
    command = [GLUE, "view", "trip", "-o", "trip.html"]
    subprocess.run(command, cwd=home, env=environment(home), check=True, stdout=subprocess.DEVNULL)
    shoot(browser, (home / "trip.html").as_uri(), target, 900)


def serve(browser: Browser, home: Path, target: Path) -> None:
    """Ask a question on the page of `glue serve`, and write a picture of it to `target`."""
    with page(home) as address:
        light(browser, 760)
        browser.open(address)
        browser.wait("return document.querySelector('#list li')")
        browser.run(
            "const box = document.querySelector('textarea'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('input', {bubbles: true}));"
            "box.form.requestSubmit()",
            QUESTION,
        )
        browser.wait("return document.body.innerText.includes('umbrella to')")
        browser.wait("return !!document.querySelector('table')")
        browser.screenshot(target)


@contextmanager
def page(home: Path) -> Iterator[str]:
    command = [GLUE, "serve", "agent.py", "--no-open", "--store", "web.db"]
    with subprocess.Popen(
        command, cwd=home, env=environment(home), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def review(browser: Browser, home: Path, target: Path) -> None:
    """Write a picture of an inline comment and the sticky comment of the demo to `target`."""
    subprocess.run(
        [sys.executable, demo.__file__, str(home / "demo")], check=True, stdout=subprocess.DEVNULL
    )
    folder = home / "demo" / "pull-request"
    sent = [json.loads(line) for line in (folder / "review" / "requests.jsonl").open()]
    first = sent[0]["body"]["comments"][0]
    git = ["git", "-C", str(folder / "larder"), "show", f"find-items:{first['path']}"]
    lines = subprocess.run(git, check=True, capture_output=True, text=True).stdout.splitlines()
    number = first["line"]
    markdown = MarkdownIt("commonmark", {"html": True})
    shown = COMMENT.format(
        path=first["path"],
        number=number,
        before="\n".join(lines[number - 4 : number - 1]),
        line=lines[number - 1],
        comment=markdown.render(first["body"]),
        sticky=markdown.render(sent[1]["body"]["body"]),
    )
    (home / "comment.html").write_text(f"<!doctype html><meta charset=utf-8>{shown}")
    shoot(browser, (home / "comment.html").as_uri(), target, 700)


def shoot(browser: Browser, address: str, target: Path, height: int) -> None:
    light(browser, height)
    browser.open(address)
    browser.screenshot(target)


def light(browser: Browser, height: int) -> None:
    """Set the size of the window, and ask pages for their light colours."""
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.devtools("Emulation.setDeviceMetricsOverride", **size)
    scheme = [{"name": "prefers-color-scheme", "value": "light"}]
    browser.devtools("Emulation.setEmulatedMedia", features=scheme)


if __name__ == "__main__":
    sys.exit(main())
