"""Agents, providers and tools import public names only, and a short list of others."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from fakes import sources
from fakes.sources import ROOT

PUBLIC = (
    "glue",
    "glue.events",
    "glue.errors",
    "glue.policies",
    "glue.testing",
    "glue.providers",
    "glue.prompts",
    "glue.permission",
    "glue.provider",
)
FOLDERS = ("agents", "providers", "tools")

# Names of the core that our own folders share and users do not need, by module. A new line needs a
# reason why the name is neither public nor private to its module.
SHARED = {
    "glue.backoff": "Backoff",
    "glue.cli.screen": "ProgressLine Screen",
    "glue.checks": "check_flag check_list check_text show",
    "glue.codec": "from_json to_json",
    "glue.context": "AnyTool Host",
    "glue.errors": "innermost",
    "glue.failures": "failure_result",
    "glue.function.spool": "cap current_spool",
    "glue.function.schema": "shape_of",
    "glue.function.validation": "Validator check_schema",
    "glue.globs": "Glob MAX_PATTERN SPECIAL matches_text parse_globs",
    "glue.hidden": "HIDDEN_CHARACTERS",
    "glue.installing": "install_command",  # the advice of an error, in every folder the same
    "glue.lazy": "lazy_names",
    "glue.limits": "estimate_tokens",
    "glue.loop.transcript": "has_content",
    "glue.markdown": "Fence backticks code_block code_span",
    "glue.messages": "EFFORTS Effort Json ToolSpec message_from_json messages_to_json new_id",
    "glue.overrides": "check_origin",
    "glue.settings": "instructions_text is_provider",
    "glue.signature": "hinted hinted_as",
    "glue.paths": "config_dir parse_toml read_text state_dir write_private",
    "glue.permission": "decide",
    "glue.provider": "Closeable Wrapper ask capabilities close common deltas opened",
    "glue.secrets": "Redactor mask_values name_secrets",
    "glue.stores": "Store",
    "glue.tasks": (
        "StopFlag background caller finish_in_thread in_stoppable_thread in_thread run_blocking"
    ),
    "glue.text": "clean_text count format_dollars format_seconds one_line suggest",
    "glue.toolnames": "register_tool_names",
    "glue.tools.git.pathspec": "Scope",  # the globs of a review are those of the git tools
    # A self-test is an evaluation, whose trials are reviews.
    "glue.trials": "CaseTrial Evaluation Summary differences load_as save",
    "glue.view.comparison": "sentence",
}
LISTED = {f"{module}.{name}" for module, names in SHARED.items() for name in names.split()}


def imports(path: Path) -> list[tuple[str, str]]:
    """Return module and name of every import of glue."""
    found = sources.imports(path)
    return [(each.module, each.name) for each in found if each.module.split(".")[0] == "glue"]


def is_public(module: str, name: str) -> bool:
    if module.startswith("glue.agents") or (module in PUBLIC and not name):
        return True
    if module == "glue" and name in (
        "agents",
        "providers",
        "prompts",
        "testing",
        "tools",
        "__version__",
    ):
        return True
    if name in import_module("glue").__all__:  # public, but imported from its own module
        return True
    if module not in PUBLIC and not module.startswith("glue.tools"):
        return False
    return name in getattr(import_module(module), "__all__", ())


def shared_by(path: Path) -> list[str]:
    """Return the names that a file imports from outside its own folder and that are not public."""
    own = f"glue.{path.relative_to(ROOT).parts[0]}"
    others = [
        (module, name) for module, name in imports(path) if not f"{module}.".startswith(f"{own}.")
    ]
    return [f"{module}.{name}" for module, name in others if not is_public(module, name)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_outer_folders_import_public_names_and_those_listed_here(folder: str) -> None:
    found = {path: {*shared_by(path)} - LISTED for path in sources.python_files(folder)}

    assert found
    assert {path: names for path, names in found.items() if names} == {}


def test_every_listed_name_is_imported_by_an_outer_folder() -> None:
    files = sources.python_files(*FOLDERS)
    imported = {".".join(found) for path in files for found in imports(path)}

    assert sorted(LISTED - imported) == []


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "agents"])
def test_only_agents_import_agents(folder: str) -> None:
    named = [
        (path, module)
        for path in sources.python_files(folder)
        for module, _ in imports(path)
        if module.startswith("glue.agents")
    ]

    assert named == []


@pytest.mark.parametrize("folder", ["change", "findings"])
def test_review_stages_do_not_import_later_stages(folder: str) -> None:
    """A change is collected, then findings are made, then they are delivered."""
    order = ["change", "findings", "delivery"]
    later = tuple(f"glue.agents.review.{name}" for name in order[order.index(folder) + 1 :])
    home = ROOT / "agents/review"
    shared = [home / "records.py", home / "runfile.py", home / "storage.py"]

    for path in (*(home / folder).glob("*.py"), *shared):
        named = [f"{module}.{name}" for module, name in imports(path)]
        assert [name for name in named if name.startswith(later)] == [], path
