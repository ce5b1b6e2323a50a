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
        (replace(FINDING, title="The cache is shared. It leaks the descr"), ""),
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
        (
            run(
                *(replace(FINDING, title=part) for part in ("tange", "rine", "-4711")),
                canary="tangerine-4711",
            ),
            "canary",
        ),
        (run(FINDING, codes=("transport.token",)), "transport.token"),
    ],
)
def test_whole_run_is_refused_with_the_code_of_the_reason(record: ReviewRun, code: str) -> None:
    judged = gate.judge(record, BUNDLE)

    assert bool(judged.codes) == bool(code)
    assert code in judged.codes or not code


@pytest.mark.parametrize("part", ["path", "title", "body", "suggestion", "acceptance"])
def test_canary_is_found_in_every_text_of_a_finding(part: str) -> None:
    parts: dict[str, Any] = {part: "It is tangerine 4711."}

    judged = gate.judge(run(FINDING, replace(FINDING, **parts), canary="tangerine-4711"), BUNDLE)

    assert judged.codes == ("canary",)


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


def words(number: int, distinct: int) -> str:
    """Return a text of that many words, of which so many are distinct, without a repeated pair."""
    pairs = [(a, b) for a in range(distinct) for b in range(distinct) if a != b]
    random.Random(2).shuffle(pairs)
    flat = [word for pair in pairs for word in pair]
    return " ".join(f"name{word}" for word in flat[:number])


CYRILLIC = "абвгдежзиклмноп"


@pytest.mark.parametrize(
    ("text", "code", "is_refused"),
    [
        # A word six times in a row.
        ("so " + "shared " * 6, "degenerate.run", True),
        ("so " + "shared " * 5, "degenerate.run", False),
        # 40 words or more, of which less than a quarter are distinct.
        (words(40, 9), "degenerate.distinct", True),
        (words(40, 10), "degenerate.distinct", False),
        (words(39, 9), "degenerate.distinct", False),
        # 24 words or more, of which one sequence covers more than 30 %.
        ("one two " * 4 + words(16, 16), "degenerate.repeat", True),
        ("one two " * 4 + words(15, 15), "degenerate.repeat", False),
        ("one two " * 3 + words(18, 18), "degenerate.repeat", False),
        ("one two three four " * 3 + words(12, 12), "degenerate.repeat", False),
        ("one two three " * 4 + words(28, 28), "degenerate.repeat", False),
        ("one two three " * 4 + words(27, 27), "degenerate.repeat", True),
        ("one two three four " * 4 + words(30, 30), "degenerate.repeat", True),
        ("- * " * 4 + words(16, 16), "degenerate.repeat", False),
        # Words of more than 25 characters on average, in 60 characters or more.
        ("x" * 60, "degenerate.length", True),
        ("x" * 59, "degenerate.length", False),
        (f"{'x' * 25} {'y' * 25} {'z' * 25}", "degenerate.length", False),
        (f"{'x' * 25} {'y' * 26} {'z' * 25}", "degenerate.length", True),
        # More than two damaged characters, or more than 1 % of a long text.
        ("The cache\ufffd is\ufffd shared.", "degenerate.characters", False),
        ("The cache\ufffd is\ufffd shared\ufffd.", "degenerate.characters", True),
        ("The cache\x07 is\x07 shared\x07.", "degenerate.characters", True),
        (GOOD + "\ufffd" * 4 + "." * (396 - len(GOOD)), "degenerate.characters", False),
        ("\n\r\t" * 3 + "It is shared.", "degenerate.characters", False),
        # Two sequences of mojibake.
        ("It canâ€™t be shared.", "degenerate.mojibake", False),
        ("It canâ€™t be â€œshared.", "degenerate.mojibake", True),
        # At least twelve letters, of which more than a fifth are foreign.
        (CYRILLIC[:11], "degenerate.script", False),
        (CYRILLIC[:12], "degenerate.script", True),
        ("a" * 16 + " " + CYRILLIC[:4], "degenerate.script", False),
        ("a" * 16 + " " + CYRILLIC[:5], "degenerate.script", True),
        # At least 25 words, of which less than 8 % are common.
        (
            "the a " + words(0, 2) + "zap " * 0 + " ".join(f"w{'x' * n}" for n in range(23)),
            "degenerate.words",
            False,
        ),
        ("the " + " ".join(f"w{'x' * n}" for n in range(24)), "degenerate.words", True),
        ("the " + " ".join(f"w{'x' * n}" for n in range(23)), "degenerate.words", False),
        # At least three articles before a word that cannot follow, and more than 15 % of all.
        ("the of a to", "degenerate.order", False),
        ("the of a to an is", "degenerate.order", True),
        ("the of a to an is " + "the cat " * 17, "degenerate.order", False),
        ("the of a to an is " + "the cat " * 16, "degenerate.order", True),
        # Three lines of a diff.
        ("--- a/x\n+++ b/x\n", "echo.diff", False),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n", "echo.diff", True),
        # JSON has at least one quoted text.
        ('{"a": 1}', "transport.json", True),
        ("[see above]", "transport.json", False),
        # A code fence that is left open, also inside another one.
        ("```\nx\n```\nDone.", "transport.fence", False),
        ("```md\n```py\nx\n```\nDone.", "transport.fence", True),
        ("```md\n```py\nx\n```\n```\nDone.", "transport.fence", False),
    ],
)
def test_each_limit_separates_noise_from_text(text: str, code: str, is_refused: bool) -> None:
    assert (code in text_codes(text)) == is_refused


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("The cache is shared. It leaks the descr", True),
        ("The cache is shared", False),  # a title may end like this
        ("The cache is shared by `load`", False),
        ("The cache is shared by `load` and `op", False),
        ("The cache is shared by `load` and `", True),
        ("One.\nTwo.\nand then thr", True),
        ("One.\nTwo\nand then thr", True),
        ("One\nTwo\nand then thr", False),
        ("cache\nload\nopen", False),
        ("The cache is shared.\n\n# Result", False),
        ("The cache is shared.\n```\nx = 1\n```", False),
        ("キャッシュは共有されます。", False),
    ],
)
def test_text_that_stops_in_a_sentence_is_cut(text: str, is_cut: bool) -> None:
    assert ("transport.cut" in text_codes(text)) == is_cut


@pytest.mark.parametrize(
    ("number", "length", "is_refused"),
    [(2, 60, False), (3, 60, True), (4, 400, False), (5, 400, True), (4, 499, False)],
)
def test_more_than_two_or_one_percent_of_hidden_characters_are_refused(
    number: int, length: int, is_refused: bool
) -> None:
    sentences = (
        f"{GOOD} Both tests of the loader pass before and after this change, on each Python that"
        " is installed here."
    )
    end = "\u200b" * number + "."
    text = sentences[: length - len(end)] + end
    body = sentences[: length - len(end) - 3] + end  # the title and two line ends come before it

    refused = "degenerate.characters" if is_refused else ""

    assert (len(text), hidden(text)) == (length, number)
    assert gate.summary_codes(text) == ((refused,) if refused else ())
    assert gate.finding_code(replace(FINDING, title="T", body=body), BUNDLE) == refused


def test_zero_width_spaces_beside_each_other_are_hidden_characters_in_any_script() -> None:
    assert hidden("ab" + "\u200b" * 9 + "cd") == 9
    assert hidden("\u1780" + "\u200b" * 9 + "\u1781") == 9
    assert hidden("\u1780\u200b\u1781\u200b\u1782") == 0
    assert hidden("\u1780\u200b a\u200b\u1781") == 2


@pytest.mark.parametrize(
    ("text", "shown", "codes"),
    [
        ("Adds caching.", "", ("transport.short",)),
        ("Adds a cache.", "", ()),
        ("Adds `load` and `cache`.", "load cache", ()),
        ("Adds `load` and `cache`.", "load only", ()),
        ("Adds `load`, `cache` and `frob`.", "load only", ("grounding.topic",)),
        ("Adds `load` to `src/app.py` today.", "load in src/app.py", ()),
        ("Adds `load` to src/other.py today.", "load in src/app.py", ("grounding.topic",)),
        (
            "Adds `load1 load2 load3 load4` to src/other.py.",
            "load1 load2 load3 load4",
            ("grounding.topic",),
        ),
        (
            "Adds `load1 load2 load3 load4 load5` to src/other.py.",
            "load1 load2 load3 load4 load5",
            (),
        ),
        ("Adds nothing that has a name.", "load only", ()),
        ("Adds `return None` and `True`.", "load only", ()),
    ],
)
def test_summary_is_about_the_change(text: str, shown: str, codes: tuple[str, ...]) -> None:
    assert gate.summary_codes(text, shown) == codes


@pytest.mark.parametrize(
    ("title", "body", "code"),
    [
        ("T" * 2_000, "It is shared.", "degenerate.ratio"),
        ("T" * 2_001, "It is shared.", "caps.body"),
        ("Title", "x" * 30_000, "degenerate.ratio"),
        ("Title", "x" * 30_001, "caps.body"),
        (" ", "It is shared.", "transport.empty"),
    ],
)
def test_titles_and_bodies_have_limits(title: str, body: str, code: str) -> None:
    assert gate.finding_code(replace(FINDING, title=title, body=body), BUNDLE) == code
    by_rule = gate.finding_code(replace(FINDING, title=title, body=body, rule="x"), BUNDLE)
    assert by_rule == ("" if code.startswith("degenerate") else code)


def test_at_most_25_findings_are_posted_the_most_severe_first() -> None:
    rows = "".join(f"+value_{n} = compute({n})\n" for n in range(30))
    diff = f"diff --git a/v.py b/v.py\n--- a/v.py\n+++ b/v.py\n@@ -0,0 +1,30 @@\n{rows}"
    bundle = Bundle(diff=diff, files=parse(diff))
    many = [
        replace(
            FINDING,
            path="v.py",
            quote=f"value_{n} = compute({n})",
            title=f"Number {n} is wrong",
            body=f"Nobody reads `value_{n}` after this line.",
            line=n + 1,
            claimed=n + 1,
            severity="high" if n == 29 else "low",
        )
        for n in range(30)
    ]

    judged = gate.judge(run(*many, summary="Adds thirty values to a file."), bundle)

    assert len(judged.findings) == gate.FINDINGS == 25
    assert judged.findings[0].title == "Number 29 is wrong"
    assert [finding.dropped for finding in judged.dropped] == ["caps.findings"] * 5
    assert judged.codes == ()


@pytest.mark.parametrize(
    ("accepted", "noise", "other", "codes"),
    [
        (1, 1, 0, ()),
        (1, 2, 0, ("run.noise",)),
        (1, 2, 1, ()),
        (0, 0, 1, ("run.refused",)),
        (0, 1, 0, ("run.refused",)),
    ],
)
def test_run_is_refused_if_most_reports_are_noise_or_all_are_refused(
    accepted: int, noise: int, other: int, codes: tuple[str, ...]
) -> None:
    elsewhere = replace(FINDING, path="x.py", title="Another file", body="It is not in the diff.")

    judged = gate.judge(
        run(*[FINDING] * accepted, *DEGENERATE[:noise], *[elsewhere] * other), BUNDLE
    )

    assert judged.codes == codes


def test_summary_longer_than_three_comments_is_refused() -> None:
    sentence = "The change adds a cache to `load` in line {}, as `open` does in every call. "
    long = "".join(sentence.format(n) for n in range(1_000))

    judged = gate.judge(run(FINDING, summary=long), BUNDLE)

    assert len(long) > 3 * gate.SUMMARY
    assert (judged.summary, judged.codes) == ("", ())


def test_refused_reports_are_counted_by_reason() -> None:
    refused = [
        replace(FINDING, dropped=code)
        for code in ("grounding.quote", "grounding.quote", "grounding.path", "odd.code")
    ]

    assert gate.tally(refused) == (
        "4 reports of the model were refused: the quoted code is not in the change (2),"
        " the file is not in the change (1), odd.code (1)"
    )
    assert gate.tally(refused[:1]) == (
        "1 report of the model was refused: the quoted code is not in the change (1)"
    )
    assert gate.tally([]) == ""


def test_generated_summary_counts_lines_and_findings() -> None:
    assert gate.host_summary(BUNDLE, [FINDING, replace(FINDING, severity="high")]) == (
        "The change touches 1 file (+2, -1 lines). Found: 1 high, 1 medium."
    )
    assert gate.host_summary(BUNDLE, [], "Nothing was found.") == (
        "The change touches 1 file (+2, -1 lines). Nothing was found."
    )
    assert gate.host_summary(Bundle(), []) == "The change touches 0 files (+0, -0 lines)."
