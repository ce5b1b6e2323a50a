"""One record holds the settings of a run; a narrower place goes before a wider one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from glue import Limits, Request
from glue.options import CallOptions, LoopOptions, Options, Overrides, call_options, with_role
from glue.project import Role


@pytest.mark.parametrize("keywords", [Overrides, CallOptions, LoopOptions])
def test_every_keyword_is_a_field(keywords: Any) -> None:
    assert set(keywords.__annotations__) <= {field.name for field in fields(Options)}


def test_the_narrower_place_wins_and_none_leaves_it_to_the_wider() -> None:
    call = Options(model="a", limits=None)
    session = Options(model="b", limits=Limits(max_turns=1), temperature=0.0)
    agent = Options(model="c", max_tokens=9, temperature=1.0)

    joined = call.over(session).over(agent)

    assert joined == Options(model="a", limits=Limits(max_turns=1), temperature=0.0, max_tokens=9)
    assert joined.given().keys() == {"model", "limits", "temperature", "max_tokens"}


def test_what_is_said_outright_goes_before_a_role_in_the_same_place() -> None:
    role = Role(name="r", instructions="of the role", model="m")

    assert with_role(Options(role="r"), lambda _: role).given() == {
        "role": "r",
        "instructions": "of the role",
        "model": "m",
    }
    assert with_role(Options(role="r", instructions="mine"), lambda _: role).instructions == "mine"
    assert with_role(Options(), lambda _: role) == Options()


def test_settings_are_frozen_and_checked() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().model = "x"  # type: ignore[misc]
    with pytest.raises(TypeError, match="there is no option 'colour'; there are: cache, cancel"):
        call_options({"colour": "red"})
    with pytest.raises(ValueError, match="max_tokens must be a whole number"):
        Options(max_tokens=0)
    with pytest.raises(ValueError, match="max_tokens must be a whole number"):
        Options(request=Request(max_tokens=True))
