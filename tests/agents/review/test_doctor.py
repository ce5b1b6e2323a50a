"""`glue review doctor`: security checks of CI workflows."""

from __future__ import annotations

import pytest

from glue.agents.review.doctor import workflow

UNSAFE = """on: pull_request_target
jobs:
  x:
    steps:
      - uses: actions/checkout@v4
        with:
          ref: ${{ github.event.pull_request.head.sha }}
      - uses: ./action
      - run: echo "${{ github.event.pull_request.title }}"
"""


SAFE = f"""on: pull_request
permissions:
  contents: read
jobs:
  x:
    steps:
      - uses: actions/checkout@{"1" * 40}
      - run: echo "$TITLE"
        env:
          TITLE: ${{{{ github.event.pull_request.title }}}}
"""


def test_doctor_reports_unsafe_workflows_and_accepts_safe_ones() -> None:
    found = workflow(UNSAFE)

    assert [(one.line, one.level) for one in found if one.level == "error"] == [
        (7, "error"),
        (8, "error"),
        (9, "error"),
    ]
    assert any("permissions" in one.text for one in found)
    assert any("is not pinned" in one.text for one in found)
    assert workflow(SAFE) == []


def faults(text: str) -> list[tuple[int, str, str]]:
    """Return the line, the level and the first words of each problem of a workflow."""
    return [(one.line, one.level, " ".join(one.text.split()[:2])) for one in workflow(text)]


BLOCK = """on: pull_request
permissions: {}
jobs:
  x:
    steps:
      - run: |
          set -e

          echo "${{ github.head_ref }}"
        env:
          A: ${{ github.head_ref }}
          B: ${{ github.head_ref }}
"""


def test_every_line_of_a_script_is_checked_and_its_variables_are_not() -> None:
    assert faults(BLOCK) == [(9, "error", "text of")]


@pytest.mark.parametrize(
    ("trigger", "level"), [("pull_request", "warning"), ("pull_request_target", "error")]
)
def test_local_action_is_dangerous_only_after_the_head_was_checked_out(
    trigger: str, level: str
) -> None:
    text = (
        f"on: {trigger}\n"
        "permissions: {}\n"
        "jobs:\n"
        "  x:\n"
        "    steps:\n"
        "      - uses: ./before\n"
        "      - run: gh pr checkout 1\n"
        "      - uses: ./after\n"
    )

    assert [fault for fault in faults(text) if fault[2] == "`uses: ./after`"] == [
        (8, level, "`uses: ./after`")
    ]
    assert not [fault for fault in faults(text) if fault[2] == "`uses: ./before`"]
    assert faults(text.replace("gh pr checkout 1", "make")) == []


def test_rights_of_the_token_are_checked() -> None:
    job = "jobs:\n  x:\n    steps:\n      - run: make\n"
    stored = "      - with:\n          persist-credentials: true\n"

    assert faults(f"on: push\n{job}") == [(1, "warning", "no `permissions:`")]
    assert faults(f"on: push\npermissions: write-all\n{job}") == [
        (2, "error", "`permissions: write-all`")
    ]
    assert faults(f"on: workflow_run\npermissions: {{}}\n{job}{stored}") == [
        (1, "warning", "`persist-credentials: true`")
    ]
    assert faults(f"on: push\npermissions: {{}}\n{job}{stored}") == []


def test_image_must_be_named_by_its_digest() -> None:
    text = "on: push\npermissions: {}\njobs:\n  x:\n    steps:\n      - uses: docker://alpine"

    assert faults(f"{text}:3\n") == [(6, "warning", "docker://alpine:3 is")]
    assert faults(f"{text}@sha256:{'1' * 64}\n") == []
