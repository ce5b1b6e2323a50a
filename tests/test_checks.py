"""Checks of arguments: values in messages, and the checks that several public functions share."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.checks import check_flag, check_list, check_number, check_path, check_text, show


class Plain:
    """A class without a repr of its own."""

    def method(self) -> None:
        """Return at once."""


async def work() -> None:
    """Return at once."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "'a'"),
        (None, "None"),
        (["a", 1], "['a', 1]"),
        (Plain, "the class Plain"),
        (Plain(), "a Plain"),
        (Plain().method, "the method method"),
        (json.dumps, "the function dumps"),
        (len, "the function len"),
        (lambda: None, "a lambda"),
        (json, "the module json"),
        ("line\nline", r"'line\nline'"),
    ],
)
def test_values_are_shown_without_addresses(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_long_value_is_cut() -> None:
    assert len(show("x" * 1000)) == 80


def test_a_coroutine_is_named_and_closed() -> None:
    coroutine = work()

    assert show(coroutine) == "the coroutine of work(), which was not awaited"
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        coroutine.send(None)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_flag, (True, False), (1, "yes", None)),
        (check_text, ("", "a"), (b"a", 1, None)),
        (check_list, ([], (), {1}, iter([])), ("a", {"a": 1}, list, 3)),
        (lambda name, value: check_path(name, value, "."), ("a", Path("a")), (3, None, b"a")),
        (lambda name, value: check_number(name, value, whole=True), (0, 5), (1.5, "1", True)),
        (check_number, (0, 1.5), ("1", None, True)),
    ],
)
def test_a_value_of_the_wrong_type_raises_a_type_error_that_names_the_argument(
    check: Any, right: tuple[Any, ...], wrong: tuple[Any, ...]
) -> None:
    for value in right:
        check("size", value)

    for value in wrong:
        with pytest.raises(TypeError, match=r"^size must be .*, not "):
            check("size", value)


@pytest.mark.parametrize("value", [-1, float("nan")])
def test_a_number_that_is_too_small_raises_a_value_error(value: float) -> None:
    with pytest.raises(ValueError, match="size must be a number of 0 or more, not"):
        check_number("size", value)


@pytest.mark.parametrize("kind", [glue.Limits, glue.Image, glue.File, glue.ToolHook])
def test_the_signature_of_a_record_shows_its_fields(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters

    assert list(parameters) == list(kind.__dataclass_fields__)
