"""Mutants of a module: the small faults that `bench/mutants.py` puts into it, one at a time."""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault: the node `index` of the module's tree, replaced by its change `number`."""

    module: str  # path below the root, such as tools/shell.py
    digest: str  # of the source of the module
    index: int
    number: int
    line: int
    last: int  # line of the end of the node
    text: str  # the source line, without indentation
    change: str  # "before  ->  after"

    @property
    def key(self) -> str:
        return f"{self.module} {self.digest} {self.index} {self.number}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"

    def tree(self) -> ast.Module:
        """Return the tree of the module with the fault."""
        broken = ast.parse((ROOT / self.module).read_text())
        target = list(ast.walk(broken))[self.index]
        replacement = list(changes(target))[self.number]
        if replacement is not None:
            ast.copy_location(replacement, target)
        _replace(broken, target, replacement)
        return ast.fix_missing_locations(broken)


def changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield the replacements of a node; None removes a statement."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if swap := SWAPS.get(type(node.ops[0])):
            other = copy.deepcopy(node)
            other.ops = [swap()]  # type: ignore[list-item]
            yield other
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)):
        if swap := SWAPS.get(type(node.op)):
            twin = copy.deepcopy(node)
            twin.op = swap()  # type: ignore[assignment]
            yield twin
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield copy.deepcopy(node.body)
        yield copy.deepcopy(node.orelse)
    elif isinstance(node, ast.If):
        negated = copy.deepcopy(node)
        negated.test = ast.UnaryOp(ast.Not(), negated.test)
        yield negated
    elif isinstance(node, (ast.Continue, ast.Break)):
        yield ast.Pass()
    if _is_effect(node):
        yield None


def _is_effect(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute)
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)


def mutants(module: str) -> list[Mutant]:
    """Return every mutant of a module."""
    source = (ROOT / module).read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    digest = digest_of(source)
    ignored = _ignored_nodes(tree)
    found = []
    for index, node in enumerate(ast.walk(tree)):
        if node in ignored:
            continue
        for number, replacement in enumerate(changes(node)):
            after = "(removed)" if replacement is None else _short(replacement)
            line = getattr(node, "lineno", 1)
            found.append(
                Mutant(
                    module=module,
                    digest=digest,
                    index=index,
                    number=number,
                    line=line,
                    last=getattr(node, "end_lineno", line),
                    text=lines[line - 1].strip(),
                    change=f"{_short(node)}  ->  {after}",
                )
            )
    return found


def sample(module: str, seed: int, number: int) -> list[Mutant]:
    """Return a random sample of the mutants of a module; `number` 0 returns all of them."""
    every = mutants(module)
    if not number:
        return every
    return random.Random(f"{seed}/{module}").sample(every, min(number, len(every)))


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).split("\n")[0]
    return text if len(text) < 90 else text[:87] + "..."


def _ignored_nodes(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes in annotations, TYPE_CHECKING, class decorators, zip and lru_cache.

    Nodes of overloads are returned too. No behaviour depends on these, so they are not mutated.
    `strict=True` of zip asserts that the lengths are equal, and the size of a cache changes only
    the speed.
    """
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.add(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPE_CHECKING":
            found.add(node.value)
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                found.update(ast.walk(decorator))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list
        ):
            found.update(ast.walk(node))
        if isinstance(node, ast.Call):
            found.update(_unnoticed_arguments(node))
        for name in ("annotation", "returns"):
            note = getattr(node, name, None)
            if note is not None:
                found.update(ast.walk(note))
    return found


def _unnoticed_arguments(call: ast.Call) -> set[ast.AST]:
    """Return the nodes of `strict=True` in a call of zip, and of the size of an lru_cache."""
    name = ast.unparse(call.func)
    if name == "zip":
        return {each for word in call.keywords for each in ast.walk(word) if _is_true(word.value)}
    if name in ("lru_cache", "functools.lru_cache"):
        return {each for option in (*call.args, *call.keywords) for each in ast.walk(option)}
    return set()


def _is_true(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _replace(tree: ast.Module, target: ast.AST, replacement: ast.AST | None) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, replacement)
                return
            if isinstance(value, list) and any(each is target for each in value):
                place = [each is target for each in value].index(True)
                value[place] = replacement if replacement is not None else ast.Pass()
                return


def changed_functions(mutant: Mutant) -> list[tuple[CodeType, CodeType]]:
    """Return the code objects of functions before and after the change.

    The list is empty if the change is in code that runs at import: module and class bodies,
    defaults and decorators.
    """
    before = _compiled(mutant.module, mutant.digest)
    after = compile(mutant.tree(), mutant.module, "exec")
    pairs: list[tuple[CodeType, CodeType]] = []
    if not _pair(before, after, pairs) or not pairs or not _is_function(pairs[-1][0]):
        return []
    return [pair for pair in pairs if _is_function(pair[0])]


@functools.lru_cache(maxsize=8)
def _compiled(module: str, digest: str) -> CodeType:
    return compile(ast.parse((ROOT / module).read_text()), module, "exec")


def _pair(before: CodeType, after: CodeType, pairs: list[tuple[CodeType, CodeType]]) -> bool:
    """Collect the code objects that differ, outermost first; return False if they do not pair."""
    if before == after:
        return True
    pairs.append((before, after))
    inner = [const for const in before.co_consts if isinstance(const, CodeType)]
    changed = [const for const in after.co_consts if isinstance(const, CodeType)]
    if [each.co_qualname for each in inner] != [each.co_qualname for each in changed]:
        return False
    return all(_pair(old, new, pairs) for old, new in zip(inner, changed, strict=True))


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & 0x01)  # CO_OPTIMIZED: not a module or class body
