"""SQL, shell commands and code that are put together from values."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

SQL = Rule(
    name="sql-injection",
    category="security",
    severity="critical",
    confidence="high",
    title="SQL injection: the query is built from values",
    body="`{what}` is written into the SQL text, so whoever controls it controls the query. Keep the text constant "
    "and hand "
    "the value over as a bound parameter.",
    acceptance="The SQL text is constant, values are bound parameters, and a test passes a value that holds a quote.",
)
SHELL = Rule(
    name="shell-injection",
    category="security",
    severity="critical",
    confidence="high",
    title="Shell injection: the command is built from values",
    body="`{what}` becomes part of a shell command, so `;` or `$(...)` in it runs other commands. Pass a list of "
    "arguments "
    "without a shell.",
    acceptance="No shell is involved: the program gets a list of arguments, and a test passes one that holds `;`.",
)
EVAL = Rule(
    name="code-injection",
    category="security",
    severity="high",
    confidence="high",
    title="`{what}` runs text as code",
    body="`{what}` executes whatever text reaches it. Parse the value, or look it up in a table of what is allowed.",
    acceptance="No text is executed as code.",
)
UNSAFE_LOAD = Rule(
    name="unsafe-deserialise",
    category="security",
    severity="high",
    confidence="high",
    title="`{what}` can run code from its input",
    body="`{what}` builds arbitrary objects, and running code is one of the things an input can ask for. Use a "
    "format of "
    "plain data (JSON, `yaml.safe_load`).",
    acceptance="The input is read by a loader that makes plain data only.",
)

_KEYWORDS = (
    r"\bSELECT\b.+?\bFROM\b|\bINSERT\s+INTO\b|\bUPDATE\s+\S+\s+SET\b|\bDELETE\s+FROM\b|\bDROP\s+(?:TABLE|DATABASE)\b"
    r"|\bALTER\s+TABLE\b|\bWHERE\s+\w+\s*(?:=|LIKE\b|IN\b|<|>)"
)
_SQL = re.compile(_KEYWORDS, re.IGNORECASE | re.DOTALL)
_RUNNERS = (
    "execute executemany executescript raw text query read_sql fetch fetchrow fetchval fetchall RawSQL extra"
    " exec_driver_sql scalar scalars"
)
_RUNS_SQL = frozenset(_RUNNERS.split())
_OTHERS = (
    "system popen getoutput getstatusoutput run call check_call check_output Popen create_subprocess_shell eval exec"
    " loads load unsafe_load"
)
_CALLS = _RUNS_SQL | frozenset(_OTHERS.split())
_HARMLESS = re.compile(
    r"placeholder|qmark|marks?\b|^\w*(?:columns?|cols|fields|table(?:_?name)?|schema|order_?by|direction)$",
    re.IGNORECASE,
)
_FRAGMENT = re.compile(r"where|clause|condition|filter|join|order|suffix|sql|query", re.IGNORECASE)
_SHELLS = re.compile(r"^(?:os\.(?:system|popen)|commands\.getoutput|subprocess\.(?:getoutput|getstatusoutput))$")
_SUBPROCESS = re.compile(r"(?:^|\.)(?:run|call|check_call|check_output|Popen|create_subprocess_shell)$")

_JS_SQL_TEMPLATE = re.compile(r"(?P<tag>[\w.$]*)(?P<text>`(?:\\.|[^`\\])*`)", re.DOTALL)
_JS_HOLE = re.compile(r"\$\{(?P<what>[^}]*)\}")
_JS_SQL_CONCAT = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')\s*\+\s*(?P<what>[A-Za-z_][\w.\[\]]*)"""
)
_JS_RUNS = re.compile(r"\.(?:query|execute|exec|raw|all|get|run|prepare|\$queryRawUnsafe|\$executeRawUnsafe)\(")
_JS_SHELL = re.compile(r"(?<![\w.])(?:(?:child_process|cp)\.)?(?:exec|execSync)\(\s*(?P<arg>[^)]*)")
_JS_EVAL = re.compile(r"(?<![\w.])(?P<what>eval|new Function)\(\s*(?!['\"`]\s*\))")
_GO_SQL = re.compile(r"\.(?:Query|QueryRow|Exec|QueryContext|QueryRowContext|ExecContext|Raw|Get|Select|Prepare)\(")
_GO_SPRINTF = re.compile(r"fmt\.Sprintf\(\s*(?P<text>\"(?:\\.|[^\"\\])*\"|`[^`]*`)\s*,\s*(?P<what>[^)]+)\)", re.DOTALL)
_GO_CONCAT = re.compile(r"(?P<text>\"(?:\\.|[^\"\\])*\"|`[^`]*`)\s*\+\s*(?P<what>[\w.\[\]]+)", re.DOTALL)
_GO_SHELL = re.compile(r"exec\.Command(?:Context)?\((?:\w+,\s*)?\"(?:/bin/)?(?:ba|z)?sh\",\s*\"-c\",\s*(?P<arg>.+)\)")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        if view.tree is not None:
            yield from _python(view, view.tree)
        elif view.language == "js":
            yield from _js(view)
        elif view.language == "go":
            yield from _go(view)


# Python -------------------------------------------------------------------------------------------


def _python(view: View, tree: ast.Module) -> Iterator[Finding]:
    scopes: list[ast.AST] = [
        tree,
        *(node for node in view.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
    ]
    seen: set[int] = set()
    for scope in scopes:
        texts = _assigned_texts(scope)
        for node in _own(scope):
            if isinstance(node, ast.Call):
                for finding in _call(view, node, texts):
                    if finding.line not in seen:
                        seen.add(finding.line or 0)
                        yield finding


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a scope without those of functions inside it."""
    waiting = deque(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.popleft()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _assigned_texts(scope: ast.AST) -> dict[str, ast.expr]:
    texts: dict[str, ast.expr] = {}
    for node in _own(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and _holes(node.value):
            texts[node.target.id] = node.value
    return texts


def _call(view: View, call: ast.Call, texts: dict[str, ast.expr]) -> Iterator[Finding]:
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if last not in _CALLS:
        return
    name = ast.unparse(func)
    arg = call.args[0] if call.args else None
    if isinstance(arg, ast.Call) and arg.args and ast.unparse(arg.func).rsplit(".", 1)[-1] in ("text", "SQL", "dedent"):
        arg = arg.args[0]
    text = texts.get(arg.id, arg) if isinstance(arg, ast.Name) else arg
    if text is None:
        return
    first, end = text.lineno, max(text.end_lineno or text.lineno, call.lineno if call.lineno - text.lineno < 6 else 0)
    if last in _RUNS_SQL and view.touches(first, end) and (what := _sql_hole(text, bound=len(call.args) > 1)):
        yield from SQL.at(view, first, end, what=what)
    elif _SHELLS.match(name) or (_SUBPROCESS.search(name) and _shell_is_on(call)):
        holes = _holes(text)
        if holes and view.touches(call.lineno, call.end_lineno):
            yield from SHELL.at(view, first if first in view.added else call.lineno, what=holes[0])
    elif name in ("eval", "exec") and not isinstance(text, ast.Constant) and call.lineno in view.added:
        yield from EVAL.at(view, call.lineno, what=name)
    elif call.lineno in view.added and _loads_objects(name, call):
        yield from UNSAFE_LOAD.at(view, call.lineno, what=name)


def _shell_is_on(call: ast.Call) -> bool:
    return ast.unparse(call.func).endswith("_shell") or any(
        word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )


def _loads_objects(name: str, call: ast.Call) -> bool:
    if name in ("pickle.loads", "pickle.load", "marshal.loads", "dill.loads", "yaml.unsafe_load"):
        return True
    return name == "yaml.load" and not any(
        "Safe" in ast.unparse(arg) for arg in (*call.args[1:], *(w.value for w in call.keywords))
    )


def _holes(text: ast.expr) -> list[str]:
    """The values that are written into a text: f-string, %, + and .format()."""
    if isinstance(text, ast.JoinedStr):
        found = [part.value for part in text.values if isinstance(part, ast.FormattedValue)]
    elif isinstance(text, ast.BinOp) and isinstance(text.op, ast.Mod) and _literal(text.left):
        found = list(text.right.elts) if isinstance(text.right, ast.Tuple) else [text.right]
    elif isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
        sides = [_holes(side) or ([] if _literal(side) else [ast.unparse(side)]) for side in (text.left, text.right)]
        return sides[0] + sides[1] if _literal(text) else []
    elif isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        found = [*text.args, *(word.value for word in text.keywords)] if _literal(text.func.value) else []
    else:
        return []
    return [ast.unparse(one) for one in found if not isinstance(one, ast.Constant) and not ast.unparse(one).isupper()]


def _literal(text: ast.expr) -> str:
    """The constant words of a text."""
    return " ".join(
        node.value for node in ast.walk(text) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _sql_hole(text: ast.expr, bound: bool) -> str:
    """Give the first value written into SQL; beside bound values, a fragment such as `where` is taken for text."""
    if not _SQL.search(_literal(text)):
        return ""
    holes = [hole for hole in _holes(text) if not _is_harmless(hole)]
    return next((hole for hole in holes if not (bound and _FRAGMENT.search(hole))), "")


def _is_harmless(hole: str) -> bool:
    return _HARMLESS.search(hole.rsplit(".", 1)[-1]) is not None or hole.startswith(("', '.join", "','.join", "int("))


# JavaScript and Go --------------------------------------------------------------------------------


def _js(view: View) -> Iterator[Finding]:
    source = view.source
    runs_sql = _JS_RUNS.search(source.code) is not None
    for match in _JS_SQL_TEMPLATE.finditer(source.bare):
        holes = [hole["what"] for hole in _JS_HOLE.finditer(match["text"])]
        holes = [hole for hole in holes if not hole.strip().isupper() and not _is_harmless(hole.strip())]
        first, last = source.line_of(match.start("text")), source.line_of(match.end())
        tagged = match["tag"] and match["tag"] not in ("return", "await")
        is_sql = runs_sql or re.search(r"\b(?:sql|query)\b", source.code_line(first), re.IGNORECASE)
        if holes and not tagged and is_sql and _SQL.search(match["text"]) and view.touches(first, last):
            yield from SQL.at(view, first, last, what=holes[0])
    for number in sorted(view.added):
        yield from _js_line(view, number, runs_sql)


def _js_line(view: View, number: int, runs_sql: bool) -> Iterator[Finding]:
    bare, code = view.source.bare_line(number), view.source.code_line(number)
    joined = _JS_SQL_CONCAT.search(bare)
    is_sql = joined is not None and _SQL.search(joined["text"]) and (runs_sql or "query" in code.lower())
    if joined and is_sql and not _is_harmless(joined["what"]):
        yield from SQL.at(view, number, what=joined["what"])
    command = _JS_SHELL.search(bare)
    if command and "child_process" in view.source.bare and re.search(r"\$\{|[\"'`]\s*\+|\+\s*[\"'`]", command["arg"]):
        yield from SHELL.at(view, number, what=command["arg"].strip()[:60])
    evaluated = _JS_EVAL.search(code)
    if evaluated:
        yield from EVAL.at(view, number, what=evaluated["what"])


def _go(view: View) -> Iterator[Finding]:
    source = view.source
    runs_sql = _GO_SQL.search(source.code) is not None
    for pattern in (_GO_SPRINTF, _GO_CONCAT):
        for match in pattern.finditer(source.bare):
            first, last = source.line_of(match.start()), source.line_of(match.end())
            filled = pattern is _GO_CONCAT or re.search(r"%[svqd]", match["text"])
            is_sql = runs_sql and filled and _SQL.search(match["text"])
            if is_sql and view.touches(first, last) and not _is_harmless(match["what"].strip()):
                yield from SQL.at(view, first, last, what=match["what"].strip())
    for number in sorted(view.added):
        command = _GO_SHELL.search(source.bare_line(number))
        if command and not re.fullmatch(r"\"[^\"]*\"", command["arg"].strip()):
            yield from SHELL.at(view, number, what=command["arg"].strip())
