"""Code and tests use no private names of other packages, which may change in any release."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest
from fakes.sources import (
    FOLDERS,
    SHIPPED,
    imports_of,
    python_files,
    read,
    without_strings,
)

# Parts of public interfaces, despite their underscores.
DOCUMENTED = ("os._exit", "opentelemetry.semconv._incubating")
NAMEDTUPLE = {"_fields", "_field_defaults", "_asdict", "_replace", "_make"}


# `name._private` and `name.other._private`, also with a line break before a dot.
DOTTED = re.compile(r"(?<![\w.])(\w+)\)*(?:\s*\.\s*\w+)*?\s*\.\s*_\w")
ATTRIBUTE = re.compile(r"\.\s*(_\w+)")
DEFINED = re.compile(r"\b(?:def|class) (_\w+)|^ *(?:self\.)?(_\w+)(?:: [^=\n]+)? = ", re.MULTILINE)


def private_names(code: str) -> list[str]:
    """Return the private names that code imports from, or reads of, modules of other packages."""
    modules: dict[str, str] = {}  # names in the code, and the module or object that they are
    found = []
    for each in imports_of(code):
        if each.module.partition(".")[0] in ("", "glue", "__future__"):
            continue
        if any(map(is_private, each.full.split("."))):
            found.append(each.full)
        is_first = not each.name and each.module.partition(".")[0] == each.known_as
        modules[each.known_as] = each.known_as if is_first else each.full
    if modules.keys().isdisjoint(DOTTED.findall(code)):
        return found  # most files: no parse is needed
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = dotted(node.value)
            first, _, rest = owner.partition(".")
            if first in modules:
                found.append(".".join(filter(None, (modules[first], rest, node.attr))))
    return found


def undefined_attributes(codes: Iterable[str]) -> set[str]:
    """Return the private attributes of which no definition is found without a parser."""
    named: set[str] = set()
    defined: set[str] = set()
    for code in codes:
        rest, strings = without_strings(code)
        named.update(ATTRIBUTE.findall(rest))
        defined.update(name for names in DEFINED.findall(rest) for name in names)
        defined.update(text[1:-1] for text in strings)  # in __slots__
    return {name for name in named - defined if is_private(name)}


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


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_private_name_of_another_package_is_used(folder: str) -> None:
    found = [
        (path, name)
        for path in python_files(folder)
        for name in private_names(read(path))
        if not name.startswith(DOCUMENTED)
    ]

    assert found == []


def test_private_attributes_that_are_read_belong_to_shipped_classes() -> None:
    known = NAMEDTUPLE | {name.rpartition(".")[2] for name in DOCUMENTED}
    codes = [read(path) for path in python_files(*SHIPPED)]
    unclear = undefined_attributes(codes) - known
    # The parser finds definitions that the patterns miss.
    names = re.compile(rf"\b(?:{'|'.join(unclear)})\b")
    found = [private_attributes(code) for code in codes if unclear and names.search(code)]
    was_read = {name for each, _ in found for name in each}
    defined = known.union(*(each for _, each in found))

    assert sorted(unclear.intersection(was_read) - defined) == []


def test_no_private_module_is_imported_by_its_name_as_a_text() -> None:
    texts = re.compile(r"""import(?:_module|__)\(\s*["']([\w.]+)""")
    files = python_files(*FOLDERS)
    names = [name for path in files for name in texts.findall(read(path))]

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
