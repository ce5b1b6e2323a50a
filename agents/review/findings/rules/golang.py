"""Go: package state, mutexes, contexts, goroutines and handles."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import Block, closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

GLOBAL = Rule(
    name="go-mutable-global",
    category="bug",
    severity="high",
    confidence="high",
    title="Exported package variable `{what}` is mutable global state",
    body="Any package may read and write `{what}` at any time, and this change does write it at run time. Whoever "
    "uses it "
    "depends on that having happened before, tests cannot run side by side, and it is nil until then. Pass the value "
    "as an argument.",
    acceptance="There is no package-level `{what}`; whoever needs the value is handed it.",
)
GLOBAL_WRITE = Rule(
    name="go-global-write",
    category="bug",
    severity="high",
    confidence="high",
    title="Hidden coupling: this writes the package variable `{what}`",
    body="From here on other code depends on this line having run first, and nothing in its signature says so. Pass "
    "the value "
    "as an argument instead of publishing it in a global.",
    acceptance="The value is passed as an argument and no global is written.",
)
LOCKED = Rule(
    name="go-lock-not-released",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` is locked and never unlocked",
    body="The function takes the lock and has no line that releases it: the next caller waits for ever. Use `defer`.",
    acceptance="The lock is released on every path.",
)
COPIED_LOCK = Rule(
    name="go-lock-copied",
    category="bug",
    severity="high",
    confidence="high",
    title="The method copies its mutex",
    body="`{what}` holds a mutex and this method has a value receiver: it locks a copy, so it protects nothing. Use "
    "a pointer receiver.",
    acceptance="The method has a pointer receiver; the race detector finds nothing.",
)
LOST_CONTEXT = Rule(
    name="go-context-dropped",
    category="bug",
    severity="medium",
    confidence="high",
    title="The caller's context is dropped",
    body="The function is handed a context and uses `{what}` instead: cancelling or timing out the caller no longer "
    "stops this work.",
    acceptance="The given context is passed on.",
)
BODY_OPEN = Rule(
    name="go-body-not-closed",
    category="bug",
    severity="medium",
    confidence="high",
    title="`{what}` is never closed",
    body="Nothing in the function closes `{what}`: every call leaks a connection or a file descriptor. Close it with "
    "`defer` after "
    "checking the error.",
    acceptance="`{what}` is closed on every path.",
)
WAIT_ADD = Rule(
    name="go-waitgroup-add",
    category="bug",
    severity="high",
    confidence="high",
    title="`Add` runs inside the goroutine it counts",
    body="`Wait` may be reached before the goroutine has started and called `Add`, and then it does not wait for it.",
    acceptance="`Add` is called before the `go` statement.",
)
RACE = Rule(
    name="go-shared-map-write",
    category="bug",
    severity="high",
    confidence="medium",
    title="Data race: `{what}` is written from several goroutines",
    body="The goroutines started here write `{what}` at the same time and nothing protects it; concurrent writes to "
    "a map stop the "
    "program, and appends lose elements.",
    acceptance="A mutex or a channel protects the writes, and the race detector finds nothing.",
)
NIL_MAP = Rule(
    name="go-nil-map",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` is a nil map when it is written",
    body="`var {what} map[...]` makes no map, and writing to a nil map panics. Use `make`.",
    acceptance="The map is made before it is written.",
)
DEFER_LOOP = Rule(
    name="go-defer-in-loop",
    category="bug",
    severity="medium",
    confidence="high",
    title="`defer` in a loop runs only when the function ends",
    body="Every round adds one more deferred call, and all of them wait for the end of the function: with many "
    "rounds the "
    "handles run out. Put the body into a function of its own.",
    acceptance="What a round opens is closed in that round.",
)

EARLY_DEFER = Rule(
    name="go-defer-before-check",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` is deferred before the error is checked",
    body="Where the call fails the value is nil, and closing it panics. Check the error first.",
    acceptance="The error is checked before the `defer`.",
)

_GLOBAL = re.compile(r"^var\s+(?P<name>[A-Z]\w*)\s+(?P<type>\*[\w.]+|map\[.*|\[\].*|[\w.]+)\s*(?:=\s*(?P<value>.*))?$")
_CONSTANT = re.compile(r"errors\.New|fmt\.Errorf|MustCompile|template\.Must|flag\.|prometheus\.|expvar\.")
_OPENS = re.compile(
    r"\b(?P<name>\w+)\s*,\s*\w+\s*:?=\s*(?:(?:http\.(?:Get|Post|Head)|\w*[cC]lient\.(?:Do|Get|Post))(?P<http>\()|os\.(?:Open|Create|OpenFile)\("
    r"|\w*(?:db|DB|tx|Tx)\.(?:Query|QueryContext)\()"
)
_LOOP = re.compile(r"^\s*for\b[^{\n]*\{", re.MULTILINE)


def check(project: Project) -> Iterator[Finding]:
    views = [view for view in project.code_views() if view.language == "go"]
    yield from _globals(views)
    for view in views:
        structs = _lock_holders(view)
        for block in view.functions:
            if view.touches(block.start, block.end):
                yield from _function(view, block, structs)


def _globals(views: list[View]) -> Iterator[Finding]:
    for view in views:
        for number in sorted(view.added):
            match = _GLOBAL.match(view.source.code_line(number))
            if match is None or _CONSTANT.search(match["value"] or "") or match["name"].startswith("Err"):
                continue
            name = match["name"]
            write = re.compile(rf"^\s+(?:\w+\.)?{name}\s*=(?!=)|^\s+(?:\w+\.)?{name}\[[^\]]*\]\s*=(?!=)")
            writes = [(one, n) for one in views for n in sorted(one.added) if write.match(one.source.code_line(n))]
            if writes:
                yield from GLOBAL.at(view, number, what=name)
            for one, spot in [pair for pair in writes if pair[0] is not view][:1]:
                yield from GLOBAL_WRITE.at(one, spot, what=name)


def _lock_holders(view: View) -> set[str]:
    pattern = re.compile(r"type\s+(?P<name>\w+)\s+struct\s*\{(?P<body>[^}]*)\}")
    return {m["name"] for m in pattern.finditer(view.source.code) if re.search(r"(?<!\*)sync\.(?:RW)?Mutex", m["body"])}


def _function(view: View, block: Block, structs: set[str]) -> Iterator[Finding]:
    source, body = view.source, block.body

    def line(offset: int) -> int:
        return source.line_of(block.at + offset)

    receiver = re.match(r"func\s*\(\s*\w+\s+(?P<type>\w+)\s*\)", block.header)
    lock = re.search(r"\b([\w.]+)\.(R?)Lock\(\)", body)
    if lock and line(lock.start()) in view.added:
        if f"{lock[1]}.{lock[2]}Unlock()" not in body and not re.match(r"R?Lock", block.name):
            yield from LOCKED.at(view, line(lock.start()), what=lock[1])
        if receiver and receiver["type"] in structs:
            yield from COPIED_LOCK.at(
                view, block.start if block.start in view.added else line(lock.start()), what=receiver["type"]
            )
    if re.search(r"\bctx\s+context\.Context", block.header):
        for match in re.finditer(r"\bcontext\.(?:Background|TODO)\(\)", body):
            if line(match.start()) in view.added:
                yield from LOST_CONTEXT.at(view, line(match.start()), what=match.group())
    yield from _handles(view, block)
    yield from _goroutines(view, block)
    yield from _early(view, block)
    for match in re.finditer(r"\bvar\s+(\w+)\s+map\[", body):
        name, rest = match[1], body[match.end() :]
        write = re.search(rf"\b{name}\[[^\]]+\]\s*=(?!=)", rest)
        made = re.search(rf"\b{name}\s*(?:,\s*\w+\s*)?:?=(?!=)|&{name}\b", rest)
        if write and (not made or made.start() > write.start()) and line(match.start()) in view.added:
            yield from NIL_MAP.at(view, line(match.start()), what=name)
    for loop in _LOOP.finditer(body):
        end = closing(body, loop.end() - 1)
        for match in re.finditer(r"\bdefer\b", body[loop.end() : end]):
            inner = body[loop.end() : loop.end() + match.start()]
            if line(loop.end() + match.start()) in view.added and inner.count("func(") == 0:
                yield from DEFER_LOOP.at(view, line(loop.end() + match.start()))


def _handles(view: View, block: Block) -> Iterator[Finding]:
    for match in _OPENS.finditer(block.body):
        number = view.source.line_of(block.at + match.start())
        name = match["name"]
        if name == "_" or number not in view.added:
            continue
        closes = rf"\b{name}\.Body\.Close\(" if match["http"] else rf"\b{name}\.Close\("
        rest = block.body[match.end() :]
        handed = re.search(
            rf"\breturn\b[^\n]*\b{name}\b(?!\.)|[(,]\s*&?{name}\s*[,)]|=\s*{name}\s*$|:\s*{name}\s*,",
            rest,
            re.MULTILINE,
        )
        if not re.search(closes, rest) and not handed:
            yield from BODY_OPEN.at(view, number, what=f"{name}.Body" if match["http"] else name)


def _early(view: View, block: Block) -> Iterator[Finding]:
    pattern = re.compile(
        r"\b(?P<name>\w+)\s*,\s*err\s*:?=[^\n]*\n\s*(?P<defer>defer\s+(?P=name)(?:\.Body)?\.Close\(\))"
    )
    for match in pattern.finditer(block.body):
        number = view.source.line_of(block.at + match.start("defer"))
        if number in view.added:
            yield from EARLY_DEFER.at(view, number, what=match["defer"].removeprefix("defer").strip())


def _goroutines(view: View, block: Block) -> Iterator[Finding]:
    body = block.body
    for match in re.finditer(r"\bgo\s+func\s*\([^)]*\)\s*\{", body):
        end = closing(body, match.end() - 1)
        inner = body[match.end() : end]
        first = view.source.line_of(block.at + match.start())
        if not view.touches(first, view.source.line_of(block.at + end)):
            continue
        add = re.search(r"\b\w*[wW][gG]\w*\.Add\(", inner)
        if add:
            yield from WAIT_ADD.at(view, view.source.line_of(block.at + match.end() + add.start()))
        loops = re.search(r"\bfor\b[^{]*\{(?:(?!\n\t\}).)*$", body[: match.start()], re.DOTALL)
        shared = re.search(r"(?m)^\s*(?P<name>\w+)(?:\[[^\]]+\]\s*=(?!=)|\s*=\s*append\((?P=name)\b)", inner)
        local = shared and re.search(rf"\b{shared['name']}\s*:=|var\s+{shared['name']}\b", inner)
        if loops and shared and not local and not re.search(r"Lock\(|<-|atomic\.|sync\.", inner):
            indexed = re.search(rf"\b{shared['name']}\[(?:i|idx|index)\]\s*=", inner)
            if not indexed:
                yield from RACE.at(
                    view, view.source.line_of(block.at + match.end() + shared.start("name")), what=shared["name"]
                )
