"""The tools of the reviewing model: reports are checked at once, and reading is restricted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import build, git
from fakes.review import FOUND, NEW, OLD, SUMMARY

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.findings.model import review
from glue.agents.review.findings.tools import ReviewDraft, tools
from glue.agents.review.records import Bundle, Finding, ReviewedChange
from glue.errors import ToolError
from glue.messages import ToolMessage
from glue.testing import Reply, Script, call, calls
from glue.tools.git import Repo

FINISH = calls(call("finish_review", {"summary": SUMMARY}))
DONE = calls(call("finish_review", {"summary": "A small change. I read all of it."}))


def shop() -> Bundle:
    return from_texts({"shop.py": OLD}, {"shop.py": NEW}, ReviewedChange(title="Average"))


def reporting(**changes: Any) -> Reply:
    return calls(call("report_finding", FOUND | changes))


def results(script: Script) -> list[ToolMessage]:
    return [message for message in script.requests[-1].messages if isinstance(message, ToolMessage)]


async def test_wrong_quote_is_refused_and_can_be_corrected() -> None:
    script = Script(reporting(quote="raise Overflow(total)"), reporting(), FINISH)

    run = await review(shop(), providers=[script])

    first = results(script)[0]
    assert first.is_error
    assert "not in the diff" in first.text
    assert len(run.findings) == 1
    assert run.codes == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": "shpo.py", "quote": "nothing like it"}, "similar paths: shop.py"),
        ({"quote": "prices"}, "too short"),
        ({"title": " ", "body": " "}, "must not be empty"),
        ({"quote": "nothing like it"}, "not in the diff"),
    ],
)
async def test_refusal_of_a_report_states_the_reason(changes: dict[str, str], said: str) -> None:
    script = Script(reporting(**changes), reporting(), FINISH)

    await review(shop(), providers=[script])

    assert said in results(script)[0].text


async def test_suggestion_that_breaks_the_file_is_removed_with_a_note() -> None:
    script = Script(reporting(suggestion="    return sum(prices) / (count"), FINISH)

    run = await review(shop(), providers=[script])

    assert "The suggestion was left out" in results(script)[0].text
    assert run.findings[0].suggestion is None
    assert "no longer parses" in run.findings[0].note


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "HIGH"},
        {"severity": "major"},
        {"severity": 4},
        {"confidence": 0.9},
        {"category": "Logic Error"},
        {"reasoning": "an extra field"},
        {"suggestion": ["a", "list"]},
        {"suggestion": "Use a bound parameter instead."},
        {"line": "L3"},
        {"title": ""},
        {"path": "src/shop.py:3"},
        {"quote": "`return sum(prices) / count`"},
        {"body": "`render_page` and `OrderView` call `total` with `[]`."},
    ],
)
async def test_report_that_breaks_the_schema_is_read_as_it_was_meant(
    changes: dict[str, Any],
) -> None:
    run = await review(shop(), providers=[Script(reporting(**changes), FINISH)])

    (finding,) = run.findings
    assert (finding.path, finding.line, run.codes) == ("shop.py", 3, ())


async def test_several_findings_in_one_call_are_all_recorded() -> None:
    other = FOUND | {"quote": "count = len(prices)", "title": "Fails for an iterator", "body": "x."}
    both = calls(call("report_finding", {"findings": [FOUND, other]}))

    run = await review(shop(), providers=[Script(both, FINISH)])

    assert sorted(finding.line or 0 for finding in run.findings) == [2, 3]


async def test_finish_in_the_same_reply_as_the_reports_ends_the_review() -> None:
    report, finish = (call("report_finding", FOUND), call("finish_review", {"summary": SUMMARY}))

    for reply in (calls(report, finish), calls(finish, report)):
        script = Script(reply)
        run = await review(shop(), providers=[script])

        assert (len(script.requests), len(run.findings), run.finished) == (1, 1, True)


async def test_finish_beside_a_refused_report_lets_the_model_correct_it() -> None:
    wrong = call("report_finding", FOUND | {"quote": "raise Overflow(total)"})
    script = Script(calls(wrong, call("finish_review", {"summary": SUMMARY})), reporting(), FINISH)

    run = await review(shop(), providers=[script])

    assert (len(run.findings), run.codes) == (1, ())


async def test_report_with_a_line_but_no_usable_quote_is_sent_back_once_and_then_kept() -> None:
    vague = reporting(quote="", line=3)

    stubborn = await review(shop(), providers=[Script(vague, FINISH)])
    corrected = await review(shop(), providers=[Script(vague, reporting(), FINISH)])
    repeated = await review(shop(), providers=[Script(vague, vague, FINISH)])

    assert [(one.line, one.anchor) for one in stubborn.findings] == [(3, "line")]
    assert [(one.line, one.anchor) for one in corrected.findings] == [(3, "exact")]
    assert [(one.line, one.anchor) for one in repeated.findings] == [(3, "line")]


async def test_text_with_a_path_that_does_not_exist_is_sent_back_once(tmp_path: Path) -> None:
    build(tmp_path)
    bundle = collect(tmp_path, head="find-items")
    line = bundle.files[0].added[0]
    report = {
        **FOUND,
        "path": bundle.files[0].path,
        "quote": line.text,
        "line": line.new,
        "body": "The callers in `src/nowhere/pages.py` pass an empty list.",
    }
    script = Script(calls(call("report_finding", report)), DONE)

    with Repo(tmp_path) as repo:
        run = await review(bundle, providers=[script], repo=repo)

    assert "exists neither before nor after" in results(script)[0].text
    assert sum(not finding.rule for finding in run.findings) == 1


async def test_repeated_report_is_refused() -> None:
    script = Script(reporting(), reporting(), FINISH)

    run = await review(shop(), providers=[script])

    assert "already reported" in results(script)[1].text
    assert len(run.findings) == 1


def offered(bundle: Bundle, repo: Repo | None = None) -> dict[str, Any]:
    return {tool.spec.name: tool for tool in tools(ReviewDraft(bundle, Config(), source="x"), repo)}


def test_changed_files_can_be_read_without_a_repository() -> None:
    made = offered(shop())

    assert "     2      count = len(prices)" in made["read_file"].function("shop.py")
    assert "return sum(prices)\n" in made["read_file"].function("shop.py", side="base")
    assert (
        made["grep"].function("count")
        == "shop.py:2: count = len(prices)\nshop.py:3: return sum(prices) / count"
    )
    assert set(made) == {
        "read_file",
        "grep",
        "read_discussion",
        "report_finding",
        "finish_review",
    }


@pytest.mark.parametrize(
    "path", [".env", "config/.env", "id_rsa", "../shop.py", "/etc/passwd", "nope.py", ""]
)
def test_secret_and_missing_files_cannot_be_read(path: str) -> None:
    with pytest.raises(ToolError):
        offered(shop())["read_file"].function(path)


def test_history_tools_read_git_objects(tmp_path: Path) -> None:
    build(tmp_path)
    bundle = collect(tmp_path, head="find-items")
    with Repo(tmp_path) as repo:
        made = offered(bundle, repo)

        assert "Find items by name" in made["git_log"].function()
        assert "mutable" not in made["git_log"].function("README.md")
        assert "+    def find(" in made["git_show"].function(bundle.change.head_sha[:10])
        assert "README.md" in made["grep"].function("Larder")
        assert "# Larder" in made["read_file"].function("README.md")
        for wrong in ("--output=x", "HEAD:README.md", "nope"):
            with pytest.raises(ToolError):
                made["git_show"].function(wrong)
        with pytest.raises(ToolError):
            made["grep"].function("(")


def test_link_that_did_not_change_is_read_as_its_target(tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to("shop.py")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-q", "-m", "Link")
    with Repo(tmp_path) as repo:
        bundle = replace(shop(), change=ReviewedChange(head_sha=repo.resolve("HEAD")))

        text = offered(bundle, repo)["read_file"].function("link.py")

    assert text == "     1  symlink to shop.py\n[lines 1-1 of 1]"


LONG = "".join(f"row_{n} = {n}\n" for n in range(1, 900))


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ({}, 1, 200),
        ({"lines": 1_000}, 1, 400),
        ({"start": 5, "lines": 0}, 5, 5),
        ({"start": -3, "lines": 2}, 1, 2),
        ({"start": 899, "lines": 10}, 899, 900),
    ],
)
def test_file_is_read_in_pages(arguments: dict[str, int], first: int, last: int) -> None:
    made = offered(from_texts({}, {"long.py": LONG}))

    rows = made["read_file"].function("long.py", **arguments).split("\n")

    assert rows[-1] == f"[lines {first}-{last} of 900]"
    assert len(rows) == last - first + 2
    assert rows[0] == f"{first:>6}  row_{first} = {first}"


def test_commit_is_read_in_pages_without_a_gap(tmp_path: Path) -> None:
    rows = [f"row_{number} = {'x' * 90!r}" for number in range(800)]
    (tmp_path / "long.py").write_text("\n".join(rows) + "\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-q", "-m", "Add rows")
    shown, following = "", re.search(r"(\d)", "0")
    with Repo(tmp_path) as repo:
        show = offered(shop(), repo)["git_show"].function
        assert show("HEAD").startswith("commit ")
        assert show("HEAD") == show("HEAD", 1) == show("HEAD", 0)

        while following is not None:
            page = show("HEAD", int(following[1]))
            shown += page
            following = re.search(r"continue with offset (\d+)", page)

    assert [row for row in rows if f"+{row}\n" not in f"{shown}\n"] == []


def test_long_lines_are_cut_in_every_reading_tool() -> None:
    made = offered(from_texts({}, {"long.py": "x" * 1_200 + "\n"}))

    assert made["read_file"].function("long.py").split("\n")[0] == "     1  " + "x" * 1_000
    assert made["grep"].function("x") == "long.py:1: " + "x" * 300


@pytest.mark.parametrize(("number", "cut"), [(60, False), (61, True)])
def test_search_shows_at_most_60_matches(number: int, cut: bool) -> None:
    made = offered(from_texts({}, {"long.py": "Match()\n" * number}))

    for found in (
        made["grep"].function("Match"),
        made["grep"].function("mATCH", ignore_case=True),
    ):
        assert found.count("Match()") == 60
        assert found.endswith("\n[more matches were left out]") is cut
    assert made["grep"].function("mATCH") == "no matches"
    assert made["grep"].function("Match", side="base") == "no matches"


def test_search_leaves_out_files_that_may_contain_secrets() -> None:
    made = offered(from_texts({}, {".env": "KEY=value\n", "a.py": "KEY = 1\n"}))

    assert made["grep"].function("KEY") == "a.py:1: KEY = 1"


def drafted(**after: str) -> ReviewDraft:
    texts = {f"{name}.py": text for name, text in after.items()}
    return ReviewDraft(from_texts({}, texts), Config(), source="x")


def defect(**changes: Any) -> Finding:
    details = {"path": "a.py", "quote": "value = load(1)", "title": "Wrong value"}
    return Finding(**{**details, "body": "The value is never used again.", **changes})


def test_refused_report_counts_until_the_model_has_seen_the_reason() -> None:
    draft = drafted(a="value = load(1)\n")

    with pytest.raises(ToolError, match="not in the diff"):
        draft.report(defect(quote="something(else)", claimed=1))
    with pytest.raises(ToolError):
        draft.report(defect(path="b.py", quote="nothing(at, all)"))
    with pytest.raises(ToolError):
        draft.receive("no object")

    assert draft.sent_back == 3
    assert [finding.dropped for finding in draft.refused] == [
        "grounding.path",
        "channel.unreadable",
    ]
    draft.settle()
    assert [(finding.anchor, finding.line) for finding in draft.findings] == [("line", 1)]


def test_unknown_path_is_answered_with_similar_or_the_first_paths() -> None:
    near = drafted(**{f"shop{n}": "value = load(1)\n" for n in range(5)})
    far = drafted(**{f"{letter * 6}": "value = load(1)\n" for letter in "abcdefghijkl"})

    with pytest.raises(ToolError) as similar:
        near.report(defect(path="shopp.py", quote="nothing(at, all)"))
    with pytest.raises(ToolError) as others:
        far.report(defect(path="zz/qq", quote="nothing(at, all)"))

    assert str(similar.value).startswith("'shopp.py' is not in the diff; similar paths: shop")
    assert str(similar.value).count("shop") == 1 + 3
    start = "'zz/qq' is not in the diff; the first of its 12 paths: aaaaaa.py, "
    assert str(others.value).startswith(start)
    assert str(others.value).count(".py") == 10


def test_finding_in_another_file_is_placed_there() -> None:
    draft = drafted(a="value = load(1)\n", b="other = save(2)\n")

    answer = draft.report(defect(quote="other = save(2)"))

    assert answer == (
        "Recorded as finding 1 on b.py:1. The quote is in b.py, so the finding was placed there."
    )
    assert draft.sent_back == 0


@pytest.mark.parametrize(
    ("quote", "place"),
    [
        ("other = save(2)", "b.py:1. The quote is in b.py, so the finding was placed there."),
        (
            "value = load(0)",
            (
                "a.py. The quote is not on a line of the diff, so the finding gets no comment on a"
                " line."
            ),
        ),
    ],
)
def test_place_of_a_finding_is_named_before_its_suggestion(quote: str, place: str) -> None:
    old = {"a.py": "value = load(0)\n\n\n\n\n\n"}
    new = {"a.py": old["a.py"] + "value = load(1)\n", "b.py": "other = save(2)\n"}
    draft = ReviewDraft(from_texts(old, new), Config(), source="x")

    answer = draft.report(defect(quote=quote, suggestion="value = load("))

    assert answer.startswith(f"Recorded as finding 1 on {place} The suggestion was left out: ")


def test_summary_is_refused_twice_at_most_and_names_what_is_unknown() -> None:
    draft = drafted(a="value = load(1)\n")
    names = " ".join(f"`name_{n}_one`" for n in range(8))

    with pytest.raises(ToolError) as first:
        draft.finish(f"The change adds {names} to the value.")
    with pytest.raises(ToolError, match="the summary was refused: it is too short"):
        draft.finish("Fine.")
    assert not draft.finished

    assert draft.finish("Fine.") == "The review is finished."
    assert str(first.value) == (
        "the summary was refused: it names code that does not occur in this change: name_0_one,"
        " name_1_one, name_2_one, name_3_one, name_4_one, name_5_one; call finish_review again"
    )
    assert (draft.finished, draft.summaries) == (True, ["Fine."])


def test_refused_summary_is_given_up_only_once() -> None:
    draft = drafted(a="value = load(1)\n")
    assert not draft.give_up()
    with pytest.raises(ToolError):
        draft.finish("Fine.")

    assert draft.give_up()
    draft.finished = False  # the next chunk
    assert not draft.give_up()


def test_a_summary_refused_in_one_part_finishes_no_later_part() -> None:
    draft = drafted(a="value = load(1)\n")
    with pytest.raises(ToolError):
        draft.finish("Fine.")
    draft.finish("The value is loaded by `load` now.")

    draft.finished = False  # the next chunk, which the model does not finish

    assert not draft.give_up()


def test_names_that_only_a_reading_tool_has_shown_are_remembered() -> None:
    draft = drafted(a="value = load(1)\n")
    draft.read.append("def render_page(): ...")

    draft.finish("The change adds `load` for `render_page`, without a test.")

    assert draft.seen() == ("render_page",)


ROWS = "".join(f"value_{n} = load({n})\n" for n in range(1, 21))


def row(number: int, **changes: Any) -> Finding:
    return defect(quote=f"value_{number} = load({number})", **changes)


def test_refusals_and_duplicates_are_recorded_with_their_code() -> None:
    draft = drafted(a=ROWS)
    seen: list[Finding] = []
    draft.on_finding = seen.append

    answer = draft.report(row(1))
    with pytest.raises(ToolError, match="already reported"):
        draft.report(row(1))
    with pytest.raises(ToolError, match=r"the text was refused \(degenerate.run\)"):
        draft.report(row(2, body="It is " + "shared " * 40))

    assert answer == "Recorded as finding 1 on a.py:1."
    assert [finding.dropped for finding in draft.refused] == ["duplicate", "degenerate.run"]
    assert [finding.line for finding in seen] == [1]
    assert draft.sent_back == 1  # a duplicate needs no correction


def test_call_with_several_reports_fails_only_if_one_must_be_corrected() -> None:
    def arguments(*findings: Finding) -> str:
        names = ("path", "quote", "title", "body")
        return json.dumps([{name: getattr(one, name) for name in names} for one in findings])

    draft = drafted(a=ROWS)

    fine = draft.receive(arguments(row(1), row(1)))
    with pytest.raises(ToolError, match=r"^Recorded as finding 2 on a\.py:9.*\n.*not in the diff"):
        draft.receive(arguments(row(9, title="Other"), defect(quote="nothing(at, all)")))
    draft.sent_back = 0
    with pytest.raises(ToolError, match=r"^this finding was already reported"):
        draft.receive(arguments(row(1)))

    assert fine.startswith("Recorded as finding 1 on a.py:1.\nthis finding was already reported")


def test_finding_on_an_unchanged_line_is_listed() -> None:
    old = ROWS.replace("load(1)", "save(1)")
    draft = ReviewDraft(from_texts({"a.py": old}, {"a.py": ROWS}), Config(), source="x")

    answer = draft.report(row(20, path="./a.py"))

    assert answer == (
        "Recorded as finding 1 on a.py. The quote is not on a line of the diff, so the finding"
        " gets no comment on a line."
    )


@pytest.mark.parametrize(
    ("correction", "number"),
    [
        (row(3), 1),  # the same text
        (row(5, body="The value is never used again, so it is wrong."), 1),
        (row(8, body="The value is never used again, so it is wrong."), 2),  # too far away
        (row(4, body="The value is never used again, so it is wrong.", claimed=4), 2),
        (row(3, title="Slow call", body="Each call reads the whole file."), 2),
    ],
)
def test_finding_that_was_sent_back_is_recorded_unless_it_was_corrected(
    correction: Finding, number: int
) -> None:
    draft = drafted(a=ROWS)
    with pytest.raises(ToolError):
        draft.report(defect(quote="", claimed=3))
    draft.report(correction)

    draft.settle()
    draft.settle()

    assert len(draft.findings) == number
