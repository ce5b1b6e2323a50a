"""The tools of the reviewing model: reports are checked at once, and reading is restricted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.larder import build
from fakes.review import FOUND, NEW, OLD, SUMMARY

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.findings.model import review
from glue.agents.review.findings.tools import ReviewDraft, tools
from glue.agents.review.records import Bundle, ReviewedChange
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
