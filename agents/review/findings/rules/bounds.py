"""Bounds that are off by one, and comparisons that a change turned around."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

PAST_END = Rule(
    name="index-past-end",
    category="bug",
    severity="high",
    confidence="high",
    title="Off by one: the loop runs past the end of `{what}`",
    body="The last index of `{what}` is its length minus one, and this bound includes the length itself: the last "
    "round "
    "reads an element that is not there.",
    acceptance="The bound is exclusive, and a test covers the last element and an empty collection.",
)
WINDOW = Rule(
    name="window-off-by-one",
    category="bug",
    severity="high",
    confidence="high",
    title="Off by one: the tail holds one element too many",
    body="A slice that starts at `{first}` holds `{count}` + 1 elements, one more than asked for. Start at the "
    "length minus "
    "`{count}`.",
    acceptance="Asking for N gives exactly N elements (all of them where there are fewer); a test shows both.",
)
FLIPPED = Rule(
    name="comparison-changed",
    category="bug",
    severity="medium",
    confidence="medium",
    title="The comparison changed from `{old}` to `{new}`",
    body="The only difference between the old line and the new one is this operator, and nothing in the description "
    "says that "
    "the bound was meant to move. `{old}` and `{new}` differ exactly at the edge, where tests seldom look.",
    acceptance="A test pins the behaviour at the edge, with the operator that is meant.",
)
SHIFTED = Rule(
    name="bound-shifted",
    category="bug",
    severity="medium",
    confidence="medium",
    title="The bound moved by one",
    body="The only difference between the old line and the new one is `{what}`, and nothing in the description says "
    "that the "
    "bound was meant to move.",
    acceptance="A test pins the first and the last element that are meant to be included.",
)
NEGATED = Rule(
    name="condition-negated",
    category="bug",
    severity="high",
    confidence="medium",
    title="The condition was turned into its opposite",
    body="The only difference between the old line and the new one is the negation, so the code now does this in "
    "exactly the "
    "cases in which it did not, while what it guards stayed the same.",
    acceptance="Tests cover both outcomes of the condition.",
)

_JS_LOOP = re.compile(r"for\s*\([^;]*;\s*(?P<index>\w+)\s*<=\s*(?P<what>[\w.]+)\.length\s*;")
_GO_LOOP = re.compile(r"for\s+[^;]*;\s*(?P<index>\w+)\s*<=\s*len\((?P<what>[\w.]+)\)\s*;")
_PY_LOOP = re.compile(r"for\s+(?P<index>\w+)\s+in\s+range\((?:[\w ]+,\s*)?len\((?P<what>[\w.]+)\)\s*\+\s*1\s*\)")
_LENGTH_INDEX = re.compile(r"(?<![\w.])(?P<what>[\w.]+)\[\s*(?:len\((?P=what)\)|(?P=what)\.length)\s*\]")
_START = re.compile(
    r"\b(?P<name>\w+)\s*(?::=|=)\s*(?:len\((?P<what>[\w.]+)\)|(?P<js>[\w.]+)\.length)\s*-\s*(?P<count>(?!1\b)[\w.]+)\s*-\s*1\s*;?$"
)
_COUNT = r"(?:\w+\.)?(?:n|k|num\w*|count|limit|last|size|tail|window|max\w*|top\w*)"
_DIRECT = re.compile(
    rf"\[\s*-\s*(?:\(\s*(?P<count>{_COUNT})\s*\+\s*1\s*\)|(?P<other>{_COUNT})\s*-\s*1)\s*:\s*\]"
    rf"|\.slice\(\s*-\s*(?:\(\s*(?P<js>{_COUNT})\s*\+\s*1\s*\)|(?P<minus>{_COUNT})\s*-\s*1)\s*\)"
)
_OPERATOR = re.compile(r"(?<![<>=!+\-])(<=|>=|<|>)(?![<>=])")
_TYPE_LIKE = re.compile(r"<[A-Z]\w*|\w+<\w+>|=>|->|<-|</|/>")
_STEP = re.compile(r"\s*[+-]\s*1\b(?!\.)")
_INTENDED = re.compile(
    r"off[- ]by[- ]one|boundar|inclusive|exclusive|\bfix|\bedge|\bbound|invert|negat|\bbug\b|correct"
)
_CONDITION = re.compile(r"^\s*(?:\}?\s*else\s+)?(?:if|elif|while|unless|return|assert)\b")


def check(project: Project) -> Iterator[Finding]:
    intended = _INTENDED.search(project.said) is not None
    for view in project.code_views():
        for number in sorted(view.added):
            yield from _line(view, number)
        if not intended:
            yield from _edited(view)


def _line(view: View, number: int) -> Iterator[Finding]:
    code = view.source.code_line(number)
    pattern = {"js": _JS_LOOP, "go": _GO_LOOP, "python": _PY_LOOP}[view.language]
    loop = pattern.search(code)
    if loop and _indexed(view, number, loop["what"], loop["index"]):
        yield from PAST_END.at(view, number, what=loop["what"])
    past = _LENGTH_INDEX.search(code)
    if past and not re.search(r"\]\s*=(?!=)", code[past.end() - 1 :]):  # a[a.length] = x appends
        yield from PAST_END.at(view, number, what=past["what"])
    start = _START.search(code.rstrip())
    if start:
        what = start["what"] or start["js"]
        below = "\n".join(view.source.code_line(n) for n in range(number, number + 12))
        sliced = rf"\b{re.escape(what)}(?:\[\s*{start['name']}\s*:\s*\]|\.slice\(\s*{start['name']}\s*\))"
        if re.search(sliced, below):
            yield from WINDOW.at(view, number, first=start.group().split("=", 1)[1].strip(" ;"), count=start["count"])
    direct = _DIRECT.search(code)
    if direct:
        count = next(value for value in direct.groups() if value)
        yield from WINDOW.at(view, number, first=direct.group(), count=count)


def _indexed(view: View, number: int, what: str, index: str) -> bool:
    """Whether the loop really reads what[index]: a loop up to and including the length may be meant."""
    below = "\n".join(view.source.code_line(n) for n in range(number, number + 25))
    return re.search(rf"\b{re.escape(what)}\[\s*{index}\s*\]", below) is not None


def _edited(view: View) -> Iterator[Finding]:
    for old, new in view.pairs:
        before, after = old.text.strip(), new.text.strip()
        if new.new is None or before == after or _TYPE_LIKE.search(after):
            continue
        ops = _OPERATOR.findall(before), _OPERATOR.findall(after)
        if _OPERATOR.sub("?", before) == _OPERATOR.sub("?", after) and ops[0] != ops[1]:
            was, now = next(pair for pair in zip(*ops, strict=True) if pair[0] != pair[1])
            yield from FLIPPED.at(view, new.new, old=was, new=now)
        elif _STEP.sub("", before) == _STEP.sub("", after) and re.search(
            r"\[|range|len|length|for|slice|offset|page|limit|index", after
        ):
            what = next(iter(_STEP.findall(before) + _STEP.findall(after)), "").strip()
            yield from SHIFTED.at(view, new.new, what=what)
        elif _CONDITION.match(after) and _negation(before, after):
            yield from NEGATED.at(view, new.new)


def _negation(before: str, after: str) -> bool:
    plain = [re.sub(r"!(?!=)|\bnot\s+", "", text) for text in (before, after)]
    swapped = before.replace("==", "!=") == after or before.replace("!=", "==") == after
    return plain[0] == plain[1] or swapped
