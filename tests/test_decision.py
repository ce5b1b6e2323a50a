"""`glue.decision`: requests for permission, and the decisions on them."""

from __future__ import annotations

from typing import Any

import pytest

import glue
from glue.decision import Decision, PermissionRequest, PermissionTarget

EVER: Any = "ever"
NOTHING: Any = None


def test_a_decision_allows_denies_or_defers() -> None:
    assert glue.allow("session") == Decision(allowed=True, remember="session")
    assert glue.deny("no", "always") == Decision(allowed=False, reason="no", remember="always")
    assert glue.defer("ask Ada") == Decision(allowed=False, reason="ask Ada", deferred=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: glue.allow(EVER), "remember must be one of call, target, session, always"),
        (lambda: glue.deny("no", EVER), "remember must be one of call, target, session, always"),
        (lambda: glue.deny(NOTHING), "reason must be a text"),
        (lambda: glue.defer(NOTHING), "reason must be a text"),
    ],
)
def test_a_wrong_argument_is_named(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_request_survives_json() -> None:
    request = PermissionRequest(
        tool="shell",
        action="shell",
        target="ls -l",
        arguments={"command": ["ls", "-l"]},
        call_id="c1",
        touched=PermissionTarget(text="ls -l", command=("ls", "-l"), folder="/srv", mark="m1"),
    )

    assert glue.from_json(PermissionRequest, glue.to_json(request)) == request
