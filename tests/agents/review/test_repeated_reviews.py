"""Repeated reviews of a pull request: no comment twice, and fixed findings are listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes.forge import FakeForge
from fakes.forge.server import Kind

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery.publish import Published, publish
from glue.agents.review.findings.model import review as run_review
from glue.agents.review.records import Bundle, Finding, ReviewedChange, ReviewRun
from glue.testing import Script, call, calls

OLD = (
    "def total(rows):\n"
    "    return sum(rows)\n"
    "\n"
    "\n"
    "def first(rows):\n"
    "    return rows[0] if rows else None\n"
)
V1 = (
    "def total(rows):\n    return sum(rows) / len(rows)\n\n\ndef first(rows):\n    return rows[0]\n"
)
V2 = V1.replace(
    "    return rows[0]\n",
    "    return rows[0] if rows else None\n\n\ndef last(rows):\n    return rows[-1]\n",
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
    "body": "`first` raises IndexError if the list is empty; the old code returned None.",
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
    change = ReviewedChange(
        mode="pull_request", repo="octo/demo", number=1, head_sha=head * 40, base_sha="b" * 40
    )
    return from_texts({"shop.py": OLD}, {"shop.py": text}, change)


async def push(
    forge: FakeForge, text: str, head: str, *said: dict[str, Any], **options: Any
) -> Published:
    """Push a version, review it with a model that reports these findings, and publish."""
    whole = bundle(text, head)
    if 1 in forge.pulls:
        forge.pulls[1].diff, forge.pulls[1].head = whole.diff, head * 40
    else:
        forge.pull(whole.diff, head=head * 40, base="b" * 40)
    run = await run_review(
        whole, providers=[Script(*(calls(call("report_finding", one)) for one in said), DONE)]
    )
    return publish(whole, run, forge.environ, sleep=lambda seconds: None, **options)


def sticky(forge: FakeForge) -> str:
    (row,) = forge.pulls[1].comments
    return str(row["body"])


async def test_three_reviews_post_each_finding_once_and_list_fixed_findings(
    forge: FakeForge,
) -> None:
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
    if forge.kind == "gitea":  # its API cannot resolve discussions
        assert forge.resolved == set()
    else:
        assert len(forge.resolved) == 2
        assert forge.resolved < set(ids.values()) | {row["id"] for row in forge.pulls[1].inline}
    calls_before = len(forge.calls)
    again = await push(forge, V3, "3", LAST)
    assert again.delivery is not None
    assert (again.delivery.posted, again.delivery.resolved, again.delivery.sticky) == (0, 0, "same")
    assert all(one.method == "GET" or one.path == "/graphql" for one in forge.calls[calls_before:])


async def test_rewordings_of_one_problem_share_one_comment(forge: FakeForge) -> None:
    wordings = [
        DIVIDE,
        REWORDED,
        DIVIDE
        | {
            "title": "ZeroDivisionError in `total`",
            "body": "`total` divides by `len(rows)`, zero when empty.",
        },
        DIVIDE
        | {
            "title": "Empty input crashes",
            "body": "Dividing by the length of an empty `rows` list raises an error.",
        },
        REWORDED
        | {
            "title": "Unguarded division",
            "body": "`sum(rows) / len(rows)` raises ZeroDivisionError on no rows.",
        },
    ]
    for number, words in enumerate(wordings):
        await push(forge, V1, str(number), words)

    assert len(forge.pulls[1].inline) == 1


async def test_second_problem_on_a_commented_line_is_posted(forge: FakeForge) -> None:
    other = DIVIDE | {
        "title": "Float result breaks callers",
        "body": (
            "Prices were whole numbers; true division now yields floats everywhere they get stored."
        ),
        "category": "types",
    }
    await push(forge, V1, "1", DIVIDE)

    await push(forge, V1, "2", DIVIDE, other)

    assert len(forge.pulls[1].inline) == 2


async def test_equal_texts_at_different_places_are_different_findings(forge: FakeForge) -> None:
    text = "".join(f"def f{n}(rows):\n    return rows[0]\n\n\n" for n in range(8))
    whole = replace(bundle(OLD + text, "1"))
    forge.pull(whole.diff, head="1" * 40, base="b" * 40)
    findings = tuple(
        Finding(
            path="shop.py",
            quote=f"def f{n}(rows):\n    return rows[0]",
            title="Fails for an empty list",
            body="`rows[0]` raises IndexError.",
            severity="medium",
            source="x",
        )
        for n in range(8)
    )
    run = ReviewRun(
        findings=findings,
        provider="x",
        finished=True,
        summary="Eight functions were added, all alike.",
    )

    done = publish(whole, run, forge.environ, sleep=lambda s: None, config=Config(max_findings=25))

    assert done.delivery is not None
    assert done.delivery.posted == len(forge.pulls[1].inline) == 8


async def test_second_occurrence_of_the_same_code_gets_its_own_comment(forge: FakeForge) -> None:
    one = OLD + "\n\ndef f(rows):\n    print(rows[0].name)\n"
    said = DIVIDE | {
        "quote": "    print(rows[0].name)",
        "title": "Fails for an empty list",
        "body": "`rows[0]` raises.",
    }
    await push(forge, one, "1", said | {"line": 10})

    await push(
        forge, one + "    print(rows[0].name)\n", "2", said | {"line": 10}, said | {"line": 11}
    )

    assert len(forge.pulls[1].inline) == 2


async def test_review_without_a_model_does_not_mark_findings_of_a_model_as_fixed(
    forge: FakeForge,
) -> None:
    await push(forge, V1, "1", DIVIDE)
    whole = bundle(V1, "2")
    forge.pulls[1].head = "2" * 40

    done = publish(whole, await run_review(whole), forge.environ, sleep=lambda s: None)

    assert done.delivery is not None
    assert done.delivery.resolved == 0
    assert done.report.fixed == ()


async def test_reworded_finding_stays_dismissed() -> None:
    with FakeForge("github") as forge:
        await push(forge, V1, "1", DIVIDE)
        user = forge.user(forge.login("wendy", permission="write"))
        row = {
            "id": 7000,
            "user": {"id": user.id, "login": "wendy"},
            "in_reply_to_id": forge.pulls[1].inline[0]["id"],
        }
        forge.pulls[1].inline.append(
            {**row, "body": "/ignore rows are never empty", "path": "shop.py", "line": 2}
        )

        done = await push(forge, V1, "2", REWORDED)

        assert done.report.items == ()
        assert [mark.by for _, mark in done.report.dismissed] == ["wendy"]
        assert done.report.fixed == ()
        assert forge.resolved == set()
