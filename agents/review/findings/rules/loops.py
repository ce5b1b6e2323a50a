"""Work that is done once per item and should be done once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.source import closing
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

N_PLUS_ONE = Rule(
    name="query-in-loop",
    category="performance",
    severity="high",
    confidence="high",
    title="N+1 queries: one query per item of the loop",
    body="`{what}` runs once for every item, so the number of queries grows with the data. Ask for all of them at "
    "once (a join, "
    "or one query with all the ids) and put them together in memory.",
    acceptance="The number of queries does not depend on the number of items; a test counts them.",
)
ASYNC_FOR_EACH = Rule(
    name="async-foreach",
    category="bug",
    severity="high",
    confidence="high",
    title="`forEach` does not wait for its async callback",
    body="`forEach` throws the promises away: the code below runs before any of them is done, and a rejection is "
    "never caught. "
    "Use `for ... of` with `await`, or `await Promise.all(items.map(...))`.",
    acceptance="The work is awaited, and a test sees a failure of one item reach the caller.",
)

_JS_LOOP = re.compile(
    r"\bfor\s*(?:await\s*)?\([^)]*\bof\b[^)]*\)\s*\{|\bfor\s*\([^;)]*;[^;]*;[^)]*\)\s*\{|\.(?:forEach|map)\(\s*async\s*(?:\([^)]*\)|\w+)\s*=>\s*\{"
)
_JS_QUERY = re.compile(
    r"\bawait\s+(?P<what>[\w.]*(?:\.query|\.execute|\.findOne|\.findById|\.findByPk|\.findUnique|\.findFirst|\.findMany|\.findAll|\.aggregate"
    r"|\.countDocuments))\s*(?:<[^(]*>)?\("
)
_FOR_EACH = re.compile(r"\.forEach\(\s*async\b")
_PY_QUERY = re.compile(
    r"(?:\b(?:db|session|cursor|conn|connection|cur)\.(?:execute|query|scalar|scalars|get)|\.objects\.(?:get|filter|all|count|exclude))$"
)
_GO_LOOP = re.compile(r"^\s*for\b[^{]*\brange\b[^{]*\{|^\s*for\b[^{]*;[^{]*\{", re.MULTILINE)
_GO_QUERY = re.compile(
    r"\b(?P<what>\w*(?:db|DB|tx|conn|store|repo)\w*\.(?:Query|QueryRow|Exec|Get|Select|First|Find)(?:Context)?)\("
)


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.tree is not None:
            yield from _python(view, view.tree)
        elif view.language == "js":
            yield from _js(view)
        elif view.language == "go":
            yield from _braces(view, _GO_LOOP, _GO_QUERY)


def _js(view: View) -> Iterator[Finding]:
    for match in _FOR_EACH.finditer(view.source.code):
        number = view.source.line_of(match.start())
        if number in view.added:
            yield from ASYNC_FOR_EACH.at(view, number)
    yield from _braces(view, _JS_LOOP, _JS_QUERY)


def _braces(view: View, loop: re.Pattern[str], query: re.Pattern[str]) -> Iterator[Finding]:
    source = view.source
    said: set[int] = set()
    for match in loop.finditer(source.code):
        opening = match.end() - 1
        end = closing(source.code, opening)
        for call in query.finditer(source.code, opening, end):
            number = source.line_of(call.start("what"))
            if number in said or not view.touches(source.line_of(match.start()), number):
                continue
            said.add(number)
            last = source.line_of(closing(source.code, source.code.index("(", call.end() - 1), "()"))
            if number in view.added:
                yield from N_PLUS_ONE.at(view, number, last, what=call["what"])


def _python(view: View, tree: ast.Module) -> Iterator[Finding]:
    said: set[int] = set()
    for loop in view.nodes:
        if not isinstance(loop, ast.For | ast.AsyncFor):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        for node in (inner for statement in loop.body for inner in ast.walk(statement)):
            if not isinstance(node, ast.Call) or node.lineno not in view.added or node.lineno in said:
                continue
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            if _PY_QUERY.search(ast.unparse(node.func)) and used & names and _is_read(node):
                said.add(node.lineno)
                yield from N_PLUS_ONE.at(view, node.lineno, node.end_lineno, what=ast.unparse(node.func))


def _is_read(call: ast.Call) -> bool:
    return re.search(r"\binsert|\bupdate\b|\bdelete\b", ast.unparse(call), re.IGNORECASE) is None
