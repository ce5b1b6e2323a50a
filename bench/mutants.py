"""Mutation tests: each mutant is one small fault that some test should detect.

    python bench/mutants.py                              a seeded sample of the modules of the loop
    python bench/mutants.py tools/process.py -n 12       a sample of one module
    python bench/mutants.py everything -n 2 --seed 7     a small sample of every shipped module
    python bench/mutants.py glue/loop/turn.py --all      every mutant (takes long)

A mutant is killed if a related test fails, or if the tests do not end in time. The tests of a
module run in this order, until one fails: the test file of its name, the other tests of that
folder, the tests that import the module. Survivors are printed with their line. Mutants in
EQUIVALENT are not counted: a caller cannot see them, for the reason that is given and printed.
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
import re
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("glue", "providers", "tools", "prompts", "agents")
LOOP = """
    glue/loop/run.py glue/loop/turn.py glue/loop/ending.py glue/loop/hooks.py glue/loop/pause.py
    glue/loop/position.py glue/loop/recorder.py glue/pending.py glue/loop/truncation.py
    glue/loop/transcript.py glue/compaction.py glue/policies/gates.py glue/policies/budgets.py
    glue/policies/delivery.py glue/policies/steering.py
""".split()
# The behaviour of the loop is stated by the tests of these folders together.
LOOP_TESTS = """
    loop/test_*.py policies/test_*.py test_pending.py test_limits.py test_compaction.py
    providers/test_escalation.py providers/test_retry.py telemetry/test_*.py test_session.py
""".split()
MOST_FILES = 25  # test files that are run for a mutant
SECONDS = 240  # for the tests of one mutant
# Tests that start servers or commands of minutes, or that check texts and not behaviour.
SKIPPED = re.compile(r"tests/(live|scale|fakes|test_(docs|house|layout|typing|examples|demo))")

# (module, change as the report prints it) -> the reason why no test can detect the mutant.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "glue/loop/recorder.py",
        "break  ->  pass",
    ): "a list contains a message only once, so the search finds no other",
    (
        "glue/loop/run.py",
        "state.batches += 1  ->  state.batches -= 1",
    ): "the count is only compared with 0 and with an earlier count",
    (
        "glue/loop/transcript.py",
        "1  ->  2",
    ): "another middle of the binary search, which finds the same place",
    (
        "glue/loop/recorder.py",
        "complete(work) if self._blocks else work  ->  complete(work)",
    ): "a journal in memory never waits, so there is nothing to complete; only slower",
    (
        "glue/loop/transcript.py",
        (
            "self._last = messages if isinstance(messages, Messages) and (not resumed) else None"
            "  ->  (removed)"
        ),
    ): "without the last list the whole transcript is compared again; only slower",
    (
        "glue/loop/ending.py",
        "break  ->  pass",
    ): "a list contains a message only once, so the search finds no other",
    (
        "glue/loop/transcript.py",
        "len(self._seen) < len(messages)  ->  len(self._seen) <= len(messages)",
    ): "extends the lists by an empty slice",
    (
        "glue/loop/turn.py",
        "len(group) <= 1 or limit == 1  ->  len(group) <= 1 and limit == 1",
    ): "a task group with one task is only slower",
    ("glue/loop/turn.py", "len(group) <= 1  ->  len(group) < 1"): "also a task group with one task",
    (
        "glue/loop/turn.py",
        "0  ->  1",
    ): "a deadline that has just passed: the gate `ready` has stopped such a run already",
}


class Mutant:
    """A syntax tree of a module with one fault, and the description of the fault."""

    def __init__(self, module: str, line: int, what: str, tree: ast.Module) -> None:
        self.module, self.line, self.what, self.tree = module, line, what, tree

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


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
    source = (ROOT / module).read_text()
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
        if name != import_name(self.mutant.module):
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def get_source(self, fullname: str) -> None:
        return None

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        return compile(self.mutant.tree, self.mutant.module, "exec")


def import_name(module: str) -> str:
    """Return the name by which users import the module of a path, such as glue.tools.shell."""
    parts = Path(module).with_suffix("").parts
    return ".".join(parts if parts[0] == "glue" else ("glue", *parts)).removesuffix(".__init__")


def related_tests(module: str) -> list[list[str]]:
    """Return the test files of a module in groups; a group runs if the group before it passed."""
    tests, inside = ROOT / "tests", Path(module)
    inside = inside.relative_to("glue") if inside.parts[0] == "glue" else inside
    own = tests / inside.parent / f"test_{inside.stem}.py"
    if module in LOOP:
        folder = [path for pattern in LOOP_TESTS for path in sorted(tests.glob(pattern))]
    else:
        folder = sorted((tests / inside.parent).glob("test_*.py")) if inside.parent.parts else []
    package, _, name = import_name(module).rpartition(".")
    imports = re.compile(
        rf"{re.escape(import_name(module))}\b"
        rf"|from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b"
    )
    users = [path for path in sorted(tests.rglob("test_*.py")) if imports.search(path.read_text())]
    groups, seen = [], set[Path]()
    for group in ([own] if own.exists() else [], folder, users):
        new = [
            path
            for path in group
            if path not in seen and not SKIPPED.match(str(path.relative_to(ROOT)))
        ]
        seen.update(new)
        if new:
            groups.append([str(path) for path in new[:MOST_FILES]])
    return groups


def start(mutant: Mutant | None, groups: Sequence[list[str]]) -> int:
    """Start a child process that runs the tests with the mutant, and return its process id.

    The child exits with 0 if all tests pass.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        signal.alarm(SECONDS)  # ends the child; the mutant then counts as killed
        if mutant is not None:
            sys.meta_path.insert(0, Broken(mutant))
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            code = _run_tests(groups)
    finally:
        os._exit(code)


def _run_tests(groups: Sequence[list[str]]) -> int:
    """Run the groups of tests until one fails, and return the exit code."""
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # Plain asserts: rewriting them would import the modules before the mutant is installed.
    options += ["--assert=plain", "--hypothesis-seed=1", "-k", "not trio"]
    for files in groups:
        code = int(pytest.main([*options, *files]))
        if code not in (0, 5):  # 5: no test was selected
            return code
    return 0


def run_all(chosen: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    """Run the tests of each mutant, `jobs` at once; yield the mutant and whether it survives."""
    waiting, running = list(reversed(chosen)), dict[int, Mutant]()
    groups = {module: related_tests(module) for module in {each.module for each in chosen}}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[start(mutant, groups[mutant.module])] = mutant
        child, status = os.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that the tests left
        yield running.pop(child), os.waitstatus_to_exitcode(status) == 0


def find_modules(named: Sequence[str]) -> list[str]:
    """Return the paths of the named modules.

    No name means the modules of the loop, "everything" means all shipped modules.
    """
    if not named:
        return LOOP
    if list(named) == ["everything"]:
        paths = [path for folder in SHIPPED for path in sorted((ROOT / folder).rglob("*.py"))]
        inside = [path.relative_to(ROOT) for path in paths if "templates" not in path.parts]
        return [str(path) for path in inside if path.parts[1] not in SHIPPED]
    for name in named:
        if not (ROOT / name).is_file():
            sys.exit(f"{name} is not a file below {ROOT.name}; give paths such as tools/shell.py")
    return list(named)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="paths, or 'everything'; default: the loop")
    parser.add_argument(
        "-n", "--number", type=int, default=12, help="mutants per module (default 12)"
    )
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default 1)")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at once")
    parser.add_argument(
        "--goal", type=float, default=90.0, help="fail below this score, in percent (default 90)"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for heavy in ("anyio", "hypothesis", "pytest", "trio"):
        __import__(heavy)
    modules = find_modules(args.modules)
    tests = sorted(
        {path for module in modules for group in related_tests(module) for path in group}
    )
    if os.waitpid(start(None, [tests]), 0)[1] != 0:
        print("the tests fail without a mutant; fix them first")
        return 1
    killed: dict[str, int] = defaultdict(int)
    counted: dict[str, int] = defaultdict(int)
    survivors: list[Mutant] = []
    excused: list[Mutant] = []
    sizes: dict[str, int] = {}
    chosen: list[Mutant] = []
    for module in modules:
        every = mutants(module)
        sizes[module] = len(every)
        sample = random.Random(f"{args.seed}/{module}").sample
        drawn = every if args.all else sample(every, min(args.number, len(every)))
        excused += [each for each in drawn if (module, each.what) in EQUIVALENT]
        chosen += [each for each in drawn if (module, each.what) not in EQUIVALENT]
    started = time.monotonic()
    for done, (mutant, survived) in enumerate(run_all(chosen, args.jobs), 1):
        counted[mutant.module] += 1
        killed[mutant.module] += not survived
        if survived:
            survivors.append(mutant)
            print(f"survived: {mutant}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done}/{len(chosen)} ", end="", file=sys.stderr, flush=True)
    for module in modules:
        if counted[module]:
            score = 100 * killed[module] / counted[module]
            print(
                f"{module:40} {killed[module]:4} of {counted[module]:4} killed, {score:5.1f} %"
                f"  (of {sizes[module]} mutants)"
            )
    for mutant in excused:
        print(f"equivalent: {mutant}: {EQUIVALENT[mutant.module, mutant.what]}")
    score = 100 * sum(killed.values()) / max(sum(counted.values()), 1)
    print(
        f"score {score:.1f} % ({sum(killed.values())} of {sum(counted.values())}; {len(excused)}"
        f" equivalent mutants left out; {time.monotonic() - started:.0f} s, seed {args.seed})"
    )
    return 0 if score >= args.goal else 1


if __name__ == "__main__":
    sys.exit(main())
