"""Code and tests use no private names of other packages, which may change in any release."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("glue", "providers", "tools", "prompts", "agents")
OTHERS = ("tests", "bench", "examples", "docs")
# Parts of public interfaces, despite their underscores.
DOCUMENTED = ("os._exit", "opentelemetry.semconv._incubating")
NAMEDTUPLE = {"_fields", "_field_defaults", "_asdict", "_replace", "_make"}


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below folders, without those that are reached through a link."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not any(part.is_symlink() for part in path.parents if part != ROOT)
    )


def private_names(code: str) -> list[str]:
    """Return the private names that code imports from, or reads of, modules of other packages."""
    tree = ast.parse(code)
    modules: dict[str, str] = {}  # names in the code, and the module or object that they are
    found = []
    for node in ast.walk(tree):
        for module, name, known_as in _imports(node):
            full = f"{module}.{name}" if name else module
            modules[known_as] = full
            if any(map(is_private, full.split("."))):
                found.append(full)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = dotted(node.value)
            first, _, rest = owner.partition(".")
            if first in modules:
                found.append(".".join(filter(None, (modules[first], rest, node.attr))))
    return found


def _imports(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield the module, the name and the local name of each import of another package."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] != "glue":
                known_as = alias.asname or alias.name.partition(".")[0]
                yield (alias.name if alias.asname else known_as), "", known_as
                yield alias.name, "", f"import {alias.name}"
    elif isinstance(node, ast.ImportFrom) and node.module:
        is_foreign = node.module.partition(".")[0] not in ("glue", "__future__")
        for alias in node.names if is_foreign else ():
            yield node.module, alias.name, alias.asname or alias.name


def private_attributes(code: str) -> tuple[set[str], set[str]]:
    """Return the private attributes that code reads, and the private names that it defines."""
    read: set[str] = set()
    defined: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            (defined if isinstance(node.ctx, ast.Store) else read).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
            defined.add(str(node.value))  # in __slots__
    return {name for name in read if is_private(name)}, defined


def is_private(name: str) -> bool:
    """Return True for a name with one leading underscore; `__name__` is not private."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def dotted(node: ast.expr) -> str:
    """Return the text of `a.b.c`, or an empty text for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


@pytest.mark.parametrize(
    "path", python_files(*SHIPPED, *OTHERS), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_private_name_of_another_package_is_used(path: Path) -> None:
    found = private_names(path.read_text())

    assert [name for name in found if not name.startswith(DOCUMENTED)] == []


def test_private_attributes_that_are_read_belong_to_shipped_classes() -> None:
    found = [private_attributes(path.read_text()) for path in python_files(*SHIPPED)]
    defined = NAMEDTUPLE.union(*(names for _, names in found)) | {
        name.rpartition(".")[2] for name in DOCUMENTED
    }

    assert sorted(set().union(*(names for names, _ in found)) - defined) == []


def test_no_private_module_is_imported_by_its_name_as_a_text() -> None:
    texts = re.compile(r"""import(?:_module|__)\(\s*["']([\w.]+)""")
    files = python_files(*SHIPPED, *OTHERS)
    names = [name for path in files for name in texts.findall(path.read_text())]

    assert [name for name in names if any(map(is_private, name.split(".")))] == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import re\nre._parser.parse('a')", ["re._parser"]),
        ("import re._parser", ["re._parser"]),
        ("from re import _parser", ["re._parser"]),
        (
            "from asyncio import tasks\ntasks._unregister_task(x)",
            ["asyncio.tasks._unregister_task"],
        ),
        ("import asyncio\nasyncio.tasks._all", ["asyncio.tasks._all"]),
        ("import sys as system\nsystem._getframe()", ["sys._getframe"]),
        ("def f():\n    import atexit\n    atexit._run_exitfuncs()", ["atexit._run_exitfuncs"]),
        ("import glue\nglue._own", []),
        ("from glue.tasks import _own", []),
        ("import re\nre.__name__", []),
        ("self._name", []),
    ],
)
def test_private_names_are_found(code: str, names: list[str]) -> None:
    assert sorted(set(private_names(code))) == names
