"""Imports of other projects are declared in pyproject.toml."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator

import pytest
from fakes import sources
from fakes.sources import FOLDERS, ROOT, SHIPPED, python_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Modules whose name is not the name of their distribution.
DISTRIBUTIONS = {
    "acp": "agent-client-protocol",
    "agents": "openai-agents",
    "azure.identity": "azure-identity",
    "google.auth": "google-auth",
    "markdown_it": "markdown-it-py",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.semconv": "opentelemetry-semantic-conventions",
    "pydantic_ai": "pydantic-ai-slim",
    "yaml": "pyyaml",
}
# Shipped modules import these only if the user's program has loaded them already.
LOADED_BY_THE_USER = {
    "pytest": "glue.testing.plugin is a plugin of pytest",
    "typing-extensions": "only type checkers read it, and each of them contains it",
    "trio": "glue.tasks asks trio only if the program runs under trio",
}
CREATED_BY_TESTS = ("workshop",)  # packages that a test writes before it imports them


# A call that imports a module. Files without one need no parser.
CALL = re.compile(r"\b(?:import_module|__import__|importorskip)\s*\(")


@functools.cache
def imports(folder: str) -> frozenset[tuple[str, str]]:
    """Return the paths of the Python files of a folder, each with a module that it imports."""
    found: set[tuple[str, str]] = set()
    for path in python_files(folder):
        text = sources.read(path)
        called = called_modules(ast.parse(text)) if CALL.search(text) else ()
        named = (each.full for each in sources.imports(path))
        found.update((str(path.relative_to(ROOT)), module) for module in (*named, *called))
    return frozenset(found)


def called_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of each module that is imported by a function call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            function = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = function.id if isinstance(function, ast.Name) else function
            if name in ("import_module", "__import__", "importorskip"):
                yield from literal_start(node.args[0])


def literal_start(argument: ast.expr) -> Iterator[str]:
    """Yield a string literal, or the text of an f-string before its first placeholder."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield first.value


@functools.cache
def is_foreign(module: str) -> bool:
    """Check that a module belongs neither to the standard library nor to this repository."""
    top = module.split(".")[0]
    here = top in ("glue", "fakes") or any(
        (ROOT / folder / f"{top}.py").exists() for folder in FOLDERS
    )
    return not here and top not in (*sys.stdlib_module_names, *CREATED_BY_TESTS)


@functools.cache
def distribution(module: str) -> str:
    """Return the normalised name of the distribution that installs a module."""
    known = [name for name in DISTRIBUTIONS if f"{module}.".startswith(f"{name}.")]
    name = DISTRIBUTIONS[max(known, key=len)] if known else module.split(".")[0]
    return normalised(name)


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*lists: list[str]) -> set[str]:
    """Return the normalised names in lists of requirements."""
    return {normalised(re.split(r"[\[<>=~!; ]", line)[0]) for lines in lists for line in lines}


@pytest.mark.parametrize("folders", [SHIPPED, ("tests", "bench", "examples", "docs")])
def test_every_imported_project_is_declared(folders: tuple[str, ...]) -> None:
    names = declared(
        PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()
    )
    names |= set(LOADED_BY_THE_USER)
    if folders != SHIPPED:
        names |= declared(*PROJECT["dependency-groups"].values())

    missing = {
        f"{path}: {module}"
        for folder in folders
        for path, module in imports(folder)
        if is_foreign(module) and distribution(module) not in names
    }

    assert not missing


def test_every_declared_dependency_is_imported() -> None:
    project = PROJECT["project"]
    names = declared(project["dependencies"], *project["optional-dependencies"].values())

    used = {distribution(module) for folder in SHIPPED for _, module in imports(folder)}

    # The transport of google-auth imports requests; httpx brings httpcore and certifi.
    assert names - used == {"requests", "httpx"}


def test_the_core_imports_only_its_dependencies_when_its_modules_load() -> None:
    names = declared(PROJECT["project"]["dependencies"])
    optional = {"glue/cli/console.py", "glue/testing/plugin.py"}

    missing = {
        f"{path}: {each.full}"
        for path in python_files("glue")
        if path.relative_to(ROOT).as_posix() not in optional
        for each in sources.imports(path)
        if not each.is_indented and is_foreign(each.full)
        if distribution(each.full) not in names
    }

    assert not missing
