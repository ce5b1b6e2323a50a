"""The repository keeps its shape: packages, links, public names, and a cheap import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

import glue
from glue import policies, telemetry

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SIBLINGS = ("providers", "tools", "prompts", "agents")
HEAVY = ("httpx", "jsonschema", "click", "sqlite3", "ssl", "importlib.metadata")


def packages() -> dict[str, Path]:
    """Find every package that is there, by its import name."""
    found = {}
    for top in ("glue", *SIBLINGS):
        for init in sorted((ROOT / top).rglob("__init__.py")):
            folder = init.parent.relative_to(ROOT)
            if top == "glue" and len(folder.parts) > 1 and folder.parts[1] in SIBLINGS:
                continue  # reached through a link
            found[".".join(folder.parts if top == "glue" else ("glue", *folder.parts))] = folder
    return found


def test_every_package_is_in_the_folder_map() -> None:
    settings = PROJECT["tool"]["setuptools"]
    there = packages()

    assert sorted(settings["packages"]) == sorted(there)
    assert settings["package-dir"] == {name: str(path) for name, path in there.items()}


@pytest.mark.parametrize("name", SIBLINGS)
def test_the_links_are_there(name: str) -> None:
    link = ROOT / "glue" / name

    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"


def test_all_names_are_public_and_public_names_are_in_all() -> None:
    imports = ast.parse((ROOT / "glue" / "__init__.py").read_text())
    names = {alias.asname for node in ast.walk(imports) if isinstance(node, ast.ImportFrom) for alias in node.names}
    typed = sorted(str(name) for name in names if not str(name).startswith("_"))

    assert glue.__all__ == typed
    for name in glue.__all__:
        assert getattr(glue, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        glue.nonsense  # noqa: B018


def test_importing_glue_loads_nothing_heavy() -> None:
    code = f"import glue, sys; print([name for name in {HEAVY!r} if name in sys.modules])"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def test_the_core_imports_no_sibling() -> None:
    allowed = {"__init__.py", "agent.py"}
    for path in sorted((ROOT / "glue").glob("**/*.py")):
        relative = path.relative_to(ROOT / "glue")
        if relative.parts[0] in (*SIBLINGS, "acp", "cli", "testing", *allowed):  # edges, not core
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith(tuple(f"glue.{sibling}" for sibling in SIBLINGS)), f"{relative}: {name}"


@pytest.mark.parametrize("folder", ["glue", *SIBLINGS, "bench"])
def test_every_module_begins_with_one_plain_line(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        inside = path.relative_to(ROOT)
        if inside.parts[0] == "glue" and inside.parts[1] in SIBLINGS:
            continue  # reached through a link
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        first, *rest = said.split("\n")
        assert first.endswith((".", ":")), f"{inside}: {first!r}"
        assert not rest or not rest[0].strip(), f"{inside}: the first line goes on in the second"


def test_the_wheel_holds_every_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    copy = tmp_path / "copy"
    subprocess.run(["git", "-C", str(ROOT), "checkout-index", "-a", f"--prefix={copy}/"], check=True)
    build = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr

    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())

    for name, path in packages().items():
        tracked = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", str(path)], capture_output=True, text=True, check=True
        ).stdout.split()
        for file in tracked:
            if Path(file).parent == path and not (ROOT / file).is_symlink():
                assert f"{name.replace('.', '/')}/{Path(file).name}" in inside
    assert not [name for name in inside if name.split("/")[0] in SIBLINGS]


def test_policies_and_telemetry_offer_their_names() -> None:
    for package in (policies, telemetry):
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_every_policy_has_a_place_in_the_one_order() -> None:
    from glue.compaction import Compaction
    from glue.output import Reask

    offered = [getattr(policies, name) for name in policies.__all__]
    ready = [value for value in offered if isinstance(value, type) and issubclass(value, policies.Policy)]

    assert {cast(Any, policy).place for policy in (*ready, Compaction, Reask)} == set(policies.ORDER)
