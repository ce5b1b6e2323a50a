"""Mutation tests of the core: each mutant is one small fault that some test should detect.

    python bench/mutants.py                    a seeded sample of every module
    python bench/mutants.py --all              every mutant (takes long)
    python bench/mutants.py -m glue.loop.turn -n 40 --seed 7

A mutant is killed if a test fails, or if the tests do not end in time. Survivors are printed.
Mutants in EQUIVALENT are not counted: a caller cannot see them, for the reason that is given.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    "glue.loop.run": "glue/loop/run.py",
    "glue.loop.turn": "glue/loop/turn.py",
    "glue.loop.ending": "glue/loop/ending.py",
    "glue.loop.hooks": "glue/loop/hooks.py",
    "glue.loop.pause": "glue/loop/pause.py",
    "glue.loop.position": "glue/loop/position.py",
    "glue.loop.recorder": "glue/loop/recorder.py",
    "glue.pending": "glue/pending.py",
    "glue.loop.truncation": "glue/loop/truncation.py",
    "glue.loop.transcript": "glue/loop/transcript.py",
    "glue.compaction": "glue/compaction.py",
    "glue.policies.gates": "glue/policies/gates.py",
    "glue.policies.budgets": "glue/policies/budgets.py",
    "glue.policies.delivery": "glue/policies/delivery.py",
    "glue.policies.steering": "glue/policies/steering.py",
}
TESTS = (
    "loop/test_*.py",
    "policies/test_*.py",
    "providers/test_escalation.py",
    "providers/test_retry.py",
    "test_compaction.py",
    "test_limits.py",
    "test_pending.py",
)
SECONDS = 240

# (module, change as the report prints it) -> the reason why no test can detect the mutant.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "glue.loop.ending",
        "break  ->  pass",
    ): "a list contains a message only once, so the search finds no other",
    (
        "glue.loop.transcript",
        "len(self._seen) < len(messages)  ->  len(self._seen) <= len(messages)",
    ): "extends the lists by an empty slice",
    (
        "glue.loop.turn",
        "len(group) <= 1 or limit == 1  ->  len(group) <= 1 and limit == 1",
    ): "a task group with one task is only slower",
    ("glue.loop.turn", "len(group) <= 1  ->  len(group) < 1"): "also a task group with one task",
    (
        "glue.loop.turn",
        "0  ->  1",
    ): "a deadline that has just passed: the gate `ready` has stopped such a run already",
}


class Mutant:
    """A syntax tree of a module with one fault, and the description of the fault."""

    def __init__(self, module: str, line: int, what: str, tree: ast.Module) -> None:
        self.module, self.line, self.what, self.tree = module, line, what, tree

    def __str__(self) -> str:
        return f"{MODULES[self.module]}:{self.line}: {self.what}"


SWAPS: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Lt: [ast.LtE],
    ast.LtE: [ast.Lt],
    ast.Gt: [ast.GtE],
    ast.GtE: [ast.Gt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Add],
}


def changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield the replacements of a node; None removes a statement."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for swap in SWAPS.get(type(node.ops[0]), ()):
            other = copy.deepcopy(node)
            other.ops = [swap()]  # type: ignore[list-item]
            yield other
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)):
        for swap in SWAPS.get(type(node.op), ()):
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
    source = (ROOT / MODULES[module]).read_text()
    tree = ast.parse(source)
    found = []
    for index, node in enumerate(ast.walk(tree)):
        if _is_typing(tree, node):
            continue
        for replacement in changes(node):
            broken = copy.deepcopy(tree)
            target = list(ast.walk(broken))[index]
            _replace(broken, target, replacement)
            after = "(removed)" if replacement is None else _short(replacement)
            what = f"{_short(node)}  ->  {after}"
            found.append(
                Mutant(module, getattr(node, "lineno", 0), what, ast.fix_missing_locations(broken))
            )
    return found


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).split("\n")[0]
    return text if len(text) < 90 else text[:87] + "..."


def _is_typing(tree: ast.Module, node: ast.AST) -> bool:
    """Return whether a node is in an annotation, a TYPE_CHECKING block or a class decorator.

    No behaviour of the core depends on these, so they are not mutated.
    """
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    for parent in ast.walk(tree):
        if isinstance(parent, ast.ClassDef):
            for decorator in parent.decorator_list:
                if node in ast.walk(decorator):
                    return True
        for name in ("annotation", "returns"):
            note = getattr(parent, name, None)
            if note is not None and node in ast.walk(note):
                return True
    return False


def _replace(tree: ast.Module, target: ast.AST, replacement: ast.AST | None) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, replacement)
                return
            if isinstance(value, list) and target in value:
                place = value.index(target)
                value[place] = replacement if replacement is not None else ast.Pass()
                return


class Broken(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """An importer that loads one module from the tree of a mutant instead of its file."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def get_source(self, fullname: str) -> None:
        return None

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        return compile(self.mutant.tree, MODULES[fullname], "exec")


def survives(mutant: Mutant | None) -> bool:
    """Run the tests in a child process that imports the mutant; return whether all pass."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) == 0
    code = 1
    try:
        signal.alarm(SECONDS)  # ends the child; the mutant then counts as killed
        if mutant is not None:
            sys.meta_path.insert(0, Broken(mutant))
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            code = _run_tests(mutant.module if mutant else "")
    finally:
        os._exit(code)


def _run_tests(module: str) -> int:
    """Run the tests and return the exit code; those of the module run first, to fail early."""
    import pytest

    files = [path for pattern in TESTS for path in sorted((ROOT / "tests").glob(pattern))]
    own = ROOT / "tests" / Path(*module.split(".")[1:-1]) / f"test_{module.split('.')[-1]}.py"
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # Plain asserts: rewriting them would import the modules before the mutant is installed.
    options += ["--assert=plain", "--hypothesis-seed=1", "-k", "not trio"]
    likely = [str(path) for path in files if path == own]
    rest = [str(path) for path in files if path != own]
    return int((likely and pytest.main([*options, *likely])) or pytest.main([*options, *rest]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-m", "--module", action="append", choices=sorted(MODULES), help="only this module"
    )
    parser.add_argument(
        "-n", "--number", type=int, default=40, help="mutants per module (default 40)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument(
        "--goal", type=float, default=90.0, help="fail below this score, in percent"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for heavy in ("anyio", "hypothesis", "pytest", "trio"):
        __import__(heavy)
    if not survives(None):
        print("the tests fail without a mutant; fix them first")
        return 1
    total = killed = equal = 0
    left: list[Mutant] = []
    for module in args.module or MODULES:
        every = mutants(module)
        chosen = (
            every
            if args.all
            else random.Random(args.seed).sample(every, min(args.number, len(every)))
        )
        started, before = time.monotonic(), len(left)
        excused = 0
        for done, mutant in enumerate(chosen, 1):
            if sys.stderr.isatty():
                print(f"\r{module} {done}/{len(chosen)}", end="", file=sys.stderr, flush=True)
            if (module, mutant.what) in EQUIVALENT:
                excused += 1
            elif survives(mutant):
                left.append(mutant)
        counted = len(chosen) - excused
        dead = counted - (len(left) - before)
        total, killed, equal = total + counted, killed + dead, equal + excused
        seconds = time.monotonic() - started
        sys.stdout.flush()
        print(
            f"{module:22} {dead:4} of {counted:4} killed; {excused} equivalent, "
            f"{len(every)} mutants in all; {seconds:.0f} s"
        )
    for mutant in left:
        print(f"survived: {mutant}")
    score = 100 * killed / max(total, 1)
    print(f"score {score:.1f} % ({killed} of {total}; {equal} equivalent ones left out)")
    return 0 if score >= args.goal else 1


if __name__ == "__main__":
    sys.exit(main())
