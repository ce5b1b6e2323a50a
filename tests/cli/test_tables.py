"""Lists as tables that fit the terminal, and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from glue.cli.screen import Screen
from glue.cli.tables import print_json, table
from glue.providers.listing import list_providers
from glue.text import columns as width

Cli = Callable[..., Any]


LISTINGS = """
providers, models, runs, config, keys list, sessions list, prompts list, tools list
keys, sessions, prompts, tools, sessions --store elsewhere
"""


class Narrow(Screen):
    def __init__(self, columns: int) -> None:
        self.is_terminal, self._columns = True, columns

    @property
    def width(self) -> int:
        return self._columns


@pytest.mark.parametrize("command", LISTINGS.strip().replace("\n", ", ").split(", "))
def test_every_list_can_be_printed_as_json(cli: Cli, command: str) -> None:
    ran = cli(*command.split(), "--json")

    assert ran.code == 0, ran.err
    assert isinstance(json.loads(ran.out), (list, dict))


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_fits_the_terminal(columns: int) -> None:
    rows = [tuple(row.values()) for row in list_providers({})]
    lines = table(
        [*rows, ("日本語" * 10, "a", "b", True, "c", 1)],
        ("name", "wire", "key", "", "model", ">n"),
        Narrow(columns),
    )

    assert max(map(width, lines)) <= columns
    assert len(lines) == len(rows) + 2


def test_an_optional_column_is_dropped_if_the_table_is_too_wide() -> None:
    rows = [("a-name-that-matters", "x" * 30, 1_000_000)]

    assert table(rows, ("name", "detail?", ">n"), Narrow(40)) == [
        "name                         n",
        "a-name-that-matters  1,000,000",
    ]
    assert "x" * 30 in table(rows, ("name", "detail?", ">n"), Narrow(80))[1]


def test_a_long_text_is_cut_before_a_column_is_dropped() -> None:
    rows = [("2026-01-01 10:00", "long " * 40, "m" * 30)]

    assert table(rows, ("when?", "prompt…", "model?"), Narrow(60)) == [
        "when              prompt",
        "2026-01-01 10:00  " + "long " * 8 + "l…",
    ]


def test_a_column_of_a_very_narrow_terminal_keeps_six_characters() -> None:
    rows = [("abcdefghij", "klmnopqrst", 1234)]

    assert table(rows, ("first", "second", ">n"), Narrow(5)) == [
        "first   second      n",
        "abcde…  klmno…  1,234",
    ]


def test_cells_are_numbers_with_separators_and_one_line_of_text() -> None:
    rows = [(1_000_000, 0.25, 1234.00001, None, "", "a\nb", True)]

    lines = table(rows, ("a", "b", "c", "d", "e", "f", "g"), Screen(io.StringIO(), {}))

    assert lines[1].split("  ") == ["1,000,000", "0.25", "1,234", "-", "-", "a b", "True"]


def test_json_is_indented_by_two_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1]})

    assert capsys.readouterr().out == '{\n  "a": [\n    1\n  ]\n}\n'


def test_a_text_is_not_cut_below_24_characters_before_a_column_is_dropped() -> None:
    rows = [("t" * 40, "m" * 10)]

    kept = table(rows, ("text…", "more?"), Narrow(36))
    dropped = table(rows, ("text…", "more?"), Narrow(35))

    assert kept[1] == "t" * 23 + "…  " + "m" * 10
    assert dropped[1] == "t" * 34 + "…"
