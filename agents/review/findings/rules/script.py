"""JavaScript: promises nobody waits for, and comparisons that cannot be meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

FLOATING = Rule(
    name="floating-promise",
    category="bug",
    severity="high",
    confidence="high",
    title="Nobody waits for `{what}`",
    body="`{what}` is an async function of this file, and its promise is dropped here: the code goes on before it is "
    "done, and "
    "a failure becomes an unhandled rejection.",
    acceptance="The promise is awaited, returned, or has a `catch`.",
)
ASSIGNED = Rule(
    name="assignment-in-condition",
    category="bug",
    severity="high",
    confidence="high",
    title="`=` in a condition assigns, it does not compare",
    body="The condition is the value that was just assigned, so it does not depend on what `{what}` was. Compare "
    "with `===`.",
    acceptance="The condition compares.",
)
NAN = Rule(
    name="compared-with-nan",
    category="bug",
    severity="high",
    confidence="high",
    title="Nothing is ever equal to `NaN`",
    body="A comparison with `NaN` is always false (or always true with `!==`). Use `Number.isNaN`.",
    acceptance="The check uses `Number.isNaN`.",
)
GLOBAL = Rule(
    name="mutable-module-state",
    category="bug",
    severity="medium",
    confidence="high",
    title="New mutable state of the whole module: `{what}`",
    body="`{what}` is written at run time and shared by everyone who imports the module: calls depend on who came "
    "before, tests "
    "influence each other, and in a server requests do. Pass the value, or keep it in an object that has an owner.",
    acceptance="There is no module-level `{what}` that is written at run time.",
)

_ASYNC = re.compile(r"\basync\s+function\s+(\w+)|\b(?:const|let)\s+(\w+)\s*(?::[^=]+)?=\s*async\b")
_CONDITION = re.compile(r"\bif\s*\(\s*(?P<what>[\w.]+)\s*=(?![=>])\s*(?:['\"\d]|true|false|null|undefined|\w+\s*\))")
_NAN = re.compile(r"[!=]==?\s*NaN\b|\bNaN\s*[!=]==?")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.language == "js":
            yield from _promises(view)
            for number in sorted(view.added):
                yield from _line(view, number)
            yield from _module_state(view)
        elif view.language == "python":
            yield from _globals(view)


def _promises(view: View) -> Iterator[Finding]:
    names = {name for pair in _ASYNC.findall(view.source.code) for name in pair if name}
    if not names:
        return
    call = re.compile(rf"^\s*(?P<what>{'|'.join(map(re.escape, sorted(names)))})\(.*\)\s*;?\s*$")
    for number in sorted(view.added):
        match = call.match(view.source.code_line(number))
        inside = view.function_at(number)
        waits = inside is not None and (
            re.search(r"\basync\b", inside.header) or "async" in view.source.code_line(inside.start)
        )
        if (
            match
            and waits
            and not view.source.code_line(number - 1).rstrip().endswith(("=", "(", "return", "await", ",", "=>"))
        ):
            yield from FLOATING.at(view, number, what=match["what"])


def _line(view: View, number: int) -> Iterator[Finding]:
    code = view.source.code_line(number)
    assigned = _CONDITION.search(code)
    if assigned:
        yield from ASSIGNED.at(view, number, what=assigned["what"])
    if _NAN.search(code):
        yield from NAN.at(view, number)


def _module_state(view: View) -> Iterator[Finding]:
    for number in sorted(view.added):
        match = re.match(r"export\s+let\s+(?P<name>\w+)\b", view.source.code_line(number))
        if match and re.search(rf"^[ \t]+{match['name']}\s*(?:=(?![=>])|\+\+|\+=)", view.source.code, re.MULTILINE):
            yield from GLOBAL.at(view, number, what=match["name"])


def _globals(view: View) -> Iterator[Finding]:
    """A module-level name that is new, and that a new `global` statement writes."""
    for number in sorted(view.added):
        match = re.match(r"\s+global\s+(?P<name>\w+)\s*$", view.source.code_line(number))
        if match is None:
            continue
        declared = [n for n in view.added if re.match(rf"{match['name']}\b\s*(?::[^=]+)?=", view.source.code_line(n))]
        if declared:
            yield from GLOBAL.at(view, min(declared), what=match["name"])
