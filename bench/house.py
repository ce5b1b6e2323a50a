"""Counts of the repository: sizes, duplicated ideas, imports, missing tests, long lines, prose.

    python bench/house.py [--list] [--root CHECKOUT] [--prose PROGRAM]

`--list` prints the places behind each count, `--root` counts another checkout. PROGRAM (or the
variable GLUE_PROSE) is a checker of English: it is run on the checkout, and its output is printed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SHIPPED = ("glue", "providers", "tools", "prompts", "agents")
OTHERS = ("tests", "bench", "examples", "docs")
# The modules and packages of glue/ that a newcomer reads first.
NEWCOMER = ("messages", "provider", "loop", "function", "agent", "session", "settings")
COLUMNS = 100
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Calls that start a thread; glue/tasks.py has the helpers for them.
THREADS = ("to_thread.run_sync", "asyncio.to_thread", "run_in_executor", "threading.Thread")


class Module(NamedTuple):
    """A Python file of the repository."""

    path: Path  # below the checkout
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        parts = self.path.with_suffix("").parts
        parts = parts if parts[0] == "glue" else ("glue", *parts)
        return ".".join(parts).removesuffix(".__init__")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the places, not only counts")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--prose", default=os.environ.get("GLUE_PROSE", ""), metavar="PROGRAM")
    given = parser.parse_args()
    modules = list(read_modules(given.root, SHIPPED))
    print_sizes(modules)
    everything = [*modules, *read_modules(given.root, OTHERS)]
    counts = {
        "class names defined twice": double_classes(modules),
        "loops that back off by hand": hand_made_backoffs(modules),
        "threads not from glue/tasks": thread_starts(modules),
        "redactors": redactors(modules),
        "imports inside functions": local_imports(modules),
        "import cycles": import_cycles(modules),
        "modules without a test": untested_modules(given.root, modules),
        f"lines above {COLUMNS} columns": long_lines(everything),
    }
    for title, places in counts.items():
        print(f"{title:<28} {len(places)}")
        for place in places if given.list else ():
            print(f"  {place}")
    if given.prose:
        print(flush=True)
        subprocess.run([sys.executable, given.prose, given.root], check=True)


def read_modules(root: Path, folders: tuple[str, ...]) -> Iterator[Module]:
    """Yield the Python files of folders, without files that are reached through a link."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            inside = path.relative_to(root)
            if inside.parts[0] != "glue" or inside.parts[1] not in SHIPPED:
                text = path.read_text(encoding="utf-8")
                yield Module(inside, text, ast.parse(text))


def print_sizes(modules: list[Module]) -> None:
    sizes = {str(module.path): len(module.text.splitlines()) for module in modules}
    real = [size for name, size in sizes.items() if not name.endswith("__init__.py") or size > 5]
    first = re.compile(rf"glue/(?:{'|'.join(NEWCOMER)})(?:/|\.py)")
    largest = max(sizes, key=sizes.__getitem__)
    print(f"{'lines':<28} {sum(sizes.values()):,}")
    print(f"{'modules':<28} {len(sizes)}")
    print(f"{'median module':<28} {statistics.median(real):.0f} lines")
    print(f"{'largest module':<28} {sizes[largest]} lines, {largest}")
    print(f"{'modules under 60 lines':<28} {sum(size < 60 for size in real)}")
    newcomer = sum(size for name, size in sizes.items() if first.match(name))
    print(f"{'modules for a newcomer':<28} {newcomer:,} lines")


def double_classes(modules: list[Module]) -> list[str]:
    """Return the public class names that more than one module defines."""
    names = Counter(
        node.name
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, number in names.items() if number > 1)


def hand_made_backoffs(modules: list[Module]) -> list[str]:
    """Return the loops that catch an error and sleep, in modules that do not use Backoff."""
    found = []
    for module in modules:
        if "Backoff" in module.text:
            continue
        for loop in ast.walk(module.tree):
            inner = list(ast.walk(loop)) if isinstance(loop, (ast.For, ast.While)) else []
            sleeps = any(call.rpartition(".")[2] in ("sleep", "_sleep") for call in calls_in(inner))
            if sleeps and any(isinstance(node, ast.Try) for node in inner):
                found.append(f"{module.path}:{getattr(loop, 'lineno', 0)}")
    return found


def thread_starts(modules: list[Module]) -> list[str]:
    """Return the modules that start threads themselves, with the number of calls."""
    found = []
    for module in modules:
        number = sum(call.endswith(THREADS) for call in calls_in(ast.walk(module.tree)))
        if number and module.name != "glue.tasks":
            found.append(f"{module.path}: {number}")
    return found


def calls_in(nodes: Iterator[ast.AST] | list[ast.AST]) -> Iterator[str]:
    """Yield the source of each function that is called, such as `anyio.sleep`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield ast.unparse(node.func)


def redactors(modules: list[Module]) -> list[str]:
    """Return the modules that contain the string "***", with which secrets are replaced."""
    return [str(module.path) for module in modules if re.search(r'["\']\*\*\*["\']', module.text)]


def local_imports(modules: list[Module]) -> list[str]:
    """Return the places of import statements inside functions."""
    found = []
    for module in modules:
        functions = [node for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS)]
        lines = {
            node.lineno
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        found += [f"{module.path}:{line}" for line in sorted(lines)]
    return found


def import_cycles(modules: list[Module]) -> list[str]:
    """Return the groups of modules that import each other, also inside functions.

    A name that is imported from a package counts as imported from the module that defines it.
    """
    homes = {module.name: package_names(module) for module in modules}
    edges = {module.name: set(imported(module, homes)) - {module.name} for module in modules}
    reached = {name: reachable(name, edges) for name in edges}
    groups = set()
    for name in edges:
        group = sorted(other for other in reached[name] if name in reached[other])
        groups.add(" ".join(group))
    return sorted(group for group in groups if " " in group)


def package_names(module: Module) -> dict[str, str]:
    """Return the names that a package imports to offer them: name -> module that defines it."""
    if module.path.name != "__init__.py":
        return {}
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def imported(module: Module, homes: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the modules of this repository that a module imports, except for type checking.

    `homes` has the result of `package_names` for each module of the repository.
    """
    blocks = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    ]
    skipped = {id(inner) for block in blocks for inner in ast.walk(block)}
    for node in ast.walk(module.tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in homes)
        elif isinstance(node, ast.ImportFrom) and node.module in homes:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                home = homes[node.module].get(alias.name, "")
                yield next(name for name in (inner, home, node.module) if name in homes)


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def untested_modules(root: Path, modules: list[Module]) -> list[str]:
    """Return the modules without a test file of their name in the matching folder."""
    skipped = ("__init__.py", "__main__.py")
    return [
        str(module.path)
        for module in modules
        if module.path.name not in skipped
        and "templates" not in module.path.parts
        and not (root / test_path(module.path)).exists()
    ]


def test_path(module: Path) -> Path:
    """Return the path of the test of a module: glue/x/y.py is tested by tests/x/test_y.py."""
    folders = module.parts[1:-1] if module.parts[0] == "glue" else module.parts[:-1]
    return Path("tests", *folders, f"test_{module.name}")


def long_lines(modules: list[Module]) -> list[str]:
    """Return the places of lines that are too long.

    As in ruff, comments for checkers, single words and an address at the end do not count.
    """
    found = []
    for module in modules:
        for number, line in enumerate(module.text.splitlines(), 1):
            shown = re.sub(r"\s+# (type: ignore|noqa|pragma).*", "", line)
            words = shown.split()
            if len(shown) > COLUMNS and len(words) > 1 and "://" not in words[-1]:
                found.append(f"{module.path}:{number}")
    return found


if __name__ == "__main__":
    main()
