"""Mutation tests: each mutant is one small fault that some test should detect.

    python bench/mutants.py                              a seeded sample of the modules of the loop
    python bench/mutants.py tools/process.py -n 12       a sample of one module
    python bench/mutants.py everything -n 2 --seed 7     a small sample of every shipped module
    python bench/mutants.py glue/loop/turn.py --all      every mutant (takes long)

A mutant is killed if a test that runs its line fails, or does not end in time. The tests of the
module's own test file run first, then the quickest of the others. The map from lines to tests and
the results are kept in .mutants/, so that an interrupted run continues. A result is used again
until the module or the test changes. Survivors are printed with their line. Mutants in
equivalent.toml are not counted: a caller cannot notice them, for the reason that is given there
and printed.

Every module has a threshold: 96 % if the safety of a user depends on it, 90 % otherwise. The exit
code is 1 if a module is below its threshold.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import mutant_lines
import mutant_tests
from mutant_changes import ROOT, Mutant, changed_functions, digest_of, sample
from mutant_lines import SHIPPED, STATE, Lines, Test, digest_of_file
from mutant_tests import Collected, collect, copy_repository, record, run_in_place, run_jobs
from mutant_tests import run_on_disk as run_in_copy

LOOP = """
    glue/loop/run.py glue/loop/turn.py glue/loop/ending.py glue/loop/hooks.py glue/loop/pause.py
    glue/loop/position.py glue/loop/recorder.py glue/pending.py glue/loop/truncation.py
    glue/loop/transcript.py glue/compaction.py glue/policies/gates.py glue/policies/budgets.py
    glue/policies/delivery.py glue/policies/steering.py
""".split()
# The safety of a user depends on these.
GUARDS = """
    tools/fs/* tools/git/* tools/process.py tools/process_group.py tools/sandbox.py
    tools/landlock.py tools/confine.py tools/shell.py glue/permission.py glue/secrets.py
    glue/shellwords.py agents/review/delivery/clean.py agents/review/delivery/publish.py
    agents/review/findings/gate.py providers/http.py providers/connection.py glue/stores/*
""".split()
GOAL, GUARD_GOAL = 90.0, 96.0
MOST_SECONDS, GUARD_SECONDS = 20.0, 60.0  # usual time of the tests that run for one mutant
# Tests that start servers or commands of minutes, or that check texts and not behaviour.
SKIPPED = re.compile(r"tests/(live|scale|fakes|test_(docs|house|layout|typing|examples|demo))")
# Modules that run in processes without the site module, whose lines are not recorded. Processes
# that are killed are not recorded either: if no known test runs a line, the own test file does.
ALONE = (
    "tools/fs/grep_process.py",
    "tools/pdf_process.py",
    "tools/landlock.py",
    "tools/sandbox.py",
)
ALONE += ("tools/fs/search.py", "tools/confine.py")


def test_files() -> list[str]:
    found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    return [name for name in found if not SKIPPED.match(name)]


def own_test_file(module: str) -> str:
    """Return the test file of a module, by its name: tests/x/test_y.py tests glue/x/y.py."""
    inside = Path(module)
    inside = inside.relative_to("glue") if inside.parts[0] == "glue" else inside
    if inside.name == "__init__.py":
        inside = inside.parent
        if (ROOT / "tests" / inside / f"test_{inside.name}.py").is_file():
            return str(Path("tests") / inside / f"test_{inside.name}.py")
    return str(Path("tests") / inside.parent / f"test_{inside.stem}.py")


def import_name(module: str) -> str:
    """Return the name by which users import the module of a path, such as glue.tools.shell."""
    parts = Path(module).with_suffix("").parts
    return ".".join(parts if parts[0] == "glue" else ("glue", *parts)).removesuffix(".__init__")


def bits(first: int, last: int) -> int:
    """Return a number with the bits of the lines from first to last."""
    return (1 << (last + 1)) - (1 << first)


def ordered(tests: Iterable[Test], module: str) -> list[tuple[str, float]]:
    """Return tests with their times: those of the module's own file first, then the quickest.

    The twin of a test under another backend is left out, and so is what takes too long in all.
    """
    own = own_test_file(module)
    chosen = {test.id: test for test in tests}
    for name in list(chosen):
        if "trio" in name and name.replace("trio", "asyncio") in chosen:
            del chosen[name]

    def rank(test: Test) -> tuple[bool, float]:
        return not test.id.startswith(f"{own}::"), test.seconds

    found, total = [], 0.0
    most = GUARD_SECONDS if is_guard(module) else MOST_SECONDS
    for test in sorted(chosen.values(), key=rank):
        total += test.seconds
        if total > most and found:
            break
        found.append((test.id, test.seconds))
    return found


def tests_in_place(mutant: Mutant, lines: Lines) -> list[tuple[str, float]]:
    """Return the tests that run the line of a mutant in their own process."""
    wanted = bits(mutant.line, mutant.last)
    return ordered(
        (
            test
            for test in lines.by_module[mutant.module]
            if test.lines.get(mutant.module, 0) & wanted
        ),
        mutant.module,
    )


def tests_on_disk(mutant: Mutant, lines: Lines, at_import: bool) -> list[tuple[str, float]]:
    """Return the tests that run the line of a mutant in other processes or depend on its import."""
    wanted, module = bits(mutant.line, mutant.last), mutant.module
    own = own_test_file(module)
    found = [test for test in lines.by_module[module] if test.others.get(module, 0) & wanted]
    if at_import or lines.imported.get(module, 0) & wanted:
        found += lines.by_module[module]
        found += [test for test in lines.tests.values() if test.id.startswith(f"{own}::")]
    if module in ALONE or (not found and not tests_in_place(mutant, lines)):
        found += [test for test in lines.tests.values() if test.id.startswith(f"{own}::")]
    return ordered(found, module)


@dataclass(frozen=True, slots=True)
class Result:
    """Whether a mutant survived, and the test that failed or the tests that did not."""

    survived: bool
    test: str
    state: str  # digest of the tests that this depends on


class Results:
    """The results of earlier runs, one JSON line each."""

    def __init__(self) -> None:
        self._path = STATE / "results.jsonl"
        self._known: dict[str, Result] = {}
        self.read()

    def read(self) -> None:
        if self._path.is_file():
            for line in self._path.read_text().splitlines():
                key, survived, test, state = json.loads(line)
                self._known[key] = Result(survived, test, state)

    def find(self, mutant: Mutant, tests: Sequence[tuple[str, float]]) -> Result | None:
        """Return a stored result if no test that it depends on has changed."""
        known = self._known.get(mutant.key)
        if known is None:
            return None
        valid = state_of(tests) if known.survived else state_of([(known.test, 0.0)])
        return known if known.state == valid else None

    def add(self, mutant: Mutant, survived: bool, test: str, state: str) -> None:
        self._known[mutant.key] = Result(survived, test, state)
        with self._path.open("a") as file:
            file.write(json.dumps([mutant.key, survived, test, state]) + "\n")


def state_of(tests: Sequence[tuple[str, float]]) -> str:
    """Return a digest of the names and files of tests."""
    names = sorted(name for name, _ in tests)
    files = sorted({name.partition("::")[0] for name in names})
    return digest_of("\n".join([*names, *(digest_of_file(file) for file in files)]))


def update_lines(jobs: int) -> Lines:
    """Return the map from lines to tests, after recording what has changed."""
    lines, stale = mutant_lines.load(test_files())
    if not stale:
        return lines
    print(f"recording the lines that {len(stale)} test files run ...", flush=True)

    def work(collected: Collected) -> None:
        todo = [(name, lambda name=name: record(collected, name)) for name in stale]
        for name, code, said in run_jobs(todo, jobs):
            if code:
                print(f"{name} could not be recorded ({said}); its tests are not used")

    if not collect(test_files(), work, imports=True):
        sys.exit("the tests could not be collected; run pytest to see why")
    return mutant_lines.load(test_files())[0]


def run_mutants(chosen: Sequence[Mutant], lines: Lines, results: Results, jobs: int) -> None:
    """Run the tests of every mutant that has no result yet."""
    todo = [each for each in chosen if find_result(each, lines, results) is None]
    inside, later = [], []
    for mutant in todo:
        tests = tests_in_place(mutant, lines)
        changed = changed_functions(mutant) if tests else []
        if changed:
            inside.append((mutant, changed, tests))
        else:
            later.append((mutant, True))
    if inside:
        later += run_inside(inside, lines, results, jobs)
    run_on_disk(later, lines, results, jobs)


def find_result(mutant: Mutant, lines: Lines, results: Results) -> Result | None:
    return results.find(mutant, all_tests(mutant, lines))


def all_tests(mutant: Mutant, lines: Lines) -> list[tuple[str, float]]:
    return [*tests_in_place(mutant, lines), *tests_on_disk(mutant, lines, False)]


def settle(mutant: Mutant, lines: Lines, results: Results, survived: bool, test: str) -> None:
    state = state_of(all_tests(mutant, lines) if survived else [(test, 0.0)])
    results.add(mutant, survived, test, state)
    if survived:
        print(f"survived: {mutant}", flush=True)


class Notes:
    """Lines that a forked process leaves for its parent, which may outlive it."""

    def __init__(self, name: str) -> None:
        self._path = STATE / f"{name}-{mutant_tests.RUN}"
        self._path.write_text("")

    def add(self, key: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{key}\n")

    def take(self) -> set[str]:
        found = set(self._path.read_text().splitlines())
        self._path.unlink()
        return found


def run_inside(
    inside: Sequence[tuple], lines: Lines, results: Results, jobs: int
) -> list[tuple[Mutant, bool]]:
    """Run mutants inside functions.

    Return those that other tests may still detect, and whether all of their tests are left because
    the function to change was not found.
    """
    files = sorted({name.partition("::")[0] for _, _, tests in inside for name, _ in tests})
    begun, ended = Notes("begun"), Notes("ended")
    passed, unchanged = Notes("passed"), Notes("unchanged")

    def begin(collected: Collected, mutant: Mutant, changed: Sequence, tests: Sequence) -> None:
        begun.add(mutant.key)
        here = [(name, seconds) for name, seconds in tests if name in collected.items]
        run_in_place(collected, mutant, changed, here)

    def work(collected: Collected) -> None:
        for module in {each[0].module for each in inside}:
            with contextlib.suppress(ImportError):
                importlib.import_module(import_name(module))
        collected.find_functions()
        todo = [(each[0], functools.partial(begin, collected, *each)) for each in inside]
        for done, (mutant, code, said) in enumerate(run_jobs(todo, jobs), 1):
            if code == 2:
                unchanged.add(mutant.key)
            elif code == 0 and tests_on_disk(mutant, lines, False):
                passed.add(mutant.key)
            elif code == 3:
                print(f"{mutant}: the tests could not be run: {said}")
            else:
                settle(mutant, lines, results, code == 0, said)
            ended.add(mutant.key)
            show_progress(done, len(todo))

    is_complete = collect(files, work, imports=False)
    results.read()  # the other process has added results
    started, finished = begun.take(), ended.take()
    others, whole = passed.take(), unchanged.take()
    later = [(each[0], False) for each in inside if each[0].key in others]
    later += [(each[0], True) for each in inside if each[0].key in whole]
    if is_complete:
        return later
    # A mutant has killed every process; it is found by running the last ones one at a time.
    rest = [each for each in inside if each[0].key not in finished]
    last = [each for each in rest if each[0].key in started]
    if not last:
        sys.exit("the tests could not be collected; run pytest to see why")
    if len(last) == 1:
        settle(last[0][0], lines, results, False, "(it killed the process of the tests)")
        rest.remove(last[0])
        return later + (run_inside(rest, lines, results, jobs) if rest else [])
    for each in last:
        later += run_inside([each], lines, results, 1)
        rest.remove(each)
    return later + (run_inside(rest, lines, results, jobs) if rest else [])


def run_on_disk(
    later: Sequence[tuple[Mutant, bool]], lines: Lines, results: Results, jobs: int
) -> None:
    """Run mutants of code that runs at import or in other processes."""
    copies = [copy_repository(number) for number in range(jobs)] if later else []
    todo = []
    for mutant, is_whole in later:
        in_place = tests_in_place(mutant, lines) if is_whole else []
        at_import = is_whole and (not in_place or not changed_functions(mutant))
        tests = [*in_place, *tests_on_disk(mutant, lines, at_import)]
        if not tests:
            settle(mutant, lines, results, True, "")
            continue
        todo.append((mutant, lambda mutant=mutant, tests=tests: run_in_copy(copies, mutant, tests)))
    for done, (mutant, code, said) in enumerate(run_jobs(todo, jobs), 1):
        if code == 3:
            print(f"{mutant}: the tests could not be run: {said}")
        else:
            settle(mutant, lines, results, code == 0, said)
        show_progress(done, len(todo))
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)


def show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} ", end="", file=sys.stderr, flush=True)


def find_modules(named: Sequence[str]) -> list[str]:
    """Return the paths of the named modules.

    No name means the modules of the loop, "everything" means all shipped modules.
    """
    if not named:
        return LOOP
    paths = [path for folder in SHIPPED for path in sorted((ROOT / folder).rglob("*.py"))]
    inside = [path.relative_to(ROOT) for path in paths if "templates" not in path.parts]
    shipped = [str(path) for path in inside if path.parts[1] not in SHIPPED]
    if list(named) == ["everything"]:
        return shipped
    found = []
    for name in named:
        matching = [module for module in shipped if fnmatch(module, name)]
        if not matching:
            sys.exit(f"{name} is not a shipped module; give paths such as tools/shell.py")
        found += matching
    return list(dict.fromkeys(found))


def is_guard(module: str) -> bool:
    return any(fnmatch(module, pattern) for pattern in GUARDS)


def goal_of(module: str) -> float:
    return GUARD_GOAL if is_guard(module) else GOAL


def area_of(module: str) -> str:
    """Return the name under which a module is added up: its folder, or the core."""
    parent = Path(module).parent
    return "glue" if str(parent) == "glue" else str(parent)


def read_equivalent() -> dict[tuple[str, str, str], str]:
    """Return the mutants that no test can detect, by module, source line and change."""
    entries = tomllib.loads((ROOT / "bench" / "equivalent.toml").read_text())["mutant"]
    return {(each["module"], each["line"], each["change"]): each["reason"] for each in entries}


def report(
    chosen: Sequence[Mutant],
    excused: Sequence[tuple[Mutant, str]],
    lines: Lines,
    results: Results,
) -> bool:
    """Print the tables of modules and areas; return whether every module reaches its threshold."""
    killed: dict[str, int] = defaultdict(int)
    counted: dict[str, int] = defaultdict(int)
    survivors = []
    for mutant in chosen:
        result = find_result(mutant, lines, results)
        if result is None:
            print(f"without a result: {mutant}")
            continue
        counted[mutant.module] += 1
        killed[mutant.module] += not result.survived
        if result.survived:
            survivors.append(mutant)
    for mutant in survivors:
        print(f"survivor: {mutant}")
    for mutant, reason in excused:
        print(f"equivalent: {mutant}: {reason}")
    below = []
    for module in sorted(counted):
        score, goal = 100 * killed[module] / counted[module], goal_of(module)
        if score < goal:
            below.append(module)
        print(
            f"{module:45} {killed[module]:4} of {counted[module]:4} killed, {score:5.1f} %"
            f"  {'below' if score < goal else 'reaches'} {goal:.0f} %"
        )
    print()
    areas: dict[str, list[str]] = defaultdict(list)
    for module in counted:
        areas[area_of(module)].append(module)
    areas["security-relevant"] = [each for each in counted if goal_of(each) == GUARD_GOAL]
    areas["everything"] = list(counted)
    for area, modules in areas.items():
        if not modules:
            continue
        dead, every = (sum(table[each] for each in modules) for table in (killed, counted))
        low = sum(each in below for each in modules)
        print(
            f"{area:45} {dead:4} of {every:4} killed, {100 * dead / every:5.1f} %"
            f"  {low} of {len(modules)} modules below their threshold"
        )
    return not below


def enter_namespace() -> None:
    """Start again with process ids of our own, if root may: a mutant may kill the wrong process."""
    if os.geteuid() or "MUTANT_NAMESPACE" in os.environ:
        return
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        return
    if allowed:
        os.environ["MUTANT_NAMESPACE"] = "1"
        os.execvp("unshare", [*command, sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "modules", nargs="*", help="paths or patterns, or 'everything'; default: the loop"
    )
    parser.add_argument(
        "-n", "--number", type=int, default=12, help="mutants per module (default 12)"
    )
    parser.add_argument(
        "--seed", type=int, action="append", help="chooses the sample (default 1); repeatable"
    )
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument(
        "--no-goal", action="store_true", help="exit with 0 even if a module is below its threshold"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at once")
    args = parser.parse_args()
    enter_namespace()
    os.environ["COVERAGE_CORE"] = "ctrace"
    warnings.simplefilter("ignore")
    STATE.mkdir(exist_ok=True)
    mutant_lines.install_start()
    started = time.monotonic()
    lines = update_lines(args.jobs)
    if lines.failed:
        print(f"{len(lines.failed)} tests fail without a mutant and are not used:")
        print("\n".join(f"  {name}" for name in lines.failed))
    equivalent = read_equivalent()
    drawn: dict[str, Mutant] = {}
    for module in find_modules(args.modules):
        for seed in args.seed or [1]:
            for each in sample(module, seed, 0 if args.all else args.number):
                drawn[each.key] = each
    chosen, excused = [], []
    for each in drawn.values():
        reason = equivalent.get((each.module, each.text, each.change))
        if reason is None:
            chosen.append(each)
        else:
            excused.append((each, reason))
    for heavy in ("anyio", "click", "httpcore", "hypothesis", "jsonschema", "pytest", "trio"):
        __import__(heavy)
    results = Results()
    run_mutants(chosen, lines, results, args.jobs)
    reached = report(chosen, excused, lines, results)
    print(
        f"{len(chosen)} mutants, {len(excused)} equivalent ones left out,"
        f" seeds {args.seed or [1]}, {time.monotonic() - started:.0f} s"
    )
    return 0 if reached or args.no_goal else 1


if __name__ == "__main__":
    sys.exit(main())
