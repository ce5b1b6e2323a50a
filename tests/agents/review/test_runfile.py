"""Run files: a recorded review can be replayed offline and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import build
from fakes.review import FOUND, NEW, OLD, SUMMARY

from glue import run
from glue.agents.review import runfile
from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.findings.model import review
from glue.agents.review.records import (
    Bundle,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewedChange,
    ReviewRun,
)
from glue.errors import ConfigError, ReplayError
from glue.messages import ToolMessage, ToolSpec
from glue.testing import Reply, Script, call, calls
from glue.tools.git import Repo

FINISH = calls(call("finish_review", {"summary": SUMMARY}))


PLAIN = calls(
    call(
        "finish_review",
        {"summary": "A small change. I read all of it and found nothing to report."},
    )
)


def shop() -> Bundle:
    return from_texts({"shop.py": OLD}, {"shop.py": NEW}, ReviewedChange(title="Average"))


def reporting(**changes: Any) -> Reply:
    return calls(call("report_finding", FOUND | changes))


async def test_recorded_review_is_replayed_without_provider_and_repository(
    tmp_path: Path,
) -> None:
    build(tmp_path / "repo")
    bundle = collect(tmp_path / "repo", head="find-items")
    noted = runfile.RunFile("seed", bundle)
    look = calls(call("read_file", {"path": "README.md"}, id="look"))
    with Repo(tmp_path / "repo") as repo:
        first = await review(bundle, providers=[Script(look, PLAIN)], repo=repo, record=noted)
    noted.save(tmp_path / "run.jsonl")

    old = runfile.load(tmp_path / "run.jsonl")
    second = await review(old.bundle, providers=old.replays(), record=old, replay=True)

    assert old.result == first
    assert replace(second, seconds=0, tries=()) == replace(first, seconds=0, tries=())
    assert runfile.differences(first, second) == []


async def test_replay_with_another_request_is_refused(tmp_path: Path) -> None:
    noted = runfile.RunFile("seed", shop())
    await review(shop(), providers=[Script(FINISH)], record=noted)
    other = replace(shop(), change=ReviewedChange(title="Another title"))

    with pytest.raises(ReplayError, match="differs from request 1 of the cassette"):
        await review(other, providers=noted.replays(), record=noted, replay=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "x.jsonl has version 2; this program reads version 1"),
        (
            {"type": "other"},
            "x.jsonl is not a run file of a review; `glue review --record` writes a run file",
        ),
    ],
)
def test_file_of_another_type_or_version_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "x.jsonl"
    runfile.RunFile("seed", shop()).save(path)
    head, *others = path.read_text().splitlines()
    assert runfile.load(path).seed == "seed"

    path.write_text("\n".join([json.dumps(json.loads(head) | change), *others]))

    with pytest.raises(ConfigError, match=problem):
        runfile.load(path)


def test_file_that_is_not_a_run_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")

    with pytest.raises(ConfigError, match="not a run file"):
        runfile.load(path)


async def test_differences_list_removed_and_changed_findings() -> None:
    one = await review(shop(), providers=[Script(reporting(), FINISH)])
    other = await review(shop(), providers=[Script(reporting(severity="low"), FINISH)])

    assert runfile.differences(one, replace(one, findings=())) == [
        "- high shop.py:3 Division by zero for an empty list"
    ]
    assert runfile.differences(one, other)[0].startswith("~ high shop.py:3")


def test_every_part_of_a_run_file_is_read_back(tmp_path: Path) -> None:
    rule = Finding(path="a.py", quote="x", title="Wrong", body="It is.", rule="x")
    full = runfile.RunFile(
        "seed",
        shop(),
        config={"language": "de"},
        answers={"0/a": ("text", True)},
        rule_findings=(rule,),
        around="Other calls",
        named={"0/1": ["code"]},
        tools=(ToolSpec(name="grep", description="Search.", parameters={"type": "object"}),),
        second_look="always",
        result=ReviewRun(summary="Done."),
    )

    full.save(tmp_path / "full.jsonl")
    runfile.RunFile("seed", shop()).save(tmp_path / "empty.jsonl")

    assert runfile.load(tmp_path / "full.jsonl") == full
    assert runfile.load(tmp_path / "empty.jsonl") == runfile.RunFile("seed", shop())
    rows = [json.loads(row)["type"] for row in (tmp_path / "empty.jsonl").read_text().splitlines()]
    assert rows == ["glue-review-run", "bundle"]


def test_differences_name_changed_fields_and_coverage() -> None:
    half = Coverage(hunks=(HunkCoverage(path="a.py", hunk=1, state="partial"),))

    lines = runfile.differences(ReviewRun(summary="A."), ReviewRun(summary="B.", coverage=half))

    assert lines == ["~ summary: 'A.' -> 'B.'", "~ coverage: 100 % -> 0 %"]


async def test_call_without_a_recorded_result_is_an_error_for_the_model() -> None:
    read: list[str] = []
    grep = ToolSpec(name="grep", description="Search.", parameters={"type": "object"})
    noted = runfile.RunFile("seed", shop(), tools=(grep,), answers={"0/a": ("found", False)})
    script = Script(calls(call("grep", {}, id="a"), call("grep", {}, id="b")), "Done.")

    result = await run(script, "Look.", tools=runfile.replay_tools([], 0, noted, read))

    known, unknown = (each for each in result.messages if isinstance(each, ToolMessage))
    assert (known.text, known.is_error) == ("found", False)
    assert unknown.is_error
    assert read == ["found", "the run file has no result of this call"]
