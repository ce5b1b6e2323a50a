"""Snapshots of every text that the reviewing model sees.

To accept a deliberate change: pytest tests/agents/review/test_model_texts.py --snapshot-update
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes.larder import build, git
from fakes.review import FOUND, NEW, OLD, SUMMARY
from syrupy.assertion import SnapshotAssertion

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.findings.anchor import MAX_LINES
from glue.agents.review.findings.gate import REFUSALS
from glue.agents.review.findings.model import AGAIN, review
from glue.agents.review.findings.prompt import system
from glue.agents.review.findings.surroundings import surroundings
from glue.agents.review.findings.tools import ReviewDraft, tools
from glue.agents.review.records import Bundle, ChangeCommit, ReviewedChange
from glue.messages import ToolMessage
from glue.testing import Reply, Script, call, calls, say
from glue.tools.git import Repo

FINISH = calls(call("finish_review", {"summary": SUMMARY}))
DONE = calls(call("finish_review", {"summary": "A small change. I read all of it."}))
TEST = "from shop import total\n\n\ndef test_total():\n    assert total([]) == 0\n"
FETCH = "def fetch(url):\n    if url is None:\n        return b''\n    return download(url)\n"
FETCH_UNCHECKED = "def fetch(url):\n    return download(url)\n"
MARK = re.compile(r"\b[0-9a-f]{24}\b")


def shop(change: ReviewedChange | None = None, **others: str) -> Bundle:
    """Return a change to shop.py; `others` are further new files, by name without `.py`."""
    new = {"shop.py": NEW} | {f"{name}.py": text for name, text in others.items()}
    return from_texts({"shop.py": OLD}, new, change or ReviewedChange(title="Average"))


def report(**changes: Any) -> Reply:
    return calls(call("report_finding", FOUND | changes))


def without_marks(text: str) -> str:
    return MARK.sub("RANDOM-MARK", text)


async def answers(bundle: Bundle, *replies: Reply, repo: Repo | None = None) -> str:
    """Return the results of the tools for the calls in `replies`; errors are marked."""
    script = Script(*replies, DONE)

    await review(bundle, providers=[script], repo=repo)

    messages = [one for one in script.requests[-1].messages if isinstance(one, ToolMessage)]
    return "\n".join(f"{'error' if one.is_error else 'ok'}: {one.text}" for one in messages)


def test_tool_descriptions_and_schemas(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    build(tmp_path / "larder")
    draft = ReviewDraft(shop(), Config(), source="script")

    with Repo(tmp_path / "larder") as repo:
        specs = [tool.spec for tool in tools(draft, repo)]

    schemas = [json.dumps(spec.parameters, indent=1) for spec in specs]
    names = [f"{spec.name}: {spec.description}" for spec in specs]
    assert "\n\n".join(map("\n".join, zip(names, schemas, strict=True))) == snapshot


def test_system_prompt_with_every_setting(snapshot: SnapshotAssertion) -> None:
    paths = {"*.py": "Python 3.11.", "*.go": "This must not be shown: no Go file was changed."}
    config = Config(language="de", instructions="Money is in cents.", paths=paths)
    bundle = replace(shop(), guidelines={"AGENTS.md": "Keep functions short."})

    text = system(bundle, config, "seed")

    assert without_marks(text) == snapshot


async def test_prompt_with_everything_known_about_a_change(snapshot: SnapshotAssertion) -> None:
    change = ReviewedChange(
        title="Average",
        body="Return the mean.",
        issues=("Totals are wrong",),
        commits=(ChangeCommit(sha="a" * 40, message="average"),),
        request="is the empty list handled?",
    )
    old = {"shop.py": OLD, "net.py": FETCH}
    new = {
        "shop.py": NEW,
        "net.py": FETCH_UNCHECKED,
        "AGENTS.md": "Keep functions short.\n",
        "data.py": f"DATA = '{'x' * 1_010}'",
    }
    script = Script(FINISH)

    await review(from_texts(old, new, change), providers=[script])

    assert without_marks(script.requests[0].messages[0].text) == snapshot


async def test_prompts_of_a_change_in_several_parts(snapshot: SnapshotAssertion) -> None:
    long = "".join(f"line_{number} = {number}\n" for number in range(60))
    script = Script(*[FINISH] * 20)

    await review(shop(long=long), providers=[script], config=Config(chunk_tokens=250))

    prompts = [without_marks(request.messages[0].text) for request in script.requests]
    assert "\n\n".join(prompts[:3]) == snapshot


def test_tests_and_calls_of_changed_functions(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "shop.py").write_text(OLD)
    (tmp_path / "page.py").write_text("from shop import total\n\nprint(total([1, 2]))\n")
    (tmp_path / "test_shop.py").write_text(TEST)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Add the shop")
    git(tmp_path, "checkout", "-q", "-b", "average")
    (tmp_path / "shop.py").write_text(NEW)
    git(tmp_path, "commit", "-q", "-a", "-m", "Return the mean")

    with Repo(tmp_path) as repo:
        text = surroundings(collect(tmp_path, base="main"), repo)

    assert text == snapshot


async def test_nudge_after_an_answer_without_tool_calls(snapshot: SnapshotAssertion) -> None:
    script = Script(say("I found nothing."), FINISH)

    await review(shop(), providers=[script])

    assert script.requests[-1].messages[-1].text == AGAIN
    assert snapshot == AGAIN


async def test_answers_to_accepted_findings(snapshot: SnapshotAssertion) -> None:
    wrong_file = report(path="other.py")
    bad_suggestion = report(
        quote="count = len(prices)", title="B", suggestion="    count = len(prices"
    )
    deleted = report(path="net.py", quote="if url is None:", title="C")
    weakened = report(
        path="test_shop.py",
        quote="assert total([]) == 0",
        title="The test fails",
        body="Delete the assertion, because `total` divides by zero here.",
    )
    bundle = from_texts(
        {"shop.py": OLD, "net.py": FETCH},
        {"shop.py": NEW, "net.py": FETCH_UNCHECKED, "test_shop.py": TEST, "other.py": "x = 1\n"},
    )

    text = await answers(bundle, wrong_file, bad_suggestion, deleted, weakened)

    assert text == snapshot


async def test_answers_to_refused_findings(snapshot: SnapshotAssertion) -> None:
    refused = (
        report(path="shpo.py", quote="nothing like it"),
        report(quote="prices"),
        report(quote="raise Overflow(total)"),
        report(quote="raise Overflow(total)", line=3),
        report(title=" ", body=" "),
        calls(call("report_finding", "shop.py is wrong")),
        report(body="word " * 400),
        report(body=" ".join(f"The value {n} of count is wrong." for n in range(2_000))),
    )

    texts = [await answers(shop(), reply) for reply in refused]
    texts.append(await answers(shop(), report(), report()))

    assert "\n".join(texts) == snapshot


async def test_reasons_to_leave_out_a_suggestion(snapshot: SnapshotAssertion) -> None:
    line = "    return sum(prices) / count"
    suggestions = (
        line,
        line.strip(),
        f"```\n{line}\n```",
        f"    count = len(prices)\n{line} or 1",
        f"{line} or (1",
        "\n".join([line] * (MAX_LINES + 1)),
    )

    texts = [await answers(shop(), report(suggestion=text)) for text in suggestions]

    assert "\n".join(texts) == snapshot


async def test_answers_to_refused_summaries(snapshot: SnapshotAssertion) -> None:
    summaries = (
        "",
        "Fine.",
        "It divides. It counts.\nThe change adds a count and then it",
        "The change adds a count.\n```python\ncount",
        "Let me check the callers of this function first.",
        "The `frobnicate` and `quuxify` calls of `Zorp` in `Widget` were reworked.",
        '<tool_call>{"name": "x"}</tool_call> and the rest',
    )

    texts = [
        await answers(shop(), calls(call("finish_review", {"summary": text}))) for text in summaries
    ]

    assert "\n".join(texts) == snapshot


def test_reasons_that_the_gate_names() -> None:
    """Every reason is a clause that completes "the summary was refused: ..."."""
    reasons = [text for group in REFUSALS.values() for text in group.values()]

    assert all(text[0].islower() and not text.endswith(".") for text in reasons)


async def test_answers_of_the_reading_tools(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    build(tmp_path / "larder")
    bundle = collect(tmp_path / "larder", base="main")
    path = bundle.files[0].path
    asked = (
        calls(call("read_file", {"path": path, "lines": 3})),
        calls(call("read_file", {"path": "missing.py", "side": "base"})),
        calls(call("read_file", {"path": ".env"})),
        calls(call("grep", {"pattern": "zzz-not-there"})),
        calls(call("grep", {"pattern": "def "})),
        calls(call("git_log", {"path": path})),
        calls(call("git_log", {"path": "missing.py"})),
        calls(call("git_show", {"commit": "no-such-commit"})),
        calls(call("read_discussion", {})),
    )

    with Repo(tmp_path / "larder") as repo:
        texts = [await answers(bundle, reply, repo=repo) for reply in asked]

    assert "\n".join(texts) == snapshot
