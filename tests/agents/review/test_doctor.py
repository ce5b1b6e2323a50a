"""`glue review doctor`: security checks of CI workflows."""

from __future__ import annotations

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
