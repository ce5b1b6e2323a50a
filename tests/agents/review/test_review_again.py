"""A pull request that is reviewed again and again: short, nothing twice, what is fixed is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes.forge import FakeForge
from fakes.forge.server import Kind

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery import commands
from glue.agents.review.delivery.forges import Comment
from glue.agents.review.delivery.publish import Published, publish
from glue.agents.review.findings.dedupe import dismissals
from glue.agents.review.findings.model import review as run_review
from glue.agents.review.records import Bundle, ChangeCommit, Finding, ReviewedChange, ReviewRun
from glue.testing import Script, call, calls

OLD = "def total(rows):\n    return sum(rows)\n\n\ndef first(rows):\n    return rows[0] if rows else None\n"
V1 = "def total(rows):\n    return sum(rows) / len(rows)\n\n\ndef first(rows):\n    return rows[0]\n"
V2 = V1.replace(
    "    return rows[0]\n", "    return rows[0] if rows else None\n\n\ndef last(rows):\n    return rows[-1]\n"
)
V3 = V2.replace("/ len(rows)", "/ max(len(rows), 1)")
DIVIDE: dict[str, Any] = {
    "path": "shop.py",
    "quote": "    return sum(rows) / len(rows)",
    "title": "Division by zero for an empty list",
    "body": "With no rows `len(rows)` is 0 and `total` raises ZeroDivisionError.",
    "severity": "high",
    "confidence": "high",
    "category": "bug",
}
FIRST = DIVIDE | {
    "quote": "    return rows[0]",
    "title": "No row for an empty list",
    "body": "`first` raises IndexError where the list is empty; the old code gave None.",
    "severity": "medium",
}
REWORDED = DIVIDE | {
    "quote": "return sum(rows) / len(rows)",
    "title": "`total` raises for empty rows",
    "body": "An empty list makes `len(rows)` zero, so the division raises ZeroDivisionError.",
    "category": "performance",
}
LAST = DIVIDE | {
    "quote": "    return rows[-1]",
    "title": "The last row of none",
    "body": "`last` raises IndexError for an empty list.",
    "severity": "medium",
}
DONE = calls(call("finish_review", {"summary": "The change computes a mean. I read all of it."}))


@pytest.fixture(params=["github", "gitlab", "gitea"])
def forge(request: pytest.FixtureRequest) -> Iterator[FakeForge]:
    kind: Kind = request.param
    with FakeForge(kind) as server:
        yield server


def bundle(text: str, head: str) -> Bundle:
    change = ReviewedChange(mode="pull_request", repo="octo/demo", number=1, head_sha=head * 40, base_sha="b" * 40)
    return from_texts({"shop.py": OLD}, {"shop.py": text}, change)


async def push(forge: FakeForge, text: str, head: str, *said: dict[str, Any], **options: Any) -> Published:
    """Push a version, let a model say these findings of it, and publish."""
    whole = bundle(text, head)
    if 1 in forge.pulls:
        forge.pulls[1].diff, forge.pulls[1].head = whole.diff, head * 40
    else:
        forge.pull(whole.diff, head=head * 40, base="b" * 40)
    run = await run_review(whole, providers=[Script(*(calls(call("report_finding", one)) for one in said), DONE)])
    return publish(whole, run, forge.environ, sleep=lambda seconds: None, **options)


def sticky(forge: FakeForge) -> str:
    (row,) = forge.pulls[1].comments
    return str(row["body"])


async def test_three_reviews_post_once_keep_what_is_open_and_say_what_is_fixed(forge: FakeForge) -> None:
    first = await push(forge, V1, "1", DIVIDE, FIRST)
    assert first.delivery is not None
    assert (first.delivery.posted, first.delivery.resolved) == (2, 0)
    ids = {row["body"].split("fp=")[1][:16]: row["id"] for row in forge.pulls[1].inline}

    second = await push(forge, V2, "2", REWORDED, LAST)
    assert second.delivery is not None
    assert (second.delivery.posted, second.delivery.skipped) == (1, 1)
    assert len(forge.pulls[1].inline) == 3
    assert "still open" in sticky(forge)
    assert "### Fixed" in sticky(forge)
    assert "No row for an empty list" in sticky(forge).split("### Fixed")[1]

    third = await push(forge, V3, "3", LAST)
    assert third.delivery is not None
    assert third.delivery.posted == 0
    assert len(forge.pulls[1].inline) == 3
    fixed = sticky(forge).split("### Fixed")[1].split("<details>")[0]
    assert "Division by zero" in fixed
    assert "The last row of none" not in fixed
    if forge.kind == "gitea":  # has no way to resolve
        assert forge.resolved == set()
    else:
        assert len(forge.resolved) == 2
        assert forge.resolved < set(ids.values()) | {row["id"] for row in forge.pulls[1].inline}
    calls_before = len(forge.calls)
    again = await push(forge, V3, "3", LAST)
    assert again.delivery is not None
    assert (again.delivery.posted, again.delivery.resolved, again.delivery.sticky) == (0, 0, "same")
    assert all(one.method == "GET" or one.path == "/graphql" for one in forge.calls[calls_before:])


async def test_five_wordings_of_one_problem_are_one_comment(forge: FakeForge) -> None:
    wordings = [
        DIVIDE,
        REWORDED,
        DIVIDE | {"title": "ZeroDivisionError in `total`", "body": "`total` divides by `len(rows)`, zero when empty."},
        DIVIDE
        | {"title": "Empty input crashes", "body": "Dividing by the length of an empty `rows` list raises an error."},
        REWORDED
        | {"title": "Unguarded division", "body": "`sum(rows) / len(rows)` raises ZeroDivisionError on no rows."},
    ]
    for number, words in enumerate(wordings):
        await push(forge, V1, str(number), words)

    assert len(forge.pulls[1].inline) == 1


async def test_another_problem_on_a_line_that_has_a_comment_is_posted(forge: FakeForge) -> None:
    other = DIVIDE | {
        "title": "Float result breaks callers",
        "body": "Prices were whole numbers; true division now yields floats everywhere they get stored.",
        "category": "types",
    }
    await push(forge, V1, "1", DIVIDE)

    await push(forge, V1, "2", DIVIDE, other)

    assert len(forge.pulls[1].inline) == 2


async def test_the_same_words_in_another_place_are_another_finding(forge: FakeForge) -> None:
    text = "".join(f"def f{n}(rows):\n    return rows[0]\n\n\n" for n in range(8))
    whole = replace(bundle(OLD + text, "1"))
    forge.pull(whole.diff, head="1" * 40, base="b" * 40)
    said = tuple(
        Finding(path="shop.py", quote=f"def f{n}(rows):\n    return rows[0]", title="Fails for an empty list",
                body="`rows[0]` raises IndexError.", severity="medium", source="x") for n in range(8)
    )  # fmt: skip
    run = ReviewRun(findings=said, provider="x", finished=True, summary="Eight functions were added, all alike.")

    done = publish(whole, run, forge.environ, sleep=lambda s: None, config=Config(max_findings=25))

    assert done.delivery is not None
    assert done.delivery.posted == len(forge.pulls[1].inline) == 8


async def test_a_second_place_of_the_same_code_is_posted_beside_the_first(forge: FakeForge) -> None:
    one = OLD + "\n\ndef f(rows):\n    send(rows[0].name)\n"
    said = DIVIDE | {"quote": "    send(rows[0].name)", "title": "Fails for an empty list", "body": "`rows[0]` raises."}
    await push(forge, one, "1", said | {"line": 10})

    await push(forge, one + "    send(rows[0].name)\n", "2", said | {"line": 10}, said | {"line": 11})

    assert len(forge.pulls[1].inline) == 2


async def test_what_a_model_said_is_not_called_fixed_by_a_run_without_one(forge: FakeForge) -> None:
    await push(forge, V1, "1", DIVIDE)
    whole = bundle(V1, "2")
    forge.pulls[1].head = "2" * 40

    done = publish(whole, await run_review(whole), forge.environ, sleep=lambda s: None)

    assert done.delivery is not None
    assert done.delivery.resolved == 0
    assert done.report.fixed == ()


# Settings --------------------------------------------------------------------------------------------


def many(count: int, **changes: Any) -> ReviewRun:
    return ReviewRun(
        findings=tuple(
            Finding(path="shop.py", quote=f"value_{n} = compute({n})", title=f"Value {n} is wrong",
                    body=f"`value_{n}` is never used.", source="x", **changes) for n in range(count)
        ),
        provider="x", finished=True, summary="Twelve values were added to the file.",
    )  # fmt: skip


VALUES = "".join(f"value_{n} = compute({n})\n" for n in range(12))


@pytest.mark.parametrize(
    ("config", "inline", "folded"),
    [
        (Config(), 6, 6),
        (Config(max_findings=2), 2, 10),
        (Config(max_findings=25), 12, 0),
        (Config(min_severity="high"), 0, 12),
        (Config(min_confidence="high"), 0, 12),
        (Config(min_severity="medium", min_confidence="medium", max_findings=25), 12, 0),
    ],
)
def test_each_setting_of_how_much_is_said_acts(forge: FakeForge, config: Config, inline: int, folded: int) -> None:
    whole = bundle(OLD + VALUES, "1")
    forge.pull(whole.diff, head="1" * 40, base="b" * 40)

    done = publish(whole, many(12), forge.environ, sleep=lambda s: None, config=config)

    assert len(forge.pulls[1].inline) == inline
    assert sum(item.folded for item in done.report.items) == folded
    assert sticky(forge).count("is wrong") >= 12
    assert ("<details><summary>" + str(folded) in sticky(forge)) == bool(folded)


def test_the_gate_counts_what_is_folded_too() -> None:
    whole = bundle(OLD + VALUES, "1")

    done = publish(whole, many(12, severity="high"), {}, post=False, config=Config(max_findings=0))

    assert done.verdict.exit_code == 1
    assert json.dumps(done.verdict.word) == '"findings"'


async def test_what_was_dismissed_stays_so_in_other_words() -> None:
    with FakeForge("github") as forge:
        await push(forge, V1, "1", DIVIDE)
        user = forge.user(forge.login("wendy", permission="write"))
        row = {"id": 7000, "user": {"id": user.id, "login": "wendy"}, "in_reply_to_id": forge.pulls[1].inline[0]["id"]}
        forge.pulls[1].inline.append({**row, "body": "/ignore rows are never empty", "path": "shop.py", "line": 2})

        done = await push(forge, V1, "2", REWORDED)

        assert done.report.items == ()
        assert [mark.by for _, mark in done.report.dismissed] == ["wendy"]
        assert done.report.fixed == ()
        assert forge.resolved == set()


def test_a_dismissal_is_read_alike_wherever_it_is_written() -> None:
    commit = ChangeCommit(sha="c" * 40, message="Cache it\n\nReview-Dismiss: 0123ABCD: wanted", author="ann")
    bundle = Bundle(change=ReviewedChange(commits=(commit,)), guidelines={".glue/dismissed": "0123ABCD: wanted\n"})
    remark = Comment(body="/ignore 0123ABCD: wanted", by="ann")

    written = (*dismissals(bundle), *commands.dismissals([remark], [], lambda user: "write"))

    assert [(one.id, one.reason) for one in written] == [("0123abcd", "wanted")] * 3
