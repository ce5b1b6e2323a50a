"""The core's dataclasses behave as the library's own do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any

import pytest

from glue.dataclass import dataclass
from glue.limits import Limits
from glue.messages import Text, Usage, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A class with every kind of field."""

    name: str
    size: int = 3
    parts: list[int] = field(default_factory=list)
    note: str = field(default="n", compare=False, repr=False)
    memo: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def double(self) -> int:
        return self.size * 2


Theirs: Any = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(
    type(
        "Ours",
        (),
        {name: getattr(Ours, name) for name in ("__doc__", "__annotations__", "__module__", "double")}
        | {
            "size": 3,
            "parts": field(default_factory=list),
            "note": field(default="n", compare=False, repr=False),
            "memo": field(default_factory=dict, init=False, repr=False, compare=False),
            "__qualname__": "Ours",
        },
    )
)


@pytest.mark.parametrize("cls", [Ours, Theirs])
def test_fields_defaults_equality_and_repr(cls: Any) -> None:
    one = cls(name="a")

    assert (one.size, one.parts, one.memo, one.double) == (3, [], {}, 6)
    assert one == cls(name="a", note="other")
    assert one != cls(name="b")
    assert one != ("a", 3, [])
    assert one.parts is not cls(name="a").parts
    assert repr(one) == "Ours(name='a', size=3, parts=[])"
    assert [item.name for item in dataclasses.fields(one)] == ["name", "size", "parts", "note", "memo"]
    assert dataclasses.replace(one, size=4).size == 4
    assert dataclasses.asdict(one)["name"] == "a"
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("cls", [Ours, Theirs])
def test_what_is_refused(cls: Any) -> None:
    one = cls(name="a")

    with pytest.raises(dataclasses.FrozenInstanceError):
        one.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.size
    for wrong in ({}, {"name": "a", "nope": 1}, {"name": "a", "memo": {}}):
        with pytest.raises(TypeError):
            cls(**wrong)
    with pytest.raises(TypeError):
        cls("a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_the_first_instance_settles_the_signature() -> None:
    Usage()

    assert "input: " not in str(inspect.signature(Usage))
    assert "input=0" in str(inspect.signature(Usage))


def test_hash_copy_and_pickle() -> None:
    usage = Usage(input=1)

    assert hash(usage) == hash(Usage(input=1))
    assert {usage: "x"}[Usage(input=1)] == "x"
    assert copy.copy(usage) == copy.deepcopy(usage) == pickle.loads(pickle.dumps(usage)) == usage
    message = UserMessage(content=(Text(text="x"),))
    assert copy.deepcopy(message) == message


def test_post_init_runs() -> None:
    with pytest.raises(ValueError, match="max_turns"):
        Limits(max_turns=-1)


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="frozen"):
        dataclass(frozen=False, slots=True, kw_only=True)
