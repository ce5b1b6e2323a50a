"""Random edits of random files, each with the expected result."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

WORDS = "alpha beta gamma delta value total count name item node left right user path".split()
LOOKALIKES = {'"': "“”„", "'": "‘’", "-": "–—", " ": "\u00a0"}
PLAIN = {odd: plain for plain, odds in LOOKALIKES.items() for odd in odds}
KINDS = (
    "exact",
    "inside a line",
    "deleted",
    "trailing blanks",
    "indented less",
    "indented more",
    "other unit",
    "first line bare",
    "look-alikes",
    "stale line",
    "line left out",
    "line too many",
    "several",
)


Encoded = Callable[[list[str]], bytes]


@dataclass(frozen=True, slots=True)
class Case:
    """An edit of a file, and the content that the edit must produce.

    `expected` is None if the edit must be refused. `unique` is False if it may be refused.
    """

    kind: str
    content: bytes
    edits: tuple[tuple[str, str], ...]
    expected: bytes | None
    unique: bool


def cases(seed: int, count: int) -> Iterator[Case]:
    maker = random.Random(seed)
    made = 0
    while made < count:
        case = _case(maker, KINDS[made % len(KINDS)])
        if case is not None:
            made += 1
            yield case


def _statement(maker: random.Random) -> str:
    a, b, c = (maker.choice(WORDS) for _ in range(3))
    shapes = (
        f"{a} = {b}({c})",
        f'print("{a} {b}")',
        f"return {a}",
        f"{a}.{b} += {maker.randrange(20)}",
        f"log('{a}-{b}')",
        f"# {a} {b} {c}",
        f"{a}[{maker.randrange(9)}] = '{b}'",
    )
    return maker.choice(shapes)


def _file(maker: random.Random) -> tuple[list[str], str]:
    unit = maker.choice(["    ", "  ", "\t"])
    lines: list[str] = []
    depth = 0
    for _ in range(maker.randrange(4, 60)):
        kind = maker.random()
        if kind < 0.08:
            lines.append("")
        elif kind < 0.25 and depth < 4:
            lines.append(
                unit * depth
                + f"{maker.choice(['if', 'while', 'for', 'def'])} {maker.choice(WORDS)}:"
            )
            depth += 1
        else:
            lines.append(unit * depth + _statement(maker))
            if maker.random() < 0.3:
                depth = maker.randrange(depth + 1)
    return lines, unit


def _key(line: str) -> str:
    return "".join(PLAIN.get(char, char) for char in line).strip()


def _fits(lines: list[str], quote: list[str]) -> int:
    wanted = [_key(line) for line in quote]
    keys = [_key(line) for line in lines]
    return sum(keys[at : at + len(wanted)] == wanted for at in range(len(keys) - len(wanted) + 1))


def _changed(maker: random.Random, region: list[str], unit: str) -> list[str]:
    """Return the lines of a region after random changes, additions and removals."""
    new = list(region)
    for _ in range(maker.randrange(1, 4)):
        at = maker.randrange(len(new)) if new else 0
        indent = _indent(new[at]) if new else ""
        extra = unit if maker.random() < 0.3 else ""
        line = f"{indent}{extra}{_statement(maker)} # {maker.randrange(10**6)}"
        choice = maker.random()
        if choice < 0.5 and new:
            new[at] = line
        elif choice < 0.8 or len(new) < 2:
            new.insert(at + 1, line)
        else:
            del new[at]
    return new


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _case(maker: random.Random, kind: str) -> Case | None:
    lines, unit = _file(maker)
    if kind == "trailing blanks":
        lines = [line + " " * maker.choice([0, 0, 1, 3]) for line in lines]
    if kind == "look-alikes":
        lines = [_odd(maker, line) for line in lines]
    end = maker.choice(["\n", "\n", "\r\n"])
    final = maker.random() < 0.85
    first = maker.randrange(len(lines))
    last = min(first + maker.randrange(1, 9), len(lines))
    region = lines[first:last]
    if not any(line.strip() for line in region) or not region[0].strip() or not region[-1].strip():
        return None

    def encoded(rows: list[str]) -> bytes:
        return (end.join(rows) + (end if final and rows else "")).encode()

    content = encoded(lines)
    if kind == "inside a line":
        return _inside(maker, lines, first, encoded)
    if kind == "several":
        return _several(maker, lines, unit, encoded)
    new = [] if kind == "deleted" else _changed(maker, region, unit)
    if new == region or (kind != "deleted" and not (new and new[-1])):
        return None
    expected: bytes | None = encoded(lines[:first] + new + lines[last:])
    old, shown = region, new
    if kind == "trailing blanks":
        old = [line.rstrip() + " " * maker.choice([0, 1, 2]) for line in region]
    elif kind == "look-alikes":
        old = [_plain(line) for line in region]
        shown = [_plain(line) if line in region else line for line in new]
    elif kind in ("indented less", "indented more", "other unit", "first line bare"):
        moved = _moved(maker, kind, region, new, unit)
        if moved is None:
            return None
        old, shown = moved
    elif kind in ("stale line", "line left out", "line too many"):
        if len(region) < 3:
            return None
        at = maker.randrange(1, len(region) - 1)
        other = f"{_indent(region[at])}{_statement(maker)} # stale {maker.randrange(10**6)}"
        old = (
            region[:at]
            + ([] if kind == "line left out" else [other])
            + region[at + (kind != "line too many") :]
        )
        expected = None
        if _fits(lines, old):
            return None
    tail = (
        "\n"
        if maker.random() < 0.3 and kind in ("exact", "look-alikes") and last < len(lines)
        else ""
    )
    quote, text = "\n".join(old) + tail, "\n".join(shown) + tail
    exact = "\n".join(lines).count(quote.rstrip("\n")) if kind in ("exact", "deleted") else 0
    unique = _fits(lines, old) == 1 and exact <= 1
    whole = "\n".join(lines)
    if (
        kind in ("indented less", "indented more", "other unit", "trailing blanks", "look-alikes")
        and whole.count(quote) == 1
    ):
        # The exact quote occurs elsewhere in the file: that place must be edited.
        cut = "\n" in text and whole[: whole.index(quote)].rpartition("\n")[2].strip(" \t") == ""
        at_start = whole[: whole.index(quote)].endswith("\n") or whole.startswith(quote)
        literal = encoded(whole.replace(quote, text).split("\n"))
        expected, unique = (
            (None, False) if cut and not at_start and "\n" not in quote else (literal, True)
        )
    if kind == "deleted" and last == len(lines) and not final:
        expected = end.join(lines[:first]).encode()
    return Case(kind, content, ((quote, text),), expected, unique)


def _inside(maker: random.Random, lines: list[str], at: int, encoded: Encoded) -> Case | None:
    line = lines[at]
    start = maker.randrange(len(line))
    stop = min(start + maker.randrange(3, 15), len(line))
    quote, new = line[start:stop], f"x{maker.randrange(10**6)}"
    if not quote.strip():
        return None
    expected = encoded([*lines[:at], line[:start] + new + line[stop:], *lines[at + 1 :]])
    count = "\n".join(lines).count(quote)
    overlapping = sum(
        "\n".join(lines).startswith(quote, spot) for spot in range(len("\n".join(lines)))
    )
    return Case(
        "inside a line",
        encoded(lines),
        ((quote, new),),
        expected if count == 1 else None,
        overlapping == 1,
    )


def _several(maker: random.Random, lines: list[str], unit: str, encoded: Encoded) -> Case | None:
    if len(lines) < 12:
        return None
    spots = sorted(maker.sample(range(0, len(lines) - 2, 3), 3))
    edits, rows, done, unique = [], [], 0, True
    for at in spots:
        region = lines[at : at + 2]
        if not all(line.strip() for line in region):
            return None
        new = _changed(maker, region, unit)
        if new == region:
            return None
        edits.append(("\n".join(region), "\n".join(new)))
        rows += lines[done:at] + new
        done = at + 2
        unique &= _fits(lines, region) == 1 and "\n".join(lines).count("\n".join(region)) == 1
    maker.shuffle(edits)
    return Case("several", encoded(lines), tuple(edits), encoded(rows + lines[done:]), unique)


def _moved(
    maker: random.Random, kind: str, region: list[str], new: list[str], unit: str
) -> tuple[list[str], list[str]] | None:
    texts = [line for line in (*region, *new) if line.strip()]
    common = min((_indent(line) for line in texts), key=len)
    if kind == "first line bare":
        if not _indent(region[0]) or len(region) < 2 or new[:1] != region[:1]:
            return None
        return [region[0].lstrip(), *region[1:]], [new[0].lstrip(), *new[1:]]
    if kind == "indented less":
        if not common:
            return None
        cut = len(unit) * maker.randrange(1, len(common) // len(unit) + 1)
        return tuple(
            [line[cut:] if line.strip() else line for line in rows] for rows in (region, new)
        )  # type: ignore[return-value]
    if kind == "indented more":
        more = unit * maker.randrange(1, 3)
        return tuple(
            [more + line if line.strip() else line for line in rows] for rows in (region, new)
        )  # type: ignore[return-value]
    if not any(_indent(line) for line in region):
        return None
    other = "    " if unit == "\t" else maker.choice(["\t", "   "])
    return tuple(  # type: ignore[return-value]
        [other * (len(_indent(line)) // len(unit)) + line.lstrip(" \t") for line in rows]
        for rows in (region, new)
    )


def _odd(maker: random.Random, line: str) -> str:
    body = line[len(_indent(line)) :]
    made = [
        maker.choice(LOOKALIKES[char]) if char in LOOKALIKES and maker.random() < 0.4 else char
        for char in body
    ]
    return (_indent(line) + "".join(made)).rstrip("\u00a0")


def _plain(line: str) -> str:
    return "".join(PLAIN.get(char, char) for char in line)


def agrees(case: Case, got: bytes) -> bool:
    """Return whether the content after an edit is right.

    A replaced line may keep blanks at its end and typographic characters of the file.
    """
    if case.expected is None or case.kind not in ("look-alikes", "trailing blanks"):
        return got == case.expected
    mine, theirs = got.decode().splitlines(), case.expected.decode().splitlines()
    new = [_key(line) for line in case.edits[0][1].splitlines()]
    return len(mine) == len(theirs) and all(
        one == other or (_key(other) in new and _plain(one).rstrip() == _plain(other).rstrip())
        for one, other in zip(mine, theirs, strict=True)
    )
