"""The garbage gate: good reviews pass, noise does not, and the codes say why."""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glue.agents.review.change.config import make
from glue.agents.review.change.diff import parse
from glue.agents.review.delivery import report
from glue.agents.review.findings import gate
from glue.agents.review.findings.gate import text_codes
from glue.agents.review.records import Bundle, Coverage, Finding, HunkCoverage, ReviewedChange, ReviewRun

DIFF = """diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,3 +1,4 @@
 import os
-def load(name):
+def load(name, cache={}):
+    return cache.setdefault(name, open(name).read())
 # end of the loader
"""
BUNDLE = Bundle(change=ReviewedChange(head_sha="a" * 40), diff=DIFF, files=parse(DIFF))
GOOD = """The change adds a cache to `load`, and the default argument is shared by every call.

- **high**: `load` in app.py keeps the dictionary `cache` between calls, so tests that expect a fresh one will fail.
- **low**: the file opened by `open` is never closed, which leaks a descriptor on every miss.

Make the default `None` and create the dictionary inside of the function, and read the file in a with block."""
FINDING = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    source="script",
)
COVERED = Coverage(hunks=(HunkCoverage(path="app.py", hunk=1, state="full", lines=4),))


def run(*findings: Finding, **more: Any) -> ReviewRun:
    details: dict[str, Any] = {"summary": "The change adds a cache to `load`.", "finished": True, "coverage": COVERED}
    return ReviewRun(findings=findings, provider="script", **{**details, **more})


def shuffled(text: str) -> str:
    words = text.split()
    random.Random(1).shuffle(words)
    return " ".join(words)


def scrambled(text: str) -> str:
    dice = random.Random(1)
    return "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") if char.isalpha() else char for char in text)


NOISE = {
    "loop": ("The cache is shared by every call. " * 60, "degenerate.ratio"),
    "one word": ("The cache is " + "shared " * 40, "degenerate.run"),
    "dashes": ("The cache of load is shared by " + "— " * 200, "degenerate.run"),
    "shuffled": (shuffled(GOOD * 2), "degenerate.order"),
    "random letters": (scrambled(GOOD), "degenerate.words"),
    "mojibake": (GOOD.replace("-", "—").encode().decode("cp1252"), "degenerate.mojibake"),
    "foreign script": (
        "Измените значение по умолчанию в этой функции, потому что оно общее для вызовов.",
        "degenerate.script",
    ),
    "replacement": ("The cache \ufffd\ufffd\ufffd is \ufffd\ufffd shared.", "degenerate.characters"),
    "base64": (base64.b64encode(GOOD.encode()).decode(), "degenerate.length"),
    "empty": ("", "transport.empty"),
    "blank": (" \n\t\n", "transport.empty"),
    "invisible": ("\u200b\ufeff\n", "transport.empty"),
    "heading only": ("## Review\n\n", "transport.empty"),
    "empty fence": ("```markdown\n```\n", "transport.empty"),
    "open fence": (GOOD + "\n\n```python\ncache = {}", "transport.fence"),
    "cut": (GOOD[:-40], "transport.cut"),
    "cut in a word": (GOOD.split("\n")[0] + " It also leaks the descr", "transport.cut"),
    "control token": ("The cache is shared.<|im_end|><|im_start|>user", "transport.token"),
    "think": ("</think>The cache is shared.", "transport.token"),
    "tool call": ('{"name": "report_finding", "arguments": {"path": "app.py"}}', "transport.call"),
    "json": ('{"review": "The cache is shared by every call."}', "transport.json"),
    "narration": ("Let me check the file first. The cache is shared.", "echo.narration"),
    "refusal": ("As an AI language model I cannot review this.", "echo.refusal"),
    "placeholder": ("test body", "echo.placeholder"),
    "template": ("**<one-line summary of the finding>** in the cache.", "echo.placeholder"),
    "diff": (DIFF, "echo.diff"),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_named(name: str) -> None:
    text, code = NOISE[name]

    assert code in text_codes(text)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "No concerns.",
        "The refactor keeps behaviour: same map lookup, same order.",
        "Use `x if x else y`; the current form evaluates `f()` twice (once per branch)",
        "Line 3 repeats: `a`, `a`, `a`. That is three times the same key in one dictionary literal.",
        "1. First this.\n2. Then that.\n\n```python\nx = 1\n```",
        "The `<think>` tag and `<|im_start|>` are not closed by the parser.",
        "The <title> element and the {{ name }} of the template are escaped twice.",
        "Null check validates the wrong parameter, so rawTokenId may be null",
    ],
)
def test_ordinary_texts_pass(text: str) -> None:
    assert text_codes(text) == ()


def test_another_language_passes_where_it_is_configured() -> None:
    text = NOISE["foreign script"][0]

    assert text_codes(text, language="ru") == ()


def test_an_echo_of_the_prompts_examples_is_refused() -> None:
    example = "The helper zanzibar_lookup never closes the handle that frob_gate opened in the outer loop."

    assert "echo.example" in text_codes(example, examples=[example])
    assert "echo.example" not in text_codes(GOOD, examples=[example])


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (FINDING, ""),
        (replace(FINDING, path="other.py"), "grounding.path"),
        (replace(FINDING, quote="cache"), "grounding.quote"),
        (replace(FINDING, quote="nowhere in the change at all"), "grounding.quote"),
        (replace(FINDING, quote="def  load(name,\tcache={}):"), ""),
        (replace(FINDING, body="Call `frob_all` before `quux_one` and `zip_two`."), "grounding.names"),
        (replace(FINDING, body="The cache is " + "shared " * 40), "degenerate.run"),
        (replace(FINDING, title="test body"), "echo.placeholder"),
        (replace(FINDING, body="As an AI I cannot judge this."), "echo.refusal"),
        (replace(FINDING, body="Consider the cache: I will look at `load`, it is shared"), ""),
        (replace(FINDING, body=" "), "transport.empty"),
        (replace(FINDING, body="x" * 40_000), "caps.body"),
        (replace(FINDING, body="The cache \u200b\u200b\u200b\u202e\u200bis shared."), "degenerate.characters"),
    ],
)
def test_a_finding_is_judged_by_its_ground_and_its_words(finding: Finding, code: str) -> None:
    assert gate.finding_code(finding, BUNDLE) == code


def test_a_quote_of_deleted_code_is_ground_enough() -> None:
    assert gate.finding_code(replace(FINDING, quote="def load(name):", body="The old form was safe."), BUNDLE) == ""


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (run(FINDING), ""),
        (run(FINDING, stop_reason="max_tokens"), ""),
        (run(stop_reason="max_tokens"), "transport.max_tokens"),
        (run(FINDING, stop_reason="refusal"), "transport.refusal"),
        (run(finished=False), "channel.nothing"),
        (run(summary=""), ""),
        (run(summary="check check check check check check check"), "degenerate.run"),
        (run(FINDING, summary="check check check check check check check"), ""),
        (run(summary="Let me check the files."), ""),
        (run(summary="Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock`."), "grounding.topic"),
        (run(FINDING, summary="Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock`."), ""),
        (run(FINDING, replace(FINDING, path="x.py"), replace(FINDING, path="y.py")), "run.dropped"),
        (run(FINDING, replace(FINDING, path="x.py")), ""),
        (run(FINDING, canary="tangerine-4711", summary="The word is tangerine-4711 here."), "canary"),
        (run(FINDING, codes=("transport.token",)), "transport.token"),
    ],
)
def test_a_run_is_judged_as_a_whole(record: ReviewRun, code: str) -> None:
    judged = gate.judge(record, BUNDLE)

    assert bool(judged.codes) == bool(code)
    assert code in judged.codes or not code


def test_rules_alone_need_no_model_to_finish() -> None:
    judged = gate.judge(ReviewRun(findings=(replace(FINDING, source="rules", rule="x"),), coverage=COVERED), BUNDLE)

    assert not judged.codes
    assert len(judged.findings) == 1


def test_findings_of_one_place_are_said_once_and_the_worst_come_first() -> None:
    again = replace(FINDING, title="A mutable default argument", line=2)
    worse = replace(FINDING, quote="return cache.setdefault", title="Leaks a file", severity="critical", line=3)

    judged = gate.judge(run(replace(FINDING, line=2), again, worse), BUNDLE)

    assert [finding.title for finding in judged.findings] == ["Leaks a file", "Mutable default argument"]
    assert [finding.dropped for finding in judged.dropped] == ["duplicate"]


def test_the_json_of_a_model_without_tools_is_repaired_once() -> None:
    reply = '{"summary": "Adds a cache.", "findings": [{"path": "a}b"}]}'

    assert gate.parse_reply(reply) is not None
    assert gate.parse_reply(f"Sure!\n```json\n{reply}\n```\nDone.") is not None
    assert gate.parse_reply(reply.replace("]}", "],}")) is not None
    commas = gate.parse_reply(reply.replace("a}b", "a,}b") + "\nDone.")
    assert commas is not None
    assert commas["findings"][0]["path"] == "a,}b"  # prose behind it calls for no repair
    assert gate.parse_reply("The cache is shared.") is None
    assert gate.parse_reply('{"findings": "none"}') is None
    assert gate.parse_reply("[" * 100_000) is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, 0),
        ({"findings": [replace(FINDING, severity="high")]}, 1),
        ({"findings": [replace(FINDING, severity="high")], "fail_on": "critical"}, 0),
        ({"findings": [replace(FINDING, severity="critical")], "fail_on": None}, 0),
        ({"findings": [replace(FINDING, severity="critical")], "fail_on": make({"fail-on": "never"}).fail_on}, 0),
        ({"codes": ("degenerate.run",)}, 3),
        ({"finished": False}, 3),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),))}, 0),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),)), "require_coverage": 100.0}, 3),
        ({"require_coverage": 100.0}, 0),
        ({"problem": "refused"}, 4),
        ({"problem": ""}, 0),
        ({"problem": "refused", "findings": [replace(FINDING, severity="high")]}, 4),
    ],
)
def test_each_part_of_the_verdict_has_its_exit_code(options: dict[str, Any], code: int) -> None:
    found = options.pop("findings", ())
    items = tuple(report.Item(finding=one, path=one.path, where=one.path) for one in found)
    asked = {name: options.pop(name) for name in ("fail_on", "require_coverage", "problem") if name in options}
    judged = report.Report(change=ReviewedChange(), items=items, **{"coverage": COVERED, **options})
    found = report.decide(judged, **asked)

    assert found.exit_code == code
    assert found.word


def test_the_gate_judges_recorded_reviews(capsys: pytest.CaptureFixture[str]) -> None:
    corpus = os.environ.get("GLUE_REVIEW_CORPUS")
    if not corpus:
        pytest.skip("GLUE_REVIEW_CORPUS is not set: no recorded reviews")
    judged = Counter((label, bool(gate.summary_codes(text, shown))) for label, text, shown in labelled(Path(corpus)))
    with capsys.disabled():
        print(f"\n{dict(judged)}")

    assert judged["garbage", False] == judged["truncated", False] == judged["empty", False] == 0
    assert judged["good", False]
    assert judged["good", True] <= 0.02 * (judged["good", True] + judged["good", False])


def labelled(corpus: Path) -> list[tuple[str, str, str]]:
    """Recorded texts with their label and what was shown, where the case is known."""
    shown: dict[str, str] = {}
    for path in (corpus / "cases").glob("*.json"):
        case = json.loads(path.read_text())
        files = {**case["files_before"], **case["files_after"]}
        shown[case["id"]] = "\n".join((case["title"], case["diff"], *files, *files.values()))
    rows = []
    for name in ("outputs.jsonl", "outputs_derived.jsonl"):
        for row in map(json.loads, (corpus / name).read_text().splitlines()):
            case = row.get("offered_for") or row.get("case") or row.get("from_id", "").split("@")[0]
            rows.append((row["label"], row["text"], shown.get(case, "")))
    return rows
