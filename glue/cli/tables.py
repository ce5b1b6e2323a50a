"""Lists on stdout: a table that fits the terminal, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from glue.cli.screen import Screen
from glue.text import columns, cut, one_line

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_MIN_WIDTH = 6  # columns that a cell keeps when a table is narrowed
_TEXT_WIDTH = 24  # columns that a "…" column keeps before "?" columns are dropped


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def print_rows(
    rows: Sequence[Any],
    heads: Sequence[str],
    cells: Callable[[Any], Sequence[object]],
    as_json: bool,
    empty: str = "",
) -> None:
    """Print rows as JSON, or as a table with the cells that `cells(row)` returns.

    If there are no rows and a table is wanted, print the text `empty` on stderr.
    """
    if as_json:
        print_json(rows)
    elif rows:
        click.echo("\n".join(table(map(cells, rows), heads, Screen(sys.stdout))))
    elif empty:
        click.echo(empty, err=True)


def table(rows: Iterable[Sequence[object]], heads: Sequence[str], screen: Screen) -> list[str]:
    """Return the lines of a table that fits the terminal.

    Marks in a head describe its column: `>` at the start aligns right (numbers), `?` at the end
    drops the column if the table is too wide, `…` at the end marks a long text that is cut first.
    """
    cells = [list(map(_cell, row)) for row in rows]
    right = [head.startswith(">") for head in heads]
    cells.insert(0, [head.strip(">?…") for head in heads])
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - screen.width if screen.is_terminal else 0
    texts = [width for width, head in zip(widths, heads, strict=True) if head.endswith("…")]
    can_be_cut = sum(max(width - _TEXT_WIDTH, 0) for width in texts)
    for at in reversed([at for at, head in enumerate(heads) if head.endswith("?")]):
        if excess > can_be_cut:
            excess -= widths.pop(at) + 2
            right.pop(at)
            cells = [[*row[:at], *row[at + 1 :]] for row in cells]
    while excess > 0:
        at = max(range(len(widths)), key=lambda at: (not right[at], widths[at]))
        if widths[at] <= _MIN_WIDTH:
            break
        widths[at] -= 1
        excess -= 1
    return [_table_line(row, widths, right) for row in cells]


def _table_line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    line = ""
    for cell, width, is_right in zip(row, widths, right, strict=True):
        text = cut(cell, width)
        space = " " * (width - columns(text))
        line += (space + text if is_right else text + space) + "  "
    return line.rstrip()


def _cell(cell: object) -> str:
    """Return a table cell as text: numbers with separators, and "-" for None or an empty text."""
    if isinstance(cell, float):
        return f"{cell:,.4f}".rstrip("0").rstrip(".")
    if type(cell) is int:
        return f"{cell:,}"
    return "-" if cell in (None, "") else one_line(str(cell))
