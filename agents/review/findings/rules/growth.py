"""Collections that only ever grow, and subscriptions that cannot be ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

GROWS = Rule(
    name="unbounded-growth",
    category="performance",
    severity="high",
    confidence="medium",
    title="Memory leak: `{what}` only ever grows",
    body="`{what}` belongs to an object that lives as long as the program, is added to here, and nothing in the file "
    "ever takes "
    "an item out again. It keeps every value it was given alive. Bound it, or drop what is no longer needed.",
    acceptance="`{what}` has a limit or a place where items are removed; a test adds more than the limit.",
)
NO_UNSUBSCRIBE = Rule(
    name="unsubscribe-does-nothing",
    category="bug",
    severity="high",
    confidence="high",
    title="The returned unsubscribe function removes nothing",
    body="`{what}` hands back a function that is meant to undo the subscription, but that function takes nothing out "
    "of any "
    "collection: the callback stays registered, and keeps everything it refers to alive.",
    acceptance="After calling the returned function the callback is no longer called; a test shows it.",
)
_LONG_LIVED = re.compile(
    r"\bclass\s+(?P<name>\w*(?:Cache|Store|Manager|Service|Server|Registry|Pool|Bus|Tracker|Monitor|Logger|Emitter|Broker|Hub|Client"
    r"|Repository|Controller|Gateway|Scheduler)\w*)\b|class\s+(?P<other>\w+)[^{]*extends\s+\w*(?:EventEmitter|EventTarget)"
)
_FIELD = {
    "js": re.compile(
        r"^\s*(?:(?:private|public|protected|readonly|static)\s+)*#?(?P<name>\w+)\s*(?::.+?)?=\s*(?:\[\]"
        r"|new (?:Array|Map|Set)(?:<[^(]*>)?\(\))\s*;?\s*$"
    ),
    "python": re.compile(
        r"^\s*self\.(?P<name>\w+)\s*(?::[^=]+)?=\s*(?:\[\]|\{\}|list\(\)|dict\(\)|set\(\)|defaultdict\(\w+\))\s*$"
    ),
}
_ACCUMULATES = re.compile(
    r"histor|log|event|record|cache|queue|callback|listener|subscri|handler|request|metric|error|result|sample|seen|session"
    r"|message|pending|connection|client|timer",
    re.IGNORECASE,
)
_ADDS = r"(?:\.(?:push|unshift|append|add|extend|insert)\()"
_TAKES = r"(?:\.(?:shift|pop|popleft|splice|delete|remove|clear|discard|popitem)\(|\.length\s*=|\s*=(?!=)|\.filter\()"
_SUBSCRIBES = re.compile(
    r"^(?:subscribe|on|once|listen|watch|observe|addListener|addEventListener|onChange|register\w*|add\w*Listener)$"
)
_RETURNS = re.compile(r"\breturn\s*\(\s*\)\s*(?::\s*\w+\s*)?=>\s*\{")
_UNDOES = re.compile(
    r"delete|remove|off\(|filter|splice|unsubscribe|clear|cancel|abort|close|stop|dispose|false|null|undefined"
)


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.partial or view.language not in _FIELD:
            continue
        yield from _fields(view)
        if view.language == "js":
            yield from _subscriptions(view)


def _fields(view: View) -> Iterator[Finding]:
    code = view.source.code
    owner = {"js": r"this\.", "python": r"self\."}[view.language]
    for number in sorted(view.added):
        match = _FIELD[view.language].match(view.source.code_line(number))
        if match is None or not _ACCUMULATES.search(match["name"]):
            continue
        name = match["name"]
        above = code[: view.source.starts[number - 1]]
        header = above[max(above.rfind("\nclass "), above.rfind(" class "), 0) :]
        if not _LONG_LIVED.search(header[:300]):
            continue
        adds = [view.source.line_of(m.start()) for m in re.finditer(rf"{owner}#?{name}{_ADDS}", code)]
        taken = re.search(rf"{owner}#?{name}{_TAKES}", code.replace(view.source.code_line(number), ""))
        spot = next((line for line in adds if line in view.added), None)
        if spot is not None and not taken:
            yield from GROWS.at(view, spot, what=name)


def _subscriptions(view: View) -> Iterator[Finding]:
    code = view.source.code
    for block in view.functions:
        if not _SUBSCRIBES.match(block.name):
            continue
        for match in _RETURNS.finditer(block.body):
            opening = block.at + match.end() - 1
            end = closing(code, opening)
            first, last = view.source.line_of(block.at + match.start()), view.source.line_of(end)
            if view.touches(first, last) and not _UNDOES.search(code[opening:end]):
                yield from NO_UNSUBSCRIBE.at(view, first, last, what=block.name)
