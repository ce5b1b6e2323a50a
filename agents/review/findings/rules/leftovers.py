"""What should not have been committed: conflict markers, debugger calls, focused tests, silenced checks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

CONFLICT = Rule(
    name="conflict-marker",
    category="bug",
    severity="critical",
    confidence="high",
    title="Unresolved merge conflict",
    body="A conflict marker was committed; both versions of the code stand in the file and it will not work as either.",
    acceptance="No line of the file starts with a conflict marker, and the intended side is kept.",
)
DEBUGGER = Rule(
    name="debugger-left",
    category="bug",
    severity="high",
    confidence="high",
    title="Debugger call left in: `{what}`",
    body="`{what}` stops or clutters the program wherever it runs. It belongs to a debugging session, not to the "
    "change.",
    acceptance="The call is gone.",
)
PRINT = Rule(
    name="debug-print",
    category="style",
    severity="low",
    confidence="high",
    title="Debug output left in",
    body="This print was written for debugging, by its own words. Remove it, or log it at debug level.",
    acceptance="The debug output is gone or goes through the logger.",
)
FOCUSED = Rule(
    name="focused-test",
    category="tests",
    severity="high",
    confidence="high",
    title="Focused test: `{what}` switches the others off",
    body="With `{what}` the runner executes this test alone, so the rest of the file passes without having run.",
    acceptance="`{what}` is gone and the whole file runs.",
)
ADMITTED = Rule(
    name="admitted-bug",
    category="bug",
    severity="medium",
    confidence="high",
    title="The comment admits a bug",
    body='The new comment says that the code is wrong ("{what}"). Mend it, or name the issue that tracks it.',
    acceptance="The behaviour is mended, or the comment names an issue.",
)
TODO = Rule(
    name="new-todo",
    category="process",
    severity="info",
    confidence="high",
    title="New TODO without an issue",
    body="Work that is left for later and tracked nowhere is forgotten. Do it here, or name the issue.",
    acceptance="The TODO is done, or names an issue.",
)
SILENCED = Rule(
    name="check-disabled",
    category="types",
    severity="low",
    confidence="high",
    title="Check switched off: `{what}`",
    body="`{what}` silences a checker without naming the rule and the reason, so it also hides whatever goes wrong "
    "here "
    "later. Mend the cause, or limit it to one rule and say why.",
    acceptance="The checker passes without the blanket switch, or the switch names one rule and a reason.",
)

_MARKER = re.compile(r"^(?:<{7}|>{7}|\|{7})(?: .*)?$")
_DEBUGGERS = {
    "python": re.compile(r"\b(breakpoint\(\)|i?pdb\.set_trace\(\)|pdb\.post_mortem\(|import i?pdb\b|import pudb\b)"),
    "js": re.compile(r"(?:^|[;{}\s])(debugger)\s*(?:;|$)"),
    "go": re.compile(r"\b(spew\.Dump\(|runtime\.Breakpoint\(\)|pp\.Println\()"),
}
_PRINTS = re.compile(
    r"""(?:console\.(?:log|debug|trace)|\bprint|fmt\.Print(?:ln|f)?|println)\(\s*[fF]?["'`]"""
    r"""(?:\W*(?:debug(?:ging)?\b|xxx+|here\b|got here|wtf|asdf|foo+bar)[^"'`]{0,40})""",
    re.IGNORECASE,
)
_ONLY = re.compile(r"(?<![\w.])((?:it|test|describe|context|suite)\.only|fdescribe|fit)\s*\(")
_ADMITS = re.compile(
    r"(?:#|//|/\*|\*|<!--)\s*(?P<what>(?:BUG|FIXME)\b:?.{0,60})|(?:#|//|/\*|\*)\s*(?P<bug>Bug: .{0,60})"
)
_TODO = re.compile(r"(?:#|//|/\*|\*|<!--|--)\s*(?:TODO|HACK)\b")
_ISSUE = re.compile(r"#\d+|[A-Z]{2,10}-\d+|https?://|\(\w+\)|gh-\d+", re.IGNORECASE)
_SILENCERS = (
    re.compile(r"#\s*(?P<what>type:\s*ignore)(?!\[)(?P<rest>.*)"),
    re.compile(r"#\s*(?P<what>noqa)(?!\s*:)(?P<rest>.*)", re.IGNORECASE),
    re.compile(r"#\s*(?P<what>pylint:\s*disable=all|mypy:\s*ignore-errors)(?P<rest>)"),
    re.compile(r"(?:/[/*]|\{/\*)\s*(?P<what>@ts-(?:ignore|nocheck))\b(?P<rest>.*)"),
    re.compile(r"/[/*]\s*(?P<what>eslint-disable(?:-next-line|-line)?)(?!-)(?P<rest>.*)"),
    re.compile(r"//\s?(?P<what>nolint)(?!:)(?P<rest>.*)"),
)


def check(project: Project) -> Iterator[Finding]:
    for view in project.views:
        yield from _conflicts(view)
        for number in sorted(view.added):
            if len(view.source.line(number)) < 2_000:
                yield from _line(view, number)


def _conflicts(view: View) -> Iterator[Finding]:
    marked = [n for n in sorted(view.added) if _MARKER.match(view.source.line(n))]
    # One marker alone may be a heading of some text format; a conflict has at least two.
    if len({view.source.line(n)[:1] for n in marked}) > 1:
        yield from CONFLICT.at(view, marked[0], marked[0] + 1)


def _line(view: View, number: int) -> Iterator[Finding]:
    code, bare, comment = (
        pick(number) for pick in (view.source.code_line, view.source.bare_line, view.source.comment_line)
    )
    if (pattern := _DEBUGGERS.get(view.language)) and (match := pattern.search(code)):
        yield from DEBUGGER.at(view, number, what=match[1].strip("("))
    elif view.language and not view.is_test and _PRINTS.search(bare):
        yield from PRINT.at(view, number)
    if view.is_test and view.language == "js" and (match := _ONLY.search(code)):
        yield from FOCUSED.at(view, number, what=match[1])
    if not view.language or not comment.strip():
        return
    if match := _ADMITS.search(comment):
        what = (match["what"] or match["bug"]).strip()
        if not _ISSUE.search(comment):
            yield from ADMITTED.at(view, number, what=what)
    elif _TODO.search(comment) and not _ISSUE.search(comment):
        yield from TODO.at(view, number)
    yield from _silenced(view, number, comment)


def _silenced(view: View, number: int, comment: str) -> Iterator[Finding]:
    for pattern in _SILENCERS:
        match = pattern.search(comment)
        if match is None:
            continue
        what, rest = match["what"], match["rest"].strip(" */}")
        if what.startswith("eslint") and ("--" in rest or (what.endswith("line") and rest and "hooks" not in rest)):
            continue  # one named rule on one line, or a reason
        if not what.startswith("eslint") and len(re.sub(r"\W", "", rest)) >= 8:
            continue  # a reason is given
        yield from SILENCED.at(view, number, what=what)
        return
