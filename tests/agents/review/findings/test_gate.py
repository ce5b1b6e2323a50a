"""The gate: good reviews pass, and noise is refused with a code."""

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

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.diff import parse
from glue.agents.review.findings import gate
from glue.agents.review.findings.gate import hidden, text_codes
from glue.agents.review.records import (
    Bundle,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewedChange,
    ReviewRun,
)

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

- **high**: `load` in app.py keeps the dictionary `cache` between calls, so tests that expect a
  fresh one will fail.
- **low**: the file opened by `open` is never closed, which leaks a descriptor on every miss.

Make the default `None` and create the dictionary inside of the function, and read the file in a
with block."""
FINDING = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    source="script",
)
COVERED = Coverage(hunks=(HunkCoverage(path="app.py", hunk=1, state="full", lines=4),))


def run(*findings: Finding, **more: Any) -> ReviewRun:
    details: dict[str, Any] = {
        "summary": "The change adds a cache to `load`.",
        "finished": True,
        "coverage": COVERED,
    }
    return ReviewRun(findings=findings, provider="script", **{**details, **more})


def shuffled(text: str) -> str:
    words = text.split()
    random.Random(1).shuffle(words)
    return " ".join(words)


def scrambled(text: str) -> str:
    dice = random.Random(1)
    return "".join(
        dice.choice("abcdefghijklmnopqrstuvwxyz") if char.isalpha() else char for char in text
    )


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
    "replacement": (
        "The cache \ufffd\ufffd\ufffd is \ufffd\ufffd shared.",
        "degenerate.characters",
    ),
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


DEGENERATE = tuple(
    replace(FINDING, title=f"Noise {n}", body=f"{word} " * 60, quote="return cache.setdefault")
    for n, word in enumerate(("alpha", "beta"))
)


@pytest.mark.parametrize("name", NOISE)
def test_each_kind_of_noise_has_its_code(name: str) -> None:
    text, code = NOISE[name]

    assert code in text_codes(text)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "No concerns.",
        "The refactor keeps behaviour: same map lookup, same order.",
        "Use `x if x else y`; the current form evaluates `f()` twice (once per branch)",
        (
            "Line 3 repeats: `a`, `a`, `a`. That is three times the same key in"
            " one dictionary literal."
        ),
        "1. First this.\n2. Then that.\n\n```python\nx = 1\n```",
        "The `<think>` tag and `<|im_start|>` are not closed by the parser.",
        "The <title> element and the {{ name }} of the template are escaped twice.",
        "Null check validates the wrong parameter, so rawTokenId may be null",
    ],
)
def test_ordinary_texts_pass(text: str) -> None:
    assert text_codes(text) == ()


def test_text_in_the_configured_language_passes() -> None:
    text = NOISE["foreign script"][0]

    assert text_codes(text, language="ru") == ()


def test_repeated_example_of_the_prompt_is_refused() -> None:
    example = (
        "The helper zanzibar_lookup never closes the handle that frob_gate"
        " opened in the outer loop."
    )

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
        (replace(FINDING, body="Call `frob_all` before `quux_one` and `zip_two`."), ""),
        (replace(FINDING, body="The cache is " + "shared " * 40), "degenerate.run"),
        (replace(FINDING, title="test body"), "echo.placeholder"),
        (replace(FINDING, body="As an AI I cannot judge this."), "echo.refusal"),
        (replace(FINDING, body="Consider the cache: I will look at `load`, it is shared"), ""),
        (replace(FINDING, body=" "), "transport.empty"),
        (replace(FINDING, body="x" * 40_000), "caps.body"),
        (
            replace(FINDING, body="The cache \u200b\u200b\u200b\u202e\u200bis shared."),
            "degenerate.characters",
        ),
    ],
)
def test_findings_are_refused_with_the_code_of_the_reason(finding: Finding, code: str) -> None:
    assert gate.finding_code(finding, BUNDLE) == code


def test_quote_of_deleted_code_is_accepted() -> None:
    assert (
        gate.finding_code(
            replace(FINDING, quote="def load(name):", body="The old form was safe."), BUNDLE
        )
        == ""
    )


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
        (
            run(summary="Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock`."),
            "grounding.topic",
        ),
        (
            run(
                FINDING,
                summary="Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock`.",
            ),
            "",
        ),
        (run(FINDING, replace(FINDING, path="x.py"), replace(FINDING, path="y.py")), ""),
        (run(replace(FINDING, path="x.py")), "run.refused"),
        (run(FINDING, *DEGENERATE), "run.noise"),
        (
            run(FINDING, canary="tangerine-4711", summary="The word is tangerine-4711 here."),
            "canary",
        ),
        (run(FINDING, codes=("transport.token",)), "transport.token"),
    ],
)
def test_whole_run_is_refused_with_the_code_of_the_reason(record: ReviewRun, code: str) -> None:
    judged = gate.judge(record, BUNDLE)

    assert bool(judged.codes) == bool(code)
    assert code in judged.codes or not code


def test_review_by_rules_only_passes_the_gate() -> None:
    judged = gate.judge(
        ReviewRun(findings=(replace(FINDING, source="rules", rule="x"),), coverage=COVERED), BUNDLE
    )

    assert not judged.codes
    assert len(judged.findings) == 1


def test_duplicates_are_dropped_and_severe_findings_come_first() -> None:
    again = replace(FINDING, title="A mutable default argument", line=2)
    worse = replace(
        FINDING, quote="return cache.setdefault", title="Leaks a file", severity="critical", line=3
    )

    judged = gate.judge(run(replace(FINDING, line=2), again, worse), BUNDLE)

    assert [finding.title for finding in judged.findings] == [
        "Leaks a file",
        "Mutable default argument",
    ]
    assert [finding.dropped for finding in judged.dropped] == ["duplicate"]


def test_refused_report_is_resolved_by_a_finding_that_says_the_same_or_is_on_its_line() -> None:
    placed = replace(FINDING, line=2)
    refused = replace(FINDING, quote="not there", dropped="grounding.quote")
    near = replace(refused, title="Slow lookup", body="It takes long.", claimed=2)
    other = replace(near, claimed=40)
    duplicate = replace(other, dropped="duplicate")

    assert gate.unresolved([refused, near, duplicate], [placed]) == ()
    assert gate.unresolved([refused, near, other], [placed]) == (other,)
    assert gate.unresolved([refused, refused], []) == (refused,)


def test_gate_refuses_recorded_noise_and_accepts_good_reviews(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = os.environ.get("GLUE_REVIEW_CORPUS")
    if not corpus:
        pytest.skip("GLUE_REVIEW_CORPUS is not set: no recorded reviews")
    judged = Counter(
        (label, bool(gate.summary_codes(text, shown)))
        for label, text, shown in labelled(Path(corpus))
    )
    with capsys.disabled():
        print(f"\n{dict(judged)}")

    assert judged["garbage", False] == judged["truncated", False] == judged["empty", False] == 0
    assert judged["good", False]
    assert judged["good", True] <= 0.02 * (judged["good", True] + judged["good", False])


def labelled(corpus: Path) -> list[tuple[str, str, str]]:
    """Return label, text and context of recorded reviews; the context is empty if unknown."""
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


@pytest.mark.parametrize(
    "text",
    [
        "The `a` and the `b` are `c`, and the `d` is an `e`.",
        "`await` was removed in front of `save`: nothing waits for the `write`.",
    ],
)
def test_sentences_of_code_spans_pass(text: str) -> None:
    assert text_codes(text) == ()


def test_zero_width_spaces_in_khmer_text_are_not_hidden_characters() -> None:
    text = (
        "មុខងារ\u200bនេះ\u200bមិន\u200bពិនិត្យ\u200bបញ្ជី\u200bទទេ\u200bទេ។"
        " វា\u200bនឹង\u200bបរាជ័យ\u200bនៅ\u200bពេល\u200bនោះ។"
    )

    assert text_codes(text, language="km") == ()
    assert hidden(text) == 0
    assert hidden("ig\u200bnore") == 1


def test_finding_in_bad_style_is_accepted() -> None:
    bundle = from_texts({}, {"steps.py": "def step(rows):\n    return rows[0]\n"})
    finding = Finding(
        path="steps.py",
        quote="    return rows[0]",
        title="Fails",
        body="Let me check: I will look at `rows`",
    )

    assert gate.finding_code(finding, bundle) == ""
