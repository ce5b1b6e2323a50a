"""Tests of the names that glue.tools and its modules offer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from glue import Rules
from glue.tools.fs import safe_open

ROOT = Path(__file__).parents[2]
MODULES = ("coding", "documents", "fetch", "fs", "git", "mcp", "sandbox", "shell")
IMPORT = re.compile(r"from glue\.tools\.(\w+) import ([\w, ]+)")
CALL = re.compile(rf"(?<![\w.\"])({'|'.join(MODULES)})\.(\w+)\(")


def documented_names() -> dict[str, set[str]]:
    """Return the names of modules of glue.tools that the documentation and the examples use."""
    found: dict[str, set[str]] = defaultdict(set)
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.py")]
    for page in pages:
        if page.name == "migration.md":  # shows the modules of other toolkits
            continue
        text = page.read_text(encoding="utf-8")
        for module, names in IMPORT.findall(text):
            found[module] |= {name.split(" as ")[0].strip() for name in names.split(",")}
        for module, name in CALL.findall(text):
            found[module].add(name)
    return found


def test_every_public_name_can_be_imported() -> None:
    from glue import tools

    for name in tools.__all__:
        assert getattr(tools, name)
    callback: Callable[..., Any] = tools.safe_open
    assert callback is safe_open


@pytest.mark.parametrize("name", MODULES)
def test_the_public_names_of_a_module_are_those_in_the_documentation(name: str) -> None:
    module = import_module(f"glue.tools.{name}")

    assert [each for each in module.__all__ if not hasattr(module, each)] == []
    assert documented_names()[name] - set(module.__all__) == set()


def test_no_documented_module_is_missing_here() -> None:
    assert set(documented_names()) <= set(MODULES)


def test_rules_may_name_every_ready_made_tool() -> None:
    names = "read_file list_dir find_files grep write_file edit_file shell shell_job fetch_url"
    git = "git_diff_branch git_log_branch git_show git_blame git_status git_diff_worktree"

    Rules(deny=[*names.split(), *git.split(), "web_search"]).check([])
