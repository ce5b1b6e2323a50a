"""Mistakes that Python's own grammar makes certain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

MUTABLE_DEFAULT = Rule(
    name="mutable-default",
    category="bug",
    severity="medium",
    confidence="high",
    title="Mutable default argument `{name}`",
    body="The default `{value}` is made once, when the function is defined, and shared by every call: what one call "
    "puts in, "
    "the next one sees. Use `None` as the default and make the value inside.",
    acceptance="Two calls without `{name}` do not see each other's values; a test shows it.",
)
UNREACHABLE = Rule(
    name="unreachable-code",
    category="bug",
    severity="medium",
    confidence="high",
    title="Unreachable code",
    body="The statement before it always leaves the block, so this line never runs.",
    acceptance="The code is reached, or is gone.",
)
TUPLE_ASSERT = Rule(
    name="assert-tuple",
    category="tests",
    severity="high",
    confidence="high",
    title="This assertion can never fail",
    body="`assert (condition, message)` checks a tuple, and a tuple that is not empty is always true.",
    acceptance="The parentheses are gone and the condition is checked.",
)
IS_LITERAL = Rule(
    name="is-literal",
    category="bug",
    severity="medium",
    confidence="high",
    title="`is` compares identity, not value",
    body="Whether two equal strings or numbers are one object is up to the interpreter. Compare with `==`.",
    acceptance="The comparison uses `==` or `!=`.",
)
FINALLY_RETURN = Rule(
    name="return-in-finally",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` in `finally` swallows the exception",
    body="Leaving the `finally` block this way drops whatever exception was on its way, and overrides the return "
    "value.",
    acceptance="The `finally` block only cleans up.",
)
DUPLICATE_KEY = Rule(
    name="duplicate-key",
    category="bug",
    severity="medium",
    confidence="high",
    title="The key {what} stands twice in this dict",
    body="Only the last of the two values is kept; the first is lost without a word.",
    acceptance="Every key stands once.",
)
REDEFINED = Rule(
    name="redefined-test",
    category="tests",
    severity="high",
    confidence="high",
    title="`{what}` is defined twice; the first never runs",
    body="The second definition replaces the first one, so the earlier test (or function) is dead although it looks "
    "alive.",
    acceptance="Both have names of their own, and both run.",
)
NOT_AWAITED = Rule(
    name="missing-await",
    category="bug",
    severity="high",
    confidence="high",
    title="The coroutine `{what}` is never awaited",
    body="Calling `{what}` only makes a coroutine object; without `await` its body does not run at all.",
    acceptance="The call is awaited (or handed to a task that is), and a test sees its effect.",
)
BLOCKING = Rule(
    name="blocking-in-async",
    category="performance",
    severity="high",
    confidence="high",
    title="`{what}` blocks the event loop",
    body="Inside an `async def`, `{what}` stops every other task of the program until it returns. Use the asynchronous "
    "counterpart, or run it in a thread.",
    acceptance="The call is awaited or runs in a thread.",
)
MUTATED = Rule(
    name="mutated-while-iterating",
    category="bug",
    severity="high",
    confidence="high",
    title="`{what}` is changed while it is being iterated",
    body="Removing or adding items during the loop skips elements (lists) or raises RuntimeError (dicts, sets). "
    "Iterate over "
    "a copy, or build a new collection.",
    acceptance="The loop runs over a copy or builds a new collection; a test has two neighbouring matches.",
)
SAME_SIDES = Rule(
    name="self-comparison",
    category="bug",
    severity="medium",
    confidence="high",
    title="Both sides of the comparison are the same",
    body="`{what}` compares a value with itself, so the answer never changes. One side was probably meant to be "
    "another.",
    acceptance="The two sides differ.",
)
OPENED = Rule(
    name="unclosed-file",
    category="bug",
    severity="medium",
    confidence="high",
    title="`{what}` is opened and never closed",
    body="Nothing closes what this line opens: the handle stays open until the garbage collector happens to run, and "
    "written data may not be flushed. Open it in a `with` statement.",
    acceptance="It is opened in a `with` statement, or closed in `finally`.",
)
LATE_BINDING = Rule(
    name="late-binding-closure",
    category="bug",
    severity="medium",
    confidence="medium",
    title="The closure sees only the last `{what}`",
    body="The function looks `{what}` up when it is called, and by then the loop has ended: every closure made here "
    "gets the "
    "last value. Bind it as a default argument (`{what}={what}`).",
    acceptance="Each closure keeps its own value; a test calls two of them.",
)

_MUTABLE_CALLS = ("list", "dict", "set", "defaultdict", "OrderedDict", "deque", "Counter", "bytearray")
_BLOCKS = (
    "time.sleep",
    "subprocess.run",
    "subprocess.check_output",
    "subprocess.call",
    "os.system",
    "urllib.request.urlopen",
)
_BLOCKING_CLIENTS = (
    "requests.get",
    "requests.post",
    "requests.put",
    "requests.delete",
    "requests.patch",
    "requests.request",
)
_OPENERS = (
    "open",
    "io.open",
    "gzip.open",
    "bz2.open",
    "sqlite3.connect",
    "socket.socket",
    "os.fdopen",
)
_MAY_OPEN = re.compile(r"\b(?:open|connect|socket|fdopen)\(")
_CHANGERS = ("append", "remove", "pop", "insert", "clear", "add", "discard", "popitem", "extend")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check(project: Project) -> Iterator[Finding]:
    for view in project.views:
        if view.tree is not None:
            for node in view.nodes:
                yield from _node(view, node)
            yield from _coroutines(view, view.tree)


def _node(view: View, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, _Function):
        yield from _defaults(view, node)
        if not view.is_test:
            yield from _opened(view, node)
        if isinstance(node, ast.AsyncFunctionDef) and not view.is_test:
            yield from _blocking(view, node)
    if isinstance(node, ast.Module | ast.ClassDef):
        yield from _redefined(view, node)
    if (
        isinstance(node, ast.Assert)
        and isinstance(node.test, ast.Tuple)
        and node.test.elts
        and node.lineno in view.added
    ):
        yield from TUPLE_ASSERT.at(view, node.lineno)
    if isinstance(node, ast.Compare) and node.lineno in view.added:
        yield from _compared(view, node)
    if isinstance(node, ast.Try):
        yield from _finally(view, node)
    if isinstance(node, ast.Dict):
        yield from _keys(view, node)
    if isinstance(node, ast.For | ast.AsyncFor):
        yield from _loop(view, node)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield from _unreachable(view, block)


def _defaults(view: View, function: _Function) -> Iterator[Finding]:
    args = function.args
    named = [*args.posonlyargs, *args.args]
    pairs = [*zip(named[len(named) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None]
    for arg, value in pairs:
        made = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp) or (
            isinstance(value, ast.Call) and ast.unparse(value.func).rsplit(".", 1)[-1] in _MUTABLE_CALLS
        )
        if made and view.touches(arg.lineno, value.end_lineno):
            yield from MUTABLE_DEFAULT.at(view, arg.lineno, value.end_lineno, name=arg.arg, value=ast.unparse(value))


def _unreachable(view: View, block: list[ast.stmt]) -> Iterator[Finding]:
    for one, following in pairwise(block):
        if isinstance(one, ast.Return | ast.Raise | ast.Continue | ast.Break) and following.lineno in view.added:
            if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Yield | ast.Constant)):
                yield from UNREACHABLE.at(view, following.lineno)
            return


def _compared(view: View, node: ast.Compare) -> Iterator[Finding]:
    sides = [node.left, *node.comparators]
    for index, op in enumerate(node.ops):
        left, right = sides[index], sides[index + 1]
        if isinstance(op, ast.Is | ast.IsNot):
            for side in (left, right):
                if (
                    isinstance(side, ast.Constant)
                    and isinstance(side.value, str | int | bytes | float)
                    and not isinstance(side.value, bool)
                ):
                    yield from IS_LITERAL.at(view, node.lineno)
                    return
        elif (
            not isinstance(op, ast.NotEq)  # x != x asks for NaN
            and not isinstance(left, ast.Constant | ast.Call)
            and ast.unparse(left) == ast.unparse(right)
            and not view.is_test
        ):
            yield from SAME_SIDES.at(view, node.lineno, what=ast.unparse(node))
            return


def _finally(view: View, node: ast.Try) -> Iterator[Finding]:
    for one in node.finalbody:
        if isinstance(one, ast.Return | ast.Break | ast.Continue) and one.lineno in view.added:
            yield from FINALLY_RETURN.at(view, one.lineno, what=type(one).__name__.lower())


def _keys(view: View, node: ast.Dict) -> Iterator[Finding]:
    seen: set[object] = set()
    for key in node.keys:
        if isinstance(key, ast.Constant):
            if key.value in seen and key.lineno in view.added:
                yield from DUPLICATE_KEY.at(view, key.lineno, what=repr(key.value))
            seen.add(key.value)


def _redefined(view: View, scope: ast.Module | ast.ClassDef) -> Iterator[Finding]:
    first: dict[str, _Function] = {}
    for node in scope.body:
        if isinstance(node, _Function) and not node.decorator_list:
            if node.name in first and (node.lineno in view.added or first[node.name].lineno in view.added):
                yield from REDEFINED.at(
                    view, node.lineno if node.lineno in view.added else first[node.name].lineno, what=node.name
                )
            first[node.name] = node


def _coroutines(view: View, tree: ast.Module) -> Iterator[Finding]:
    """Calls of this file's own coroutines that stand alone as a statement."""
    plain = {node.name for node in view.nodes if isinstance(node, ast.FunctionDef)}
    free = {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)} - plain
    methods = {
        one.name
        for node in view.nodes
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, ast.AsyncFunctionDef)
    } - plain
    for node in view.nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno in view.added):
            continue
        name = ast.unparse(node.value.func)
        own = name in free or (name.startswith("self.") and name[5:] in methods)
        if own or name in ("asyncio.sleep", "anyio.sleep", "asyncio.gather"):
            yield from NOT_AWAITED.at(view, node.lineno, node.end_lineno, what=name)


def _blocking(view: View, function: ast.AsyncFunctionDef) -> Iterator[Finding]:
    if not view.touches(function.lineno, function.end_lineno):
        return
    nested = {id(n) for f in ast.walk(function) if isinstance(f, ast.FunctionDef | ast.Lambda) for n in ast.walk(f)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and id(node) not in nested and node.lineno in view.added:
            name = ast.unparse(node.func)
            if name in _BLOCKS or name in _BLOCKING_CLIENTS:
                yield from BLOCKING.at(view, node.lineno, what=name)


def _opened(view: View, function: _Function) -> Iterator[Finding]:
    source = view.source
    stop = source.starts[end] if (end := function.end_lineno or 0) < len(source.starts) else len(source.code)
    if not _MAY_OPEN.search(source.code, source.starts[function.lineno - 1], stop):
        return
    text = ast.unparse(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and _opens(node.value) and node.lineno in view.added:
            if node.attr in ("read", "readlines", "readline", "write", "writelines", "execute", "cursor"):
                yield from OPENED.at(view, node.lineno, what=ast.unparse(node.value)[:60])
        elif isinstance(node, ast.Assign) and _opens(node.value) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            kept = (f"{name}.close(", f"with {name}", f"= {name}\n")
            handed = any(
                isinstance(user, ast.Call | ast.Return | ast.Yield | ast.Tuple | ast.List | ast.Dict | ast.keyword)
                and any(isinstance(one, ast.Name) and one.id == name for one in ast.iter_child_nodes(user))
                for user in ast.walk(function)
            )
            if node.lineno in view.added and not handed and not any(use in f"{text}\n" for use in kept):
                yield from OPENED.at(view, node.lineno, what=ast.unparse(node.value)[:60])


def _opens(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in _OPENERS


def _loop(view: View, loop: ast.For | ast.AsyncFor) -> Iterator[Finding]:
    iterated = ast.unparse(loop.iter)
    if isinstance(loop.iter, ast.Name | ast.Attribute):
        leaves = any(isinstance(node, ast.Break | ast.Return) for node in ast.walk(loop))
        for node in ast.walk(loop):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _CHANGERS
                and ast.unparse(node.func.value) == iterated
                and view.touches(node.lineno)
                and not leaves
            ):
                yield from MUTATED.at(view, node.lineno, what=iterated)
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    for node in ast.walk(loop):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "add_done_callback", "connect")
        ):
            for arg in node.args:
                if isinstance(arg, ast.Lambda) and arg.lineno in view.added:
                    bound = {one.arg for one in (*arg.args.args, *arg.args.kwonlyargs)}
                    used = {one.id for one in ast.walk(arg.body) if isinstance(one, ast.Name)} & names - bound
                    if used:
                        yield from LATE_BINDING.at(view, arg.lineno, what=min(used))
