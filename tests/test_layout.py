"""The layout of the repository: packages, links, tests of modules, public names, imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from fakes.sources import imports, python_files, read
from setuptools import find_packages  # type: ignore[import-untyped]

import glue
from glue import policies, telemetry

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BACKEND = PROJECT["build-system"]["build-backend"]
SIBLINGS = ("providers", "tools", "prompts", "agents")
# Test files that are not named after a module: the path below tests/, and the reason.
CAPABILITIES = {
    "acp/test_python_sdk.py": "the whole server, driven by the Python SDK of the protocol",
    "acp/test_typescript_sdk.py": "the whole server, driven by the TypeScript SDK",
    "agents/review/test_attacks.py": "hostile changes, through every stage of a review",
    "agents/review/test_ci_templates.py": "files that users copy",
    "agents/review/test_demo.py": "the review in `make demo`",
    "agents/review/test_exit_codes.py": "the command, with all stages",
    "agents/review/test_model_texts.py": "snapshots of every text that a model sees",
    "agents/review/test_pull_request_kinds.py": "each kind of pull request, on a forge",
    "agents/review/test_repeated_reviews.py": "several reviews of one pull request, on all forges",
    "agents/review/test_unsound_summaries.py": "findings, gate and delivery together",
    "durable/test_promises.py": "the promises of a row, the same tests on every engine",
    "fakes/test_fake_forge.py": "tests a fake, not a module",
    "fakes/test_sources.py": "tests a fake, not a module",
    "function/test_pydantic_and_msgspec.py": "foreign types, through schema and validation",
    "live/test_llamacpp.py": "a real model on a real server",
    "loop/test_cancelled_anywhere.py": "the whole loop, cancelled at every await",
    "loop/test_killed_runs.py": "the whole loop, killed at every step around a call that waits",
    "loop/test_random_runs.py": "the whole loop, with random scripts, limits and policies",
    "loop/test_resumed_runs.py": "the whole loop, cut or killed anywhere and resumed",
    "providers/test_every_provider_over_http.py": "the same tests for every wire",
    "providers/test_model_texts.py": "snapshots of every text that a model sees",
    "providers/test_same_transcript_on_every_wire.py": "transcripts that move between wires",
    "providers/test_wire_recordings.py": "recorded traffic of all wires",
    "providers/test_wrappers.py": "the same tests for every wrapper of a provider",
    "test_cookbook.py": "the programs and the pages of the cookbook",
    "test_docstrings.py": "the examples in all docstrings",
    "test_folder_imports.py": "imports between the folders of the repository",
    "test_imports.py": "imports of other projects",
    "test_layout.py": "the layout of the repository",
    "test_mistakes.py": "messages for mistakes, in the whole public interface",
    "test_model_texts.py": "snapshots of every text that a model sees",
    "test_private_names.py": "private names of other projects",
    "test_single_files.py": "installs the wheel and runs files with uv",
    "test_troubleshooting.py": "messages of all modules, as the documentation quotes them",
    "test_user_tasks.py": "tasks of users, with public names only",
    "tools/fs/test_path_attacks.py": "attacks on all file tools",
    "tools/fs/test_races.py": "attacks on all file tools, from a second process",
    "tools/git/test_repository_attacks.py": "attacks on all git tools",
    "tools/mcp/test_conformance.py": "the client and the server with the published suite",
    "tools/mcp/test_hostile_servers.py": "a server that misbehaves, through the whole client",
    "tools/mcp/test_reference_servers.py": "the client and the server with reference programs",
    "tools/test_model_texts.py": "snapshots of every text that a model sees",
    "tools/test_public_names.py": "the names that the package offers",
    "view/test_page_in_a_browser.py": "the page in Chromium",
    "web/test_clients.py": "the endpoints with the real AG-UI and Vercel clients",
    "web/test_site_in_a_browser.py": "the live page in Chromium",
}
# The beginning of a file up to the end of its docstring, which needs no parse of the rest.
DOCSTRING = re.compile(r'(?:#[^\n]*\n|\s)*r?"""(?:\\.|[^\\])*?"""', re.DOTALL)
HEAVY = ("httpx", "jsonschema", "click", "sqlite3", "ssl", "importlib.metadata")


def packages() -> dict[str, Path]:
    """Return the folder of every package, by its import name."""
    found = {}
    for top in ("glue", *SIBLINGS):
        for init in sorted((ROOT / top).rglob("__init__.py")):
            folder = init.parent.relative_to(ROOT)
            if top == "glue" and len(folder.parts) > 1 and folder.parts[1] in SIBLINGS:
                continue  # reached through a link
            found[".".join(folder.parts if top == "glue" else ("glue", *folder.parts))] = folder
    return found


def test_setuptools_finds_every_package_through_the_links() -> None:
    settings = PROJECT["tool"]["setuptools"]

    found = find_packages(str(ROOT), include=settings["packages"]["find"]["include"])

    assert settings["package-dir"] == {"": "."}
    assert sorted(found) == sorted(packages())


@pytest.mark.parametrize("name", SIBLINGS)
def test_the_links_in_glue_exist(name: str) -> None:
    link = ROOT / "glue" / name

    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"


def test_every_test_file_is_named_after_a_module_or_listed_as_a_capability() -> None:
    files = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    unnamed = {str(file) for file in files if not names_a_module(file)}

    assert sorted(unnamed - {*CAPABILITIES}) == []
    assert sorted({*CAPABILITIES} - unnamed) == []


def names_a_module(test: Path) -> bool:
    """Return whether tests/x/test_y.py is the test of a module or package x/y.

    At the root of tests/, y may also be a program in bench/ or examples/, or a top folder.
    """
    name = test.stem.removeprefix("test_")
    top = Path() if test.parts[0] in SIBLINGS else Path("glue")
    places = [top / test.parent / name]
    if test.parent == Path():
        places += [Path("bench", name), Path("examples", name), Path(name), Path("tests", name)]
    elif test.parent.name == name:
        places.append(top / test.parent)
    return any((ROOT / place).is_dir() or (ROOT / f"{place}.py").is_file() for place in places)


def test_every_path_in_the_table_of_backends_exists() -> None:
    table = (ROOT / "tests" / "conftest.py").read_text().partition("ONE_BACKEND = {")[2]
    paths = re.findall(r'^    "([\w/]+)": "(?:asyncio|trio)",$', table, re.MULTILINE)

    assert paths
    for path in paths:
        assert any((ROOT / "tests").glob(f"{path}*")), path


def test_all_names_are_public_and_public_names_are_in_all() -> None:
    imports = ast.parse((ROOT / "glue" / "__init__.py").read_text())
    names = {
        alias.asname
        for node in ast.walk(imports)
        if isinstance(node, ast.ImportFrom) and node.module != "glue"
        for alias in node.names
    }
    typed = sorted(str(name) for name in names if not str(name).startswith("_"))

    assert glue.__all__ == typed
    for name in glue.__all__:
        assert getattr(glue, name) is not None


def test_the_package_offers_at_most_55_names() -> None:
    assert len(glue.__all__) <= 55


@cache
def documented() -> list[str]:
    """Return the texts of all pages and examples."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    return [page.read_text() for page in pages]


@pytest.mark.parametrize("name", glue.__all__)
def test_every_public_name_is_used_in_the_documentation(name: str) -> None:
    used = re.compile(rf"\bglue\.{name}\b|from glue import [^\n]*\b{name}\b|`{name}\b")

    assert any(used.search(text) for text in documented())


@pytest.mark.parametrize("name", ["errors", "events", "policies", "providers", "tools"])
def test_import_glue_is_enough_to_use_a_public_module(name: str) -> None:
    code = f"import glue; print(glue.{name}.__name__)"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == f"glue.{name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        glue.nonsense  # noqa: B018


def test_importing_glue_loads_nothing_heavy() -> None:
    code = f"import glue, sys; print([name for name in {HEAVY!r} if name in sys.modules])"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def test_the_core_imports_no_sibling() -> None:
    edges = {"__init__.py", "agent.py", "perform.py", "acp", "cli", "testing"}
    siblings = tuple(f"glue.{sibling}" for sibling in SIBLINGS)
    core = [
        path
        for path in python_files("glue")
        if path.relative_to(ROOT / "glue").parts[0] not in edges
    ]

    assert core
    for path in core:
        found = [each.module for each in imports(path) if each.module.startswith(siblings)]
        assert found == [], path


@pytest.mark.parametrize("folder", ["glue", *SIBLINGS, "bench"])
def test_every_module_begins_with_one_plain_line(folder: str) -> None:
    for path in python_files(folder):
        inside = path.relative_to(ROOT)
        head = DOCSTRING.match(read(path))
        said = ast.get_docstring(ast.parse(head[0])) if head else None
        first, *rest = (said or "").split("\n")
        assert first.endswith((".", ":")), f"{inside}: {first!r}"
        assert not rest or not rest[0].strip(), f"{inside}: the first line continues in the second"


def test_the_wheel_contains_every_package(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    # What pip runs to build a wheel, without pip itself.
    build = f"import {BACKEND} as backend; backend.build_wheel({str(tmp_path)!r})"
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "checkout-index", "-a", f"--prefix={copy}/"], check=True)
    built = subprocess.run(
        [sys.executable, "-c", build], cwd=copy, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr

    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())

    listed = subprocess.run([*git, "ls-files"], capture_output=True, text=True, check=True).stdout
    tracked = [Path(file) for file in listed.splitlines()]
    for name, path in packages().items():
        for file in tracked:
            if file.parent == path and not (ROOT / file).is_symlink():
                assert f"{name.replace('.', '/')}/{file.name}" in inside
    assert not [name for name in inside if name.split("/")[0] in SIBLINGS]


def test_every_name_in_all_of_policies_and_telemetry_exists() -> None:
    for package in (policies, telemetry):
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_every_policy_has_a_place_in_the_order_of_policies() -> None:
    from glue.compaction import Compaction
    from glue.output import Reask

    offered = [getattr(policies, name) for name in policies.__all__]
    ready = [
        value for value in offered if isinstance(value, type) and issubclass(value, policies.Policy)
    ]

    assert {cast(Any, policy).place for policy in (*ready, Compaction, Reask)} == set(
        policies.ORDER
    )
