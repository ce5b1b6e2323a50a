"""Run tests on mutants: in processes that are forked from one with all tests collected.

A mutant inside a function is put in place of the function's code, so that nothing is imported
again. Code that runs at import, or in other processes, is mutated on disk, in a copy of the
repository.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import gc
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from mutant_changes import ROOT, Mutant
from mutant_lines import STATE, module_of, save, write_bits

OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1"]
# Plain asserts: pytest also rewrites those of the package, because it contains a plugin, and the
# rewritten functions would not be equal to the compiled ones.
OPTIONS += ["--assert=plain"]
# Tests that need a real Postgres are used only for the module that talks to it.
OPTIONS += ["-m", "not soak and not browser and not live"]
DATABASE, DATABASE_TESTS = "glue/stores/postgres.py", "tests/stores/"
# Seconds for a test, besides ten times its usual time: by the clock, because a test that waits for
# the end of `sleep 60` and then passes does not detect a mutant, and of the processor.
PATIENCE, CPU = 75, 20
RUN = os.urandom(4).hex()  # in the names of temporary files, because several runs may be active
MEMORY = 8 * 1024**3

Job = tuple[Any, Callable[[], None]]


def run_jobs(jobs: Sequence[Job], at_once: int) -> Iterator[tuple[Any, int, str]]:
    """Run each function in a forked process; yield its name, exit code and last words."""
    waiting, running = list(reversed(jobs)), dict[int, tuple[Any, str]]()
    while waiting or running:
        while waiting and len(running) < at_once:
            name, work = waiting.pop()
            folder = tempfile.mkdtemp(prefix="mutant-")
            child = os.fork()
            if child == 0:
                _work(work, folder)
            running[child] = name, folder
        child, status = os.wait()
        if child not in running:
            continue  # a process whose parent has ended
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that the tests left
        name, folder = running.pop(child)
        words = Path(folder, "words")
        said = words.read_text() if words.is_file() else ""
        shutil.rmtree(folder, ignore_errors=True)
        yield name, os.waitstatus_to_exitcode(status), said


def _work(work: Callable[[], None], folder: str) -> None:
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
        say("the process of the tests ended early")
        work()
        os._exit(0)
    except SystemExit as left:
        os._exit(left.code if isinstance(left.code, int) else 1)
    except BaseException as error:
        say(f"{type(error).__name__}: {error}")
        os._exit(3)


def say(words: str) -> None:
    """Store the last words of this process, for its parent."""
    Path(os.environ["TMPDIR"], "words").write_text(words)


def limit_time(usual: float) -> None:
    """End this process if the next test takes far longer than usual."""
    signal.alarm(int(PATIENCE + 10 * usual))
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + CPU + 10 * usual)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


class Collected:
    """A pytest plugin that hands the collected tests to `work` instead of running them."""

    def __init__(self, work: Callable[[Collected], None]) -> None:
        self.work = work
        self.items: dict[str, Any] = {}
        self.functions: dict[str, list[FunctionType]] = {}
        self._failures: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [
            item
            for item in items
            if not needs_database(item) or item.nodeid.startswith(DATABASE_TESTS)
        ]

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def find_functions(self) -> None:
        """Find the functions of the package that exist, by their modules."""
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                module = module_of(each.__code__.co_filename)
                if module:
                    self.functions.setdefault(module, []).append(each)
        gc.collect()
        gc.freeze()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failures.append(report.nodeid)

    def run(self, name: str, following: str | None) -> bool:
        """Run a test in this process and return whether it passes."""
        item = self.items[name]
        item.config._tmp_path_factory._given_basetemp = Path(os.environ["TMPDIR"], "pytest")
        nextitem = self.items[following] if following else None
        before = len(self._failures)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        return len(self._failures) == before

    def patch(self, mutant: Mutant, changed: Sequence[tuple[CodeType, CodeType]]) -> bool:
        """Put the code of a mutant into the functions that exist; return whether any changed."""
        done = False
        for function in self.functions.get(mutant.module, ()):
            for before, after in changed:
                if function.__code__ == before:
                    try:
                        function.__code__ = after
                    except ValueError:  # another number of closed-over variables
                        return False
                    done = True
        return done


def needs_database(item: Any) -> bool:
    """Return whether a test starts a Postgres server."""
    return item.get_closest_marker("scale") is not None


def record(collected: Collected, test_file: str) -> None:
    """Record the lines and times of the tests of a file; for a forked process."""
    import coverage

    names = [name for name in collected.items if name.partition("::")[0] == test_file]
    others = Path(os.environ["TMPDIR"], "lines")
    others.mkdir()
    os.environ["MUTANT_LINES"] = str(others)
    recorder = coverage.Coverage(
        data_file=None, config_file=False, include=[f"{ROOT}/*"], omit=[f"{ROOT}/tests/*"]
    )
    recorder.start()
    tests: dict[str, list[Any]] = {}
    for name, following in itertools.zip_longest(names, names[1:]):
        signal.alarm(600)
        recorder.switch_context(name)
        started = time.monotonic()
        passed = collected.run(name, following)
        tests[name] = [round(time.monotonic() - started, 4), passed, {}, {}]
    recorder.switch_context("")
    recorder.stop()
    data = recorder.get_data()
    for name in names:
        data.set_query_context(name)
        found = {file: data.lines(file) for file in data.measured_files()}
        tests[name][2] = write_bits({file: lines for file, lines in found.items() if lines})
    only_database = {name for name in names if needs_database(collected.items[name])}
    for name in only_database:
        kept = tests[name][2].items()
        tests[name][2] = {module: bits for module, bits in kept if module == DATABASE}
    save(test_file, tests, others, ignored=only_database)


def run_in_place(
    collected: Collected,
    mutant: Mutant,
    changed: Sequence[tuple[CodeType, CodeType]],
    tests: Sequence[tuple[str, float]],
) -> None:
    """Run tests on a mutant until one fails; for a forked process. Exit with 1 if one fails."""
    if not collected.patch(mutant, changed):
        sys.exit(2)
    names = [name for name, _ in tests]
    for (name, seconds), following in itertools.zip_longest(tests, names[1:]):
        limit_time(seconds)
        say(name)
        if not collected.run(name, following):
            sys.exit(1)


def collect(test_files: Sequence[str], work: Callable[[Collected], None], imports: bool) -> bool:
    """Collect test files in a forked process and call `work` there with the collected tests.

    Return whether `work` returned. `imports` also records the lines that run at import.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(ROOT)
            code = _collect(test_files, work, imports)
        finally:
            sys.stdout.flush()
            os._exit(code)
    while True:
        ended, status = os.wait()
        if ended == child:
            return status == 0


def _collect(test_files: Sequence[str], work: Callable[[Collected], None], imports: bool) -> int:
    import pytest

    recorder: Any = None
    if imports:
        import coverage

        recorder = coverage.Coverage(data_file=None, config_file=False, include=[f"{ROOT}/*"])
        recorder.start()

    def then(collected: Collected) -> None:
        if recorder is not None:
            recorder.stop()
            data = recorder.get_data()
            lines = {file: data.lines(file) or () for file in data.measured_files()}
            (STATE / "imports.json").write_text(json.dumps(write_bits(lines)))
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        try:
            work(collected)
            done.append(True)
        except Exception:
            traceback.print_exc()
        os.dup2(nowhere, 1)  # hides the summaries of plugins

    done: list[bool] = []
    stdout, stderr = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    pytest.main([*OPTIONS, *test_files], plugins=[Collected(then)])
    return 0 if done else 1


def copy_repository(number: int) -> Path:
    """Return a fresh copy of the repository, in which mutants are written to disk."""
    copy = STATE / f"copy-{RUN}-{number}"

    def ignore(folder: str, names: list[str]) -> list[str]:
        hidden = [
            each for each in names if each.startswith((".venv", ".mutants", ".mypy", ".ruff"))
        ]
        return [*hidden, ".git", "__pycache__", "site", "node_modules", "build", "dist"]

    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    return copy


def run_on_disk(
    copies: Sequence[Path], mutant: Mutant | None, tests: Sequence[tuple[str, float]]
) -> None:
    """Run tests in a free copy of the repository with a mutant; for a forked process.

    Exit with 1 if a test fails.
    """
    copy = _lock_one(copies)
    if mutant is not None:
        _write(copy, mutant)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"] = str(copy)
    import pytest

    seconds = dict(tests)

    class Watch:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            limit_time(seconds.get(nodeid, 10))
            say(nodeid)

        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            order = {name: place for place, name in enumerate(seconds)}
            items.sort(key=lambda item: order.get(item.nodeid, 0))

    signal.alarm(120)  # for the collection
    say("(the import of the tests)")
    code = int(pytest.main([*OPTIONS, "-x", *seconds], plugins=[Watch()]))
    sys.exit(0 if code in (0, 5) else 1)


def _lock_one(copies: Sequence[Path]) -> Path:
    """Lock a copy until this process ends, and restore the module that was mutated in it."""
    for copy in copies:
        lock = os.open(copy / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            note = copy / ".mutated"
            if note.is_file():
                module = note.read_text()
                shutil.copy2(ROOT / module, copy / module)
                _forget_compiled(copy / module)
            return copy
        os.close(lock)
    raise RuntimeError("more processes than copies")


def _write(copy: Path, mutant: Mutant) -> None:
    (copy / ".mutated").write_text(mutant.module)
    (copy / mutant.module).write_text(ast.unparse(mutant.tree()))
    _forget_compiled(copy / mutant.module)


def _forget_compiled(module: Path) -> None:
    for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
        compiled.unlink()
