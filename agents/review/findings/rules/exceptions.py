"""Errors that are caught or returned and then forgotten."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

SWALLOWED = Rule(
    name="swallowed-exception",
    category="bug",
    severity="medium",
    confidence="high",
    title="Every error is swallowed here",
    body="{what} hides every failure, also the ones nobody thought of: the caller goes on as if it had worked. Catch "
    "the "
    "one error that is expected, and log or re-raise the rest.",
    acceptance="Only the expected error is caught, and any other one reaches the caller or the log.",
)
IGNORED = Rule(
    name="ignored-error",
    category="bug",
    severity="medium",
    confidence="high",
    title="The error of `{what}` is ignored",
    body="`{what}` says by its error whether it worked, and this line throws that away: on bad input the code goes on "
    "with zero values as if it had succeeded. Check the error and return it.",
    acceptance="The error of `{what}` is checked, and a test feeds it input that fails.",
)
LOST = Rule(
    name="error-check-removed",
    category="bug",
    severity="high",
    confidence="medium",
    title="The error check was removed",
    body="Before this change a failure here was noticed (`{what}`); now the result is used unchecked.",
    acceptance="The failure is handled again, and a test shows it.",
)

WIDENED = Rule(
    name="exception-widened",
    category="bug",
    severity="medium",
    confidence="high",
    title="The handler now catches `{new}` instead of `{old}`",
    body="Only `{old}` was expected here. Now every other failure, bugs included, is handled as if it were that one.",
    acceptance="Only the expected error is caught.",
)

_BROAD = ("Exception", "BaseException")
_GO_MUST = (
    r"(?:json|xml|yaml|toml|gob|proto)\.(?:Unmarshal|Marshal)\w*|\w+\.(?:Decode|Encode)|strconv\.(?:Atoi|Parse\w+)"
    r"|time\.Parse\w*|url\.Parse\w*|os\.(?:Open|OpenFile|Create|ReadFile|WriteFile|MkdirAll?|Rename|ReadDir)"
    r"|io\.(?:ReadAll|Copy)|ioutil\.\w+|http\.(?:Get|Post|NewRequest\w*)|sql\.Open|\w+\.(?:Exec|ExecContext|Commit|Scan)"
)
_GO_BLANK = re.compile(rf"^\s*(?:\w+\s*,\s*)?_\s*:?=\s*(?P<what>{_GO_MUST})\(")
_GO_BARE = re.compile(
    r"^\s*(?P<what>(?:json|xml|yaml|toml)\.Unmarshal|os\.(?:WriteFile|MkdirAll?|Rename)|\w*(?:tx|Tx)\.Commit|\w*(?:db|tx|DB|Tx)\.Exec|http\.ListenAndServe\w*)\("
)
_JS_CATCH = re.compile(r"\bcatch\s*(?:\([^)]*\))?\s*\{")
_JS_EMPTY_HANDLER = re.compile(r"\.catch\(\s*(?:\(\s*\w*\s*\)|\w+)\s*=>\s*(?:\{\s*\}|null|undefined|void 0)\s*\)")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        yield from _lost(view)
        if view.tree is not None:
            yield from _python(view, view.tree)
        elif view.language == "js":
            yield from _js(view)
        elif view.language == "go":
            yield from _go(view)


def _lost(view: View) -> Iterator[Finding]:
    """An error check that was deleted right below the call it checked, and an `except` that was widened."""
    for edit in view.edits:
        gone = next((line for line in edit.removed if re.search(r"if err != nil|if err := ", line.text)), None)
        kept = any(re.search(r"\berr\b", line.text) for line in edit.added)
        above = edit.before
        if gone and not kept and above is not None and above.new and re.search(r"\berr\b.*=", above.text):
            yield from LOST.at(view, above.new, what=gone.text.strip())
    for old, new in view.pairs:
        if (
            new.new
            and ".catch(" in old.text
            and ".catch(" not in new.text
            and old.text.split(".catch(")[0].strip() in new.text
        ):
            yield from LOST.at(view, new.new, what=".catch(...)")
        was, now = (re.match(r"\s*except\s+(\S.*?)(?:\s+as\s+\w+)?:", line.text) for line in (old, new))
        if new.new and was and now and now[1] in _BROAD and was[1] not in _BROAD:
            yield from WIDENED.at(view, new.new, old=was[1], new=now[1])


def _python(view: View, tree: ast.Module) -> Iterator[Finding]:
    for node in view.nodes:
        if isinstance(node, ast.ExceptHandler):
            last = node.body[-1].end_lineno or node.lineno
            quiet = _is_broad(node.type) and _does_nothing(node.body)
            excused = isinstance(node.body[-1], ast.Return) and any(
                view.source.comment_line(number).strip() for number in range(node.lineno, last + 1)
            )
            if quiet and not excused and view.touches(node.lineno, last):
                what = "`except:`" if node.type is None else f"`except {ast.unparse(node.type)}`"
                yield from SWALLOWED.at(view, node.lineno, last, what=what)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for call in (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)):
                suppresses = ast.unparse(call.func).endswith("suppress") and any(_is_broad(arg) for arg in call.args)
                if suppresses and call.lineno in view.added:
                    yield from SWALLOWED.at(view, call.lineno, what=f"`{ast.unparse(call)}`")


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(one) for one in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in _BROAD)


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(one, ast.Pass | ast.Continue)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Return) and (one.value is None or _is_empty(one.value)))
        for one in body
    )


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        # False is an answer ("does it work?"), and it equals 0.
        return value.value is not False and value.value in (None, "", 0, True)
    return isinstance(value, ast.List | ast.Dict | ast.Tuple) and not ast.unparse(value).strip("[](){} ")


def _js(view: View) -> Iterator[Finding]:
    source = view.source
    for match in _JS_CATCH.finditer(source.code):
        end = closing(source.code, match.end() - 1)
        first, last = source.line_of(match.start()), source.line_of(end)
        # A comment is taken as the reason, so nothing at all may stand between the braces.
        if not source.text[match.end() : end].strip() and view.touches(first, last):
            yield from SWALLOWED.at(view, first, last, what="An empty `catch`")
    for match in _JS_EMPTY_HANDLER.finditer(source.code):
        number = source.line_of(match.start() + 1)
        if number in view.added and not source.comments[match.start() : match.end()].strip():
            yield from SWALLOWED.at(view, number, what="An empty `.catch` handler")


def _go(view: View) -> Iterator[Finding]:
    for number in sorted(view.added):
        line = view.source.code_line(number)
        match = _GO_BLANK.match(line) or _GO_BARE.match(line)
        if match and not view.source.comment_line(number).strip():
            yield from IGNORED.at(view, number, what=match["what"])
