"""The map from lines to tests: which test runs which lines of which module, and how long it takes.

Every test file is recorded once, by coverage, in a process of its own, and again if it or a module
that it runs has changed. Processes that a test starts are recorded as well (see START).
"""

from __future__ import annotations

import functools
import json
import os
import sysconfig
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutant_changes import ROOT, digest_of

STATE = ROOT / ".mutants"
SHIPPED = ("glue", "providers", "tools", "prompts", "agents")

# Run at the start of every Python process of the environment, through a .pth file.
START = """
def _start():
    import atexit, json, os, sys
    import coverage
    folder, root = os.environ["MUTANT_LINES"], os.environ["MUTANT_ROOT"]
    made = []
    def begin():
        made[:] = [coverage.Coverage(
            data_file=None, config_file=False, include=[root + "/*"], omit=[root + "/tests/*"]
        )]
        made[0].start()
    def save():
        made[0].stop()
        data = made[0].get_data()
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        lines = {name: data.lines(name) for name in data.measured_files()}
        with open(f"{folder}/{os.getpid()}-{os.urandom(4).hex()}.json", "w") as file:
            json.dump([test, lines], file)
    def leave(code, leave=os._exit):
        try:
            save()
        finally:
            leave(code)
    begin()
    atexit.register(save)
    os._exit = leave
    os.register_at_fork(before=lambda: made[0].stop(), after_in_parent=lambda: made[0].start(),
                        after_in_child=begin)
try:
    _start()
except Exception:
    pass
"""


@dataclass(slots=True)
class Test:
    """A test, its time, and the lines that it runs in its own process and in others, as bits."""

    id: str
    seconds: float
    lines: dict[str, int]
    others: dict[str, int]


@dataclass(slots=True)
class Lines:
    """The recorded tests, by the module whose lines they run."""

    tests: dict[str, Test] = field(default_factory=dict)
    by_module: dict[str, list[Test]] = field(default_factory=lambda: defaultdict(list))
    failed: list[str] = field(default_factory=list)
    imported: dict[str, int] = field(default_factory=dict)  # lines that run at import

    def add(self, entry: dict[str, Any]) -> None:
        for name, (seconds, passed, lines, others) in entry["tests"].items():
            if not passed:
                self.failed.append(name)
                continue
            test = Test(name, seconds, read_bits(lines), read_bits(others))
            self.tests[name] = test
            for module in {*test.lines, *test.others}:
                self.by_module[module].append(test)


def read_bits(lines: dict[str, str]) -> dict[str, int]:
    return {module: int(bits, 16) for module, bits in lines.items()}


def write_bits(lines: dict[str, Iterable[int]]) -> dict[str, str]:
    """Return the lines of shipped modules as hexadecimal numbers with one bit per line."""
    found = {}
    for file, numbers in lines.items():
        module = module_of(file)
        if module:
            found[module] = f"{sum(1 << number for number in set(numbers)):x}"
    return found


@functools.cache
def module_of(file: str) -> str:
    """Return the path below the root of a shipped module, or an empty string."""
    try:
        path = Path(file).resolve().relative_to(ROOT)
    except ValueError:
        return ""
    return str(path) if path.parts[0] in SHIPPED else ""


@functools.cache
def digest_of_file(path: str) -> str:
    file = ROOT / path
    return digest_of(file.read_text()) if file.is_file() else ""


@functools.cache
def digest_of_helpers() -> str:
    """Return the digest of what many tests share: fixtures and fakes."""
    files = [*ROOT.glob("tests/**/conftest.py"), *ROOT.glob("tests/fakes/**/*.py")]
    return digest_of("".join(file.read_text() for file in sorted(files)))


def entry_path(test_file: str) -> Path:
    return STATE / "lines" / f"{test_file.replace('/', '+')}.json"


def load(test_files: Sequence[str]) -> tuple[Lines, list[str]]:
    """Return the map of the recorded test files, and the files that must be recorded again."""
    lines, stale = Lines(), []
    for name in test_files:
        path = entry_path(name)
        entry = json.loads(path.read_text()) if path.is_file() else None
        if entry is None or entry["state"] != state_of(name, entry["state"]["modules"]):
            stale.append(name)
        else:
            lines.add(entry)
    imports = STATE / "imports.json"
    if imports.is_file():
        lines.imported = read_bits(json.loads(imports.read_text()))
    return lines, stale


def state_of(test_file: str, modules: Iterable[str]) -> dict[str, Any]:
    return {
        "test": digest_of_file(test_file),
        "helpers": digest_of_helpers(),
        "modules": {module: digest_of_file(module) for module in sorted(modules)},
    }


def save(
    test_file: str, tests: dict[str, list[Any]], others: Path, ignored: Collection[str] = ()
) -> None:
    """Store the lines of the tests of a file, with those of the processes that they started.

    The processes of the tests in `ignored` are left out.
    """
    for path in others.glob("*.json"):
        try:
            name, files = json.loads(path.read_text())
        except ValueError:
            continue  # the process was killed while it wrote
        if name in tests and name not in ignored:
            known = tests[name][3]
            for module, bits in write_bits(files).items():
                known[module] = f"{int(known.get(module, '0'), 16) | int(bits, 16):x}"
    modules = {module for each in tests.values() for module in (*each[2], *each[3])}
    path = entry_path(test_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"state": state_of(test_file, modules), "tests": tests}))


def install_start() -> None:
    """Make every Python process of this environment record its lines if MUTANT_LINES is set."""
    site = Path(sysconfig.get_path("purelib"))
    (site / "mutant_start.py").write_text(START)
    (site / "mutant_start.pth").write_text(
        "import os; 'MUTANT_LINES' in os.environ and __import__('mutant_start')\n"
    )
    os.environ["MUTANT_ROOT"] = str(ROOT)
