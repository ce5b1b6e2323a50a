"""Agents, providers and tools use what users use: names that a public package offers in its `__all__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = ("glue", "glue.events", "glue.errors", "glue.policies", "glue.testing", "glue.providers", "glue.prompts")
FILES = sorted((ROOT / "agents").rglob("*.py"))
SIBLINGS = sorted(path for folder in ("providers", "tools") for path in (ROOT / folder).rglob("*.py"))

# What providers and tools share with the core beyond that, and why it is no user's business. Agents share nothing.
SHARED = {
    "how a package and its records load quickly": "glue.dataclass.dataclass glue.lazy.lazy_names",
    "a type for any JSON, ids and levels of messages": "glue.messages.Json glue.messages.new_id "
    "glue.messages.Effort glue.messages.EFFORTS",
    "how one provider is put around another, asked and closed": "glue.provider.Closeable glue.provider.Wrapper "
    "glue.provider.ask glue.provider.capabilities glue.provider.close glue.provider.common glue.provider.deltas "
    "glue.provider.opened",
    "what the loop takes for an empty reply": "glue.loop.transcript.has_content",
    "the guard that keeps requests out of tests": "glue.context.check_origin",
    "files of the user": "glue.paths.config_dir glue.paths.parse_toml glue.paths.read_text glue.paths.state_dir "
    "glue.paths.write_private",
    "work beside the event loop": "glue.tasks.background glue.tasks.run_blocking",
    "how a function is described, checked and its output cut": "glue.function.call.cap "
    "glue.function.call.current_spool glue.function.schema.shape_of glue.function.validation.check_schema",
    "an agent as a tool of a server: its instructions, its failure, who allows": "glue.options.instructions_text "
    "glue.context.failed glue.permission.decide",
}


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Give module and name of every import of glue."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "glue")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "glue":
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_public(module: str, name: str) -> bool:
    if module.startswith("glue.agents") or (module in PUBLIC and not name):
        return True
    if module == "glue" and name in ("agents", "providers", "prompts", "testing", "tools", "__version__"):
        return True
    if module not in PUBLIC and not module.startswith("glue.tools"):
        return False
    loaded = import_module(module)
    offered = getattr(loaded, "__all__", None)
    if offered is None:  # errors and events: modules of public classes alone
        return module in PUBLIC and not name.startswith("_")
    return name in offered


def shared_by(path: Path) -> list[str]:
    """Name what a provider or a tool imports from outside its own folder that is not public."""
    own = f"glue.{path.relative_to(ROOT).parts[0]}"
    others = [(module, name) for module, name in imports(path) if not f"{module}.".startswith(f"{own}.")]
    return [f"{module}.{name}" for module, name in others if not is_public(module, name)]


@pytest.mark.parametrize("path", SIBLINGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_providers_and_tools_import_public_names_and_what_is_listed(path: Path) -> None:
    listed = " ".join(SHARED.values()).split()

    assert [name for name in shared_by(path) if name not in listed] == []
    assert not [module for module, _ in imports(path) if module.startswith("glue.agents")]


def test_nothing_is_listed_that_nobody_imports_or_that_is_public() -> None:
    listed = " ".join(SHARED.values()).split()

    assert len(listed) == len(set(listed))
    assert set(listed) == {name for path in SIBLINGS for name in shared_by(path)}


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
