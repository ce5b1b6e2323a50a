"""The report of a review and its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config, make
from glue.agents.review.delivery import report
from glue.agents.review.findings.dedupe import Dismissal
from glue.agents.review.records import (
    Bundle,
    Coverage,
    Finding,
    HunkCoverage,
    ProviderAttempt,
    ReviewedChange,
    ReviewRun,
    SecondLook,
    SkippedFile,
)
from glue.secrets import Redactor

FINDING = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    source="script",
)
COVERED = Coverage(hunks=(HunkCoverage(path="app.py", hunk=1, state="full", lines=4),))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, 0),
        ({"findings": [replace(FINDING, severity="high")]}, 1),
        ({"findings": [replace(FINDING, severity="high")], "fail_on": "critical"}, 0),
        ({"findings": [replace(FINDING, severity="critical")], "fail_on": None}, 0),
        (
            {
                "findings": [replace(FINDING, severity="critical")],
                "fail_on": make({"fail-on": "never"}).fail_on,
            },
            0,
        ),
        ({"codes": ("degenerate.run",)}, 3),
        ({"finished": False}, 3),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),))}, 0),
        (
            {
                "coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),)),
                "require_coverage": 100.0,
            },
            3,
        ),
        ({"require_coverage": 100.0}, 0),
        ({"problem": "refused"}, 4),
        ({"problem": ""}, 0),
        ({"problem": "refused", "findings": [replace(FINDING, severity="high")]}, 4),
    ],
)
def test_verdict_determines_the_exit_code(options: dict[str, Any], code: int) -> None:
    found = options.pop("findings", ())
    items = tuple(report.Item(finding=one, path=one.path, where=one.path) for one in found)
    asked = {
        name: options.pop(name)
        for name in ("fail_on", "require_coverage", "problem")
        if name in options
    }
    judged = report.Report(change=ReviewedChange(), items=items, **{"coverage": COVERED, **options})
    found = report.decide(judged, **asked)

    assert found.exit_code == code
    assert found.word


@pytest.mark.parametrize(
    ("number", "options", "reason"),
    [
        (1, {}, "1 finding of severity high or worse"),
        (2, {"fail_on": "medium"}, "2 findings of severity medium or worse"),
        (0, {"problem": "HTTP 500"}, "not delivered: HTTP 500"),
    ],
)
def test_reasons_of_a_verdict_name_what_failed(
    number: int, options: dict[str, Any], reason: str
) -> None:
    one = replace(FINDING, severity="high")
    items = tuple(report.Item(finding=one, path=one.path, where=one.path) for _ in range(number))

    judged = report.decide(report.Report(change=ReviewedChange(), items=items), **options)

    assert judged.reasons == (reason,)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"codes": ("degenerate.run", "x.y")},
         "inconclusive: a word is repeated (degenerate.run, x.y)"),
        ({"codes": ("x.y",)}, "inconclusive: x.y"),
        ({"finished": False}, "the review stopped before it was finished"),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),)),
          "model": "m"}, "only 0 % of the change was read in full"),
        ({"coverage": Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),))},
         "only 0 % of the change was analysed"),
    ],
)  # fmt: skip
def test_reasons_of_an_unfinished_review_are_named(changes: dict[str, Any], reason: str) -> None:
    if len(changes.get("codes", ())) > 1:
        changes = {**changes, "reasons": ("a word is repeated",)}

    judged = report.decide(report.Report(change=ReviewedChange(), **changes))

    assert judged.reasons == (reason,)
    assert judged.delivered is None


def test_dismissal_by_an_author_does_not_change_the_verdict() -> None:
    grave = replace(FINDING, severity="critical")
    item = report.Item(finding=grave, path="app.py", where="app.py")
    for binding, code in ((True, 0), (False, 1)):
        mark = Dismissal(id="x", binding=binding)
        judged = report.Report(change=ReviewedChange(), dismissed=((item, mark),))
        assert report.decide(judged).exit_code == code


OLD = "import os\ndef load(name):\n    return name\n"
NEW = "import os\ndef load(name, cache={}):\n    return name\n"


def change(**more: Any) -> Bundle:
    return from_texts({"app.py": OLD}, {"app.py": NEW}, ReviewedChange(**more))


def built(*findings: Finding, bundle: Bundle | None = None, **more: Any) -> report.Report:
    details: dict[str, Any] = {
        "provider": "script",
        "model": "one",
        "finished": True,
        "summary": "The change adds a cache to `load`.",
        "coverage": COVERED,
    }
    run = ReviewRun(findings=findings, **{**details, **more})
    return report.build(bundle or change(), run, Redactor(mask="[redacted]"))


@pytest.mark.parametrize(
    ("number", "increment", "start"),
    [
        (1, False, "1 finding of an earlier review is still open: 1 medium.\n\nThe change"),
        (1, True, ("1 finding of an earlier review is still open: 1 medium.\n\n"
                  "New since the earlier review: The change")),
        (2, False, "2 findings of earlier reviews are still open: 2 medium.\n\nThe change"),
        (0, True, "The change adds"),
    ],
)  # fmt: skip
def test_open_findings_of_earlier_reviews_come_first(
    number: int, increment: bool, start: str
) -> None:
    open_ = [
        FINDING,
        replace(FINDING, quote="def load(name):", title="The old name is gone", body="It breaks."),
    ]

    made = built(
        *(replace(finding, since="abc") for finding in open_[:number]), is_increment=increment
    )

    assert made.summary.startswith(start)


@pytest.mark.parametrize(
    ("more", "summary"),
    [
        ({"summary": ""}, "The change touches 1 file (+1, -1 lines). Nothing was found."),
        ({"summary": "", "codes": ("x.y",)}, "The change touches 1 file (+1, -1 lines)."),
        (
            {"provider": "", "coverage": Coverage()},
            "There is nothing to read in this change, so no model was asked.",
        ),
        (
            {"provider": ""},
            (
                "The change touches 1 file (+1, -1 lines). Nothing was found. No model was asked."
                " All files were searched for secrets, conflict markers, hidden text and"
                " switched-off tests."
            ),
        ),
        (
            {
                "provider": "",
                "coverage": Coverage(
                    hunks=(
                        replace(COVERED.hunks[0], reason="analysed by ruff"),
                        replace(COVERED.hunks[0], path="b.py", reason="analysed by ruff"),
                    )
                ),
            },
            (
                "The change touches 1 file (+1, -1 lines). Nothing was found. No model was asked."
                " ruff analysed 2 files, and all files were searched for secrets, conflict markers,"
                " hidden text and switched-off tests."
            ),
        ),
    ],
)
def test_summary_is_built_if_the_model_wrote_none(more: dict[str, Any], summary: str) -> None:
    assert built(**more).summary == summary


def test_providers_that_failed_are_named_with_the_reason() -> None:
    tries = (
        ProviderAttempt(provider="one", codes=("provider.auth",), detail="one: wrong key"),
        ProviderAttempt(provider="two", codes=("degenerate.run", "x.y")),
        ProviderAttempt(provider="three"),
    )

    notices = built(tries=tries).notices

    assert notices[0] == "one did not review the change: wrong key"
    assert notices[1].startswith("two did not review the change: ")
    assert notices[1].endswith("; x.y")
    assert len(notices) == 2


def test_inconclusive_review_of_a_model_keeps_the_findings_of_rules() -> None:
    rule = replace(FINDING, rule="x", source="rules")
    codes = ("transport.token",)

    with_rule, without = built(FINDING, rule, codes=codes), built(FINDING, codes=codes)
    empty = built(summary="", codes=codes)

    start = "The model's review was inconclusive and is not shown"
    assert [finding.rule for finding in with_rule.findings] == ["x"]
    assert f"{start}; these are the findings of analysers and rules." in with_rule.notices
    assert without.findings == ()
    assert f"{start}." in without.notices
    assert not any(notice.startswith(start) for notice in empty.notices)


def test_failed_checks_of_the_second_look_are_counted() -> None:
    assert (
        "The second look could not check 2 findings."
        in built(second_look=SecondLook(failed=2)).notices
    )


def test_finding_outside_the_hunks_keeps_the_number_of_its_line() -> None:
    rows = "".join(f"row_{n} = {n}\n" for n in range(40))
    bundle = from_texts({"a.py": rows}, {"a.py": rows.replace("row_0 = 0", "row_0 = 9")})
    far = replace(FINDING, path="a.py", quote="row_30 = 30", line=31, start_line=30)
    by_rule = replace(far, quote="", rule="x", line=31)

    (item,) = built(far, bundle=bundle, summary="The value `row_0` is 9 now.").items
    (other,) = built(by_rule, bundle=bundle, provider="").items

    for one in (item, other):
        assert (one.finding.line, one.finding.start_line, one.where) == (None, None, "a.py:31")
        assert not one.inline


@pytest.mark.parametrize(
    ("sha", "valid"),
    [("a" * 40, True), ("a" * 64, True), ("a" * 41, False), ("A" * 40, False), ("--help", False)],
)
def test_only_full_hashes_are_valid(sha: str, valid: bool) -> None:
    assert report.valid_sha(sha) == (sha if valid else "")


def test_findings_that_are_too_mild_or_uncertain_are_folded() -> None:
    config = Config(min_severity="medium", min_confidence="medium")
    places = {
        ("medium", "medium"): "",
        ("low", "high"): "mild",
        ("critical", "low"): "mild",
        ("critical", "high"): "",
    }

    for (severity, confidence), folded in places.items():
        finding = replace(FINDING, severity=severity, confidence=confidence)  # type: ignore[arg-type]
        run = ReviewRun(findings=(finding,), provider="x", finished=True, coverage=COVERED)
        (item,) = report.build(change(), run, Redactor(mask="x"), config=config).items
        assert (item.folded, item.inline) == (folded, not folded)


TOKEN = "gh" + "p_" + "A1b2C3d4" * 5


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("def load(name, cache=None):", True),
        ("def load(name, cache=None):  # " + "x" * 1_469, True),
        ("def load(name, cache=None):  # " + "x" * 1_470, False),  # more than 1,500 characters
        (f'def load(name, cache="{TOKEN}"):', False),
        ("def load(name, cache=None):  # \u202e", False),
        ("def load(name, cache=None):  # https://x.test/a", False),
        ("def load(name, cache=None):  # ask @ann", False),
        ("def load(name, cache='" + "`" * 8 + "'):", True),
        ("def load(name, cache='" + "`" * 9 + "'):", False),
        ("def load(name, cache=None:", False),  # does not parse
    ],
)
def test_only_a_suggestion_that_is_safe_to_apply_is_offered(code: str, kept: bool) -> None:
    (item,) = built(replace(FINDING, suggestion=code)).items

    assert item.finding.suggestion == (code if kept else None)


def test_link_that_the_file_has_already_may_be_in_a_suggestion() -> None:
    link = "# see https://x.test/a and @ann\n"
    bundle = from_texts({"app.py": link + OLD}, {"app.py": link + NEW})
    code = f"{link}def load(name, cache=None):"
    finding = replace(FINDING, suggestion=code)

    (item,) = built(finding, bundle=bundle).items
    (elsewhere,) = built(replace(finding, quote="return name"), bundle=bundle).items

    assert item.finding.suggestion == code
    assert elsewhere.finding.suggestion is None


@pytest.mark.parametrize("extra", [0, 1])
def test_texts_of_a_report_have_limits(extra: int) -> None:
    def text(size: int) -> str:
        return "x" * (size + extra)

    sizes = {"title": 300, "author": 80, "asked_by": 80, "request": 200}
    sizes |= {"head_ref": 200, "base_ref": 200}
    bundle = change(**{name: text(size) for name, size in sizes.items()})
    hunk = HunkCoverage(path=text(300), hunk=1, state="full", reason=text(200))
    finding = replace(
        FINDING,
        title=text(200),
        acceptance=text(300),
        note=text(200),
        rule=text(80),
        source="rules",
    )

    made = built(
        finding,
        bundle=bundle,
        provider="p",
        model=text(118),
        prompt=text(80),
        notices=tuple(f"{n:02}{text(498)}" for n in range(21)),
        skipped=(SkippedFile(path=text(300), reason=text(200)),),
        coverage=Coverage(hunks=(hunk,)),
    )

    whole = extra == 0
    assert all((getattr(made.change, name) == text(size)) is whole for name, size in sizes.items())
    (item,) = made.items
    words = item.finding.title, item.finding.acceptance, item.finding.note
    assert [word == text(size) for word, size in zip(words, (200, 300, 200), strict=True)] == [
        whole
    ] * 3
    # A long text is cut far enough that "… (shortened)" has room.
    assert whole or [word.count("x") for word in words] == [140, 240, 140]
    assert item.finding.rule == "x" * 80
    assert (made.model == f"p:{text(118)}") is whole
    assert (made.prompt == text(80)) is whole
    assert len(made.notices) == 20
    assert all((notice == f"{n:02}{text(498)}") is whole for n, notice in enumerate(made.notices))
    (skip,), (read,) = made.skipped, made.coverage.hunks
    for row in (skip, read):
        assert ((row.path, row.reason) == (text(300), text(200))) is whole
        assert len(row.path) <= 300
        assert len(row.reason) <= 200


def test_texts_that_are_made_inert_keep_their_limits() -> None:
    sizes = {"title": 200, "acceptance": 300, "note": 200}
    words = (
        "The cache of this function belongs to all callers, so a second call with other arguments"
        " gets the answer of the first. A caller that changes its copy changes the answer that"
        " everybody else reads later, which no test covers. Pass None instead, and make a new"
        " mapping in each call before the lookup."
    )
    texts: dict[str, Any] = {name: f"::{words}"[: size - 1] + "." for name, size in sizes.items()}

    (item,) = built(replace(FINDING, source="rules", **texts)).items

    for name, size in sizes.items():
        text = getattr(item.finding, name)
        assert (text[:6], text[-1]) == (": :The", "…")
        assert size - 2 <= len(text) <= size
        assert "(shortened)" not in text


def test_codes_have_only_plain_characters() -> None:
    made = built(FINDING, codes=("x y.<b>", "!!", "c" * 61))

    assert made.codes[:3] == ("xy.b", "unknown", "c" * 60)


PART = Coverage(hunks=(replace(COVERED.hunks[0], state="partial"),))


@pytest.mark.parametrize(
    ("changes", "quiet", "clean"),
    [
        ({}, True, True),
        ({"model": "m"}, True, True),
        ({"coverage": PART}, True, False),
        ({"coverage": PART, "model": "m"}, False, False),
        ({"finished": False}, True, False),
        ({"codes": ("x.y",)}, False, False),
        ({"tripwire": True}, False, False),
        ({"items": (report.Item(finding=FINDING, path="a", where="a"),)}, False, False),
    ],
)
def test_report_is_quiet_or_clean_only_if_nothing_is_to_be_said(
    changes: dict[str, Any], quiet: bool, clean: bool
) -> None:
    made = report.Report(change=ReviewedChange(), **{"coverage": COVERED, **changes})

    assert (made.quiet, made.clean) == (quiet, clean)


@pytest.mark.parametrize(
    ("start", "line", "shown"),
    [
        (1, 2, (1, 2)),
        (2, 2, (None, 2)),
        (3, 2, (None, 2)),
        (None, 2, (None, 2)),
        (1, 9, (None, None)),
    ],
)
def test_lines_of_a_finding_without_a_quote_must_be_in_one_hunk(
    start: int | None, line: int, shown: tuple[int | None, int | None]
) -> None:
    finding = replace(FINDING, quote="", rule="x", start_line=start, line=line)

    (item,) = built(finding).items

    assert (item.finding.start_line, item.finding.line) == shown
    assert item.where == f"app.py:{line}"


def test_finding_without_a_line_is_shown_with_its_path() -> None:
    (item,) = built(replace(FINDING, quote="", rule="x")).items

    assert (item.where, item.inline) == ("app.py", False)


def test_only_findings_that_the_second_look_dropped_are_refuted() -> None:
    dropped = [
        replace(FINDING, title=title, dropped=code)
        for title, code in {
            "One": "second-look.refuted",
            "Two": "second-look.dismissed",
            "Three": "second-look.merged",
            "Four": "duplicate",
        }.items()
    ]

    made = built(dropped=tuple(dropped))

    assert [item.finding.title for item in made.refuted] == ["One", "Two"]
    assert made.dropped == 4


@pytest.mark.parametrize(
    ("provider", "finished", "shown"), [("p", True, True), ("p", False, False), ("", False, True)]
)
def test_review_without_a_model_counts_as_finished(
    provider: str, finished: bool, shown: bool
) -> None:
    assert built(provider=provider, finished=finished).finished is shown


@pytest.mark.parametrize(("required", "covered"), [(50.0, True), (50.1, False), (None, False)])
def test_required_coverage_may_be_reached_exactly(required: float | None, covered: bool) -> None:
    half = Coverage(hunks=(*PART.hunks, *COVERED.hunks))

    judged = report.decide(
        report.Report(change=ReviewedChange(), coverage=half), require_coverage=required
    )

    assert judged.covered is covered
