"""Our own agents use what users use: names that a public package offers in its `__all__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = ("glue", "glue.events", "glue.errors", "glue.policies", "glue.testing", "glue.providers", "glue.prompts")
FILES = sorted((ROOT / "agents").rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Give module and name of every import of glue, except from the agents themselves."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "glue")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "glue":
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_public(module: str, name: str) -> bool:
    if module.startswith("glue.agents") or (module in PUBLIC and not name):
        return True
    if module == "glue" and name in ("agents", "providers", "prompts", "testing", "tools"):
        return True
    if module not in PUBLIC and not module.startswith("glue.tools"):
        return False
    loaded = import_module(module)
    offered = getattr(loaded, "__all__", None)
    if offered is None:  # errors and events: modules of public classes alone
        return module in PUBLIC and not name.startswith("_")
    return name in offered


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_agents_import_public_names_only(path: Path) -> None:
    assert [f"{module}.{name}" for module, name in imports(path) if not is_public(module, name)] == []


@pytest.mark.parametrize("folder", ["change", "findings"])
def test_the_review_finds_before_it_delivers(folder: str) -> None:
    """A change is collected, then judged, then delivered: none of the three knows what comes after it."""
    order = ["change", "findings", "delivery"]
    later = tuple(f"glue.agents.review.{name}" for name in order[order.index(folder) + 1 :])
    home = ROOT / "agents/review"
    shared = [path for path in home.glob("*.py") if path.name in ("records.py", "runfile.py", "secrets.py")]

    for path in (*(home / folder).glob("*.py"), *shared):
        named = [f"{module}.{name}" for module, name in imports(path)]
        assert [name for name in named if name.startswith(later)] == [], path
