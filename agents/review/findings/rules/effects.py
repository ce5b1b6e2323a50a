"""React hooks: effects without cleanup or async, stale dependencies, calls that are not made on every render."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import DEEPEST, MOST, Source, closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

NO_CLEANUP = Rule(
    name="effect-without-cleanup",
    category="bug",
    severity="high",
    confidence="high",
    title="The effect never cleans up `{what}`",
    body="`{what}` is started each time this effect runs and nothing stops it: the effect returns no cleanup "
    "function, so "
    "each run adds one more, and the last one fires after the component is gone. Return a function that undoes it.",
    acceptance="The effect returns a cleanup function, and a test re-renders twice and finds at most one left.",
)
MISSING_DEPS = Rule(
    name="effect-missing-deps",
    category="bug",
    severity="high",
    confidence="high",
    title="Stale closure: {what} missing from the dependencies of `{hook}`",
    body="The callback reads {what}, but the dependency array {deps} does not name it. The callback keeps the value "
    "from the "
    "render in which it was made and goes on using it after it changed. Add it, or read it through a ref.",
    acceptance="Every value the callback reads is in its dependency array (or in a ref); a test changes it and sees "
    "the new value.",
)
ASYNC_EFFECT = Rule(
    name="async-effect",
    category="bug",
    severity="medium",
    confidence="high",
    title="The effect is an async function",
    body="An effect may return a cleanup function or nothing; an async one returns a promise, which React ignores: "
    "there "
    "is no cleanup, and a late answer sets state after the component has changed or gone.",
    acceptance="The async work runs in a function inside the effect, and a stale answer is ignored.",
)
CONDITIONAL_HOOK = Rule(
    name="conditional-hook",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` is not called on every render",
    body="React tells hooks apart by the order of their calls. {why}, so in some renders the order differs and state "
    "ends "
    "up in the wrong hook.",
    acceptance="Hooks are called unconditionally at the top of the component.",
)

_HOOK = re.compile(
    r"\b(?P<hook>useEffect|useLayoutEffect|useCallback|useMemo)\(\s*(?:async\s*)?(?P<args>\([^)]*\)|\w+)\s*=>\s*"
)
_STARTS = re.compile(
    r"\b(?P<what>setInterval|addEventListener|setTimeout|requestAnimationFrame|subscribe|new\s+(?:WebSocket|EventSource"
    r"|IntersectionObserver|ResizeObserver|MutationObserver))\s*\("
)
_STOPS = re.compile(
    r"\breturn\s+(?:\(\s*\)\s*=>|function|async|[a-z]\w*\s*;?\s*$)|clearInterval|clearTimeout|removeEventListener"
    r"|\breturn\s+[\w.]*\b(?:subscribe|listen|on|watch|observe)\(|cancelAnimationFrame|unsubscribe|\.(?:disconnect|close|abort)\(",
    re.MULTILINE,
)
STATE = re.compile(
    r"\bconst\s*\[\s*(?P<value>\w+)\s*,\s*(?P<setter>\w+)?\s*\]\s*=\s*(?:React\.)?use(?:State|Reducer)\b"
)
_REF = re.compile(r"\bconst\s+(\w+)\s*=\s*(?:React\.)?use(?:Ref|Id)\b")
_LOCAL = re.compile(r"\bconst\s+(?:(?P<name>\w+)|\{(?P<many>[^}]*)\})\s*(?::[^=]+)?=(?!=|>)\s*(?P<value>[^;\n]*)")
_WORD = re.compile(r"(?<![\w.$])(?P<name>[A-Za-z_$][\w$]*)(?!\s*:(?!:))")
_COMPONENT = re.compile(r"^(?:[A-Z]|use[A-Z])")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.language == "js" and not view.partial and "use" in view.source.code:
            yield from _effects(view)
            yield from _order(view)


@dataclass(frozen=True, slots=True)
class _Hook:
    name: str
    start: int  # offsets of the callback's body
    end: int
    deps: str | None
    deps_at: int
    args: str


def _hooks(source: Source) -> Iterator[_Hook]:
    code = source.code
    around: list[int] = []
    for match in islice(_HOOK.finditer(code), MOST // 2):
        opening = code.index("(", match.start())
        call_end = closing(code, opening, "()")
        around = [one for one in around if one > opening]
        if len(around) >= DEEPEST:
            continue
        around.append(call_end)
        if code[match.end() : match.end() + 1] == "{":
            body_end = closing(code, match.end())
        else:
            comma = code.rfind(", [", match.end(), call_end)
            body_end = comma if comma > 0 else call_end
        rest = code[body_end + 1 : call_end]
        deps = re.search(r"\[(?P<deps>[^\]]*)\]\s*,?\s*$", rest)
        at = body_end + 1 + deps.start() if deps else call_end
        yield _Hook(match["hook"], match.end(), body_end, deps["deps"] if deps else None, at, match["args"])


def _effects(view: View) -> Iterator[Finding]:
    source = view.source
    for hook in _hooks(source):
        first, last = source.line_of(hook.start), source.line_of(hook.deps_at)
        body = source.code[hook.start : hook.end + 1]
        if hook.name in ("useEffect", "useLayoutEffect") and view.touches(first, last):
            yield from _cleanup(view, hook, body)
        if hook.deps is not None and view.touches(first, last):
            yield from _dependencies(view, hook, body)


def _cleanup(view: View, hook: _Hook, body: str) -> Iterator[Finding]:
    if _STOPS.search(body):
        return
    for match in _STARTS.finditer(body):
        what = " ".join(match["what"].split())
        at = hook.start + match.start()
        if what == "setTimeout" and not re.search(r"\bset[A-Z]\w*\(", body[match.end() :]):
            continue  # a timer that sets no state is harmless enough
        end = closing(view.source.code, view.source.code.index("(", at), "()")
        yield from NO_CLEANUP.at(view, view.source.line_of(at), view.source.line_of(end), what=what)
        return


def _dependencies(view: View, hook: _Hook, body: str) -> Iterator[Finding]:
    reactive = _reactive(view, hook)
    inner = _declared(body) | set(re.findall(r"\w+", hook.args))
    used = {match["name"] for match in _WORD.finditer(_without_keys(body))} & reactive - inner
    listed = set(re.findall(r"[\w$]+", hook.deps or ""))
    missing = sorted(name for name in used - listed if not re.match(r"set[A-Z]|dispatch$", name))
    source = view.source
    last = source.line_of(hook.deps_at)
    silenced = any(
        re.search("exhaustive-deps|eslint-disable", source.comment_line(n)) for n in range(last - 2, last + 1)
    )
    if not missing or silenced:  # a silenced check is a finding of its own
        return
    number = source.line_of(hook.deps_at)
    start = next(
        (
            n
            for n in range(source.line_of(hook.start) + 1, number + 1)
            if re.search(rf"(?<![\w.]){missing[0]}\b", source.code_line(n))
        ),
        number,
    )
    if number - start > 7:
        start = number
    what = ", ".join(f"`{name}`" for name in missing[:4])
    yield from MISSING_DEPS.at(view, start, number, what=what, hook=hook.name, deps=f"`[{(hook.deps or '').strip()}]`")


def _reactive(view: View, hook: _Hook) -> set[str]:
    """Names that may differ from render to render: props, state, and what is computed from them in the component."""
    source = view.source
    around = [
        block
        for block in view.functions
        if _COMPONENT.match(block.name) and block.at < hook.start <= block.at + len(block.body)
    ]
    if not around:
        return set()
    component = min(around, key=lambda block: len(block.body))
    header = source.code[source.starts[component.start - 1] : component.at]
    names: set[str] = set()
    args = header[header.find("(") + 1 :]
    destructured = re.match(r"\s*\{(?P<names>[^}]*)\}", args)
    if destructured:
        names |= {part.split("=")[0].split(":")[-1].strip(" .\n") for part in destructured["names"].split(",")}
    else:
        names |= set(re.findall(r"(\w+)\s*\??\s*:", args) or re.findall(r"^\s*(\w+)", args))
    own = source.code[component.at + 1 : hook.start]
    own = _top_level(own)
    stable = set(_REF.findall(own))
    for match in STATE.finditer(own):
        names.add(match["value"])
        if match["setter"]:
            stable.add(match["setter"])
    for match in _LOCAL.finditer(own):
        if match["name"] and not re.match(r"use(?:Ref|Id|Callback)\b|[\d'\"`]", match["value"].strip()):
            names.add(match["name"])
    names |= {match["value"] for match in STATE.finditer(own)}
    return {name for name in names if name.isidentifier()} - stable


def _top_level(body: str) -> str:
    """A component's own statements, without what stands in the functions inside it."""
    out, depth = [], 0
    for char in body:
        depth += char == "{"
        if depth == 0 or char == "\n":
            out.append(char)
        depth -= char == "}" and depth > 0
    return "".join(out)


def _declared(body: str) -> set[str]:
    names = set(re.findall(r"\b(?:const|let|var|function|class)\s+(\w+)", body))
    for group in re.findall(r"\b(?:const|let|var)\s*[\[{]([^\]}]*)[\]}]\s*=", body):
        names |= {part.split("=")[0].split(":")[-1].strip(" .") for part in group.split(",")}
    for group in re.findall(r"\(([^()]*)\)\s*(?::[^=]*)?=>", body):
        names |= {part.split(":")[0].split("=")[0].strip(" .?{}[]") for part in group.split(",")}
    for group in re.findall(r"function\s*\w*\s*\(([^()]*)\)", body):
        names |= {part.split(":")[0].split("=")[0].strip(" .?{}[]") for part in group.split(",")}
    names |= set(re.findall(r"(?<![\w.)])(\w+)\s*=>", body))
    return names | set(re.findall(r"\bcatch\s*\(\s*(\w+)", body))


def _without_keys(body: str) -> str:
    return re.sub(r"(?<=[{,\s])\w+\s*:(?!:)(?=\s)", " ", body)


def _order(view: View) -> Iterator[Finding]:
    """Hooks in a condition or a loop, or below an early return, and effects that are async functions."""
    source = view.source
    for match in re.finditer(r"\buse(?:Layout)?Effect\(\s*async\b", source.code):
        if source.line_of(match.start()) in view.added:
            yield from ASYNC_EFFECT.at(view, source.line_of(match.start()))
    for block in view.functions:
        if not _COMPONENT.match(block.name):
            continue
        body = block.body[1:]
        for hook in re.finditer(
            r"(?<![\w.])(?P<name>use(?:State|Effect|Memo|Callback|Ref|Context|Reducer|LayoutEffect))\(", body
        ):
            number = source.line_of(block.at + 1 + hook.start())
            opened = _opened_by(body[: hook.start()])
            early = re.search(
                r"^\s*if\s*\([^\n]*\)\s*(?:return\b|\{\s*return\b[^}]*\})",
                _top_level_guards(body[: hook.start()]),
                re.MULTILINE,
            )
            if number in view.added and opened in ("if", "for", "while", "else"):
                yield from CONDITIONAL_HOOK.at(
                    view, number, what=hook["name"], why=f"This call stands inside `{opened}`"
                )
            elif number in view.added and opened == "" and early:
                yield from CONDITIONAL_HOOK.at(
                    view, number, what=hook["name"], why="A `return` above may end the render first"
                )


def _opened_by(before: str) -> str:
    """What opened the innermost block that is still open: a keyword, "other", or nothing at the top of the function."""
    stack: list[str] = []
    for match in re.finditer(r"[{}]", before):
        if match.group() == "}":
            if stack:
                stack.pop()
            continue
        head = before[max(0, match.start() - 160) : match.start()].rstrip()
        keyword = re.search(r"\b(if|for|while)\s*\((?:[^()]|\([^()]*\))*\)$|\b(else)$", head)
        stack.append((keyword[1] or keyword[2]) if keyword else "other")
    return stack[-1] if stack else ""


def _top_level_guards(body: str) -> str:
    """The function's own statements, with one-line blocks of `if` left in."""
    return "\n".join(line for line in body.split("\n") if len(line) - len(line.lstrip()) <= _indent_of(body))


def _indent_of(body: str) -> int:
    first = next((line for line in body.split("\n") if line.strip()), "")
    return len(first) - len(first.lstrip())
