"""React: keys of lists, mutated state, props that became a context."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from glue.agents.review.findings.rules.effects import STATE
from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import MOST, Source, closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

MISSING_KEY = Rule(
    name="react-missing-key",
    category="bug",
    severity="medium",
    confidence="high",
    title="List items are rendered without a `key`",
    body="The element that this `map` returns has no `key`, so React matches items by position: when the list is "
    "sorted, "
    "filtered or an item is removed, state and focus end up on the wrong item. Give it a key from the item's own id.",
    acceptance="The outermost element of each item has a `key` from the item's identity, and React prints no key "
    "warning.",
)
INDEX_KEY = Rule(
    name="react-index-key",
    category="bug",
    severity="low",
    confidence="medium",
    title="The array index is used as `key`",
    body="An index names a position, not an item: after sorting or removing, React keeps the state of the wrong item.",
    acceptance="The key comes from the item's own identity.",
)
PROPS_TO_CONTEXT = Rule(
    name="props-to-context",
    category="bug",
    severity="low",
    confidence="medium",
    title="`{what}` takes no props any more and reads a context",
    body="The component was handed what it shows; now it fetches it from `{hook}`. It can no longer be rendered, "
    "tested or "
    "reused without the provider, and renders again whenever anything in the context changes. Where the parent is a "
    "direct one, props are the smaller way.",
    acceptance="The component takes props, or the description says why a context is needed here.",
)
MUTATED_STATE = Rule(
    name="react-mutated-state",
    category="bug",
    severity="high",
    confidence="high",
    title="The state `{what}` is changed in place",
    body="React compares references: after `{call}` the state is the same object, so nothing is rendered, and the "
    "previous "
    "render's value has changed under it. Set a copy.",
    acceptance="The state is replaced by a new value through its setter.",
)

_MAP = re.compile(r"\.(?:map|flatMap)\(\s*(?:async\s*)?(?:function\s*)?(?P<args>\([^)]*\)|\w+)\s*(?:=>)?\s*")
_TAG = re.compile(r"<(?P<name>[A-Za-z][\w.]*)?(?=[\s/>])")
_OPENS_TAG = re.compile(r"\(?\s*(?=<)")
_RETURNS_TAG = re.compile(r"\breturn\s*\(?\s*(?=<)")
_CHANGES = r"\.(?:push|pop|shift|unshift|splice|sort|reverse|fill)\("


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.language != "js" or view.partial:
            continue
        if "<" in view.source.code and view.path.endswith(("x", ".js")):
            yield from _keys(view)
        if "use" in view.source.code:
            yield from _contexts(view)
            yield from _mutations(view)


def _keys(view: View) -> Iterator[Finding]:
    source = view.source
    for match in islice(_MAP.finditer(source.code), MOST):
        tag = _returned_tag(source, match.end())
        if tag is None:
            continue
        start, end = tag
        attributes = source.code[start : end + 1]
        first, last = source.line_of(start), source.line_of(end)
        if not view.touches(first, last) and not _tag_edited(view, first, last):
            continue
        if not re.search(r"\bkey\s*=|\{\s*\.\.\.", attributes):
            above = first - 1 if view.source.code_line(first).strip() in ("<>", "<li>", "<tr>") else first
            yield from MISSING_KEY.at(view, max(above, 1), first)
        else:
            index = re.match(r"\(\s*[^,()]+,\s*(\w+)", match["args"])
            if index and re.search(rf"\bkey\s*=\s*\{{\s*{index[1]}\s*\}}", attributes):
                yield from INDEX_KEY.at(view, first, last)


def _tag_edited(view: View, first: int, last: int) -> bool:
    """Whether a deleted line stood where the tag is now: the key itself may be what was deleted."""
    return any(
        "key=" in line.text
        and edit.after is not None
        and edit.after.new is not None
        and first <= edit.after.new <= last + 1
        for edit in view.edits
        for line in edit.removed
    )


def _returned_tag(source: Source, at: int) -> tuple[int, int] | None:
    """The opening tag of the element that an arrow function returns, as offsets."""
    code = source.code
    body = _OPENS_TAG.match(code, at)
    if body:
        start = body.end()
    elif code.startswith("{", at):
        end = closing(code, at)
        returned = list(_RETURNS_TAG.finditer(code, at, min(end, at + 20_000)))
        if not returned:
            return None
        start = returned[-1].end()
    else:
        return None
    if code.startswith("<>", start):
        return start, start + 1
    if not _TAG.match(code, start):
        return None
    depth = 0
    for offset in range(start, min(len(code), start + 1_500)):
        char = code[offset]
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == ">" and depth == 0 and code[offset - 1] != "=":
            return start, offset
    return None


def _contexts(view: View) -> Iterator[Finding]:
    """Components that had props before the change, and now have none and call a context hook."""
    for block in view.functions:
        if not re.match("[A-Z]", block.name) or not re.search(r"\(\s*\)\s*(?::[^{]*)?$", block.header.strip()):
            continue
        hook = re.search(r"\buse(?:\w*Context|Store)\b(?=\s*[(<])", block.body)
        had = re.search(rf"function\s+{block.name}\s*\(\s*\{{[^}}]*\w|\b{block.name}\s*=\s*\(\s*\{{[^}}]*\w", view.base)
        if hook and had and view.touches(block.start, block.start + 1):
            last = view.source.line_of(block.at + hook.end())
            yield from PROPS_TO_CONTEXT.at(view, block.start, last, what=block.name, hook=hook.group())


def _mutations(view: View) -> Iterator[Finding]:
    source = view.source
    for state in STATE.finditer(source.code):
        name = state["value"]
        changed = re.compile(rf"(?<![\w.]){name}(?P<call>{_CHANGES}|\[[^\]]+\]\s*=(?!=)|\.\w+\s*=(?![=>]))")
        for match in changed.finditer(source.code, state.end()):
            number = source.line_of(match.start())
            shadowed = re.search(rf"(?:const|let)\s+{name}\b|\(\s*{name}\s*\)\s*=>", source.code_line(number))
            if number in view.added and not shadowed:
                yield from MUTATED_STATE.at(view, number, what=name, call=f"{name}{match['call']}".rstrip("( ="))
