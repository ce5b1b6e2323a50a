"""The examples in docstrings run and print the shown values."""

from __future__ import annotations

import datetime
import doctest
import importlib
import json
import os
from pathlib import Path

import pytest

import glue
from glue.providers import registry
from glue.testing import Script, repeat

ROOT = Path(__file__).resolve().parents[1]
# Names that an example may use without an import, besides those of its module.
NAMES = {"glue": glue, "Agent": glue.Agent, "json": json, "datetime": datetime}
# Modules with an example that only shows the form of a result.
NOT_RUN = {
    "glue.function.decorator": "uses the tool of another example",
    "glue.function.faults": "uses a class that imports this module",
    "glue.function.spool": "the address is random",
    "glue.limits": "needs a model with a price",
    "glue.result": "shows the answer of a real model",
}
SIBLINGS = ("providers", "tools", "prompts", "agents")


def modules_with_examples() -> list[str]:
    """Return the names of the modules whose docstrings have examples."""
    found = []
    for folder in ("glue", *SIBLINGS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_linked = parts[0] == "glue" and parts[1] in SIBLINGS
            if not is_linked and ">>> " in path.read_text(encoding="utf-8"):
                name = ".".join(parts if folder == "glue" else ("glue", *parts))
                found.append(name.removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", sorted({*modules_with_examples()} - {*NOT_RUN}))
def test_the_examples_of_a_module_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # An example may register a provider, which no other test must see.
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    for variable in [key for key in os.environ if key.endswith("_API_KEY")]:
        monkeypatch.delenv(variable)
    module = importlib.import_module(name)
    agent = glue.Agent(Script(repeat("Hello.")))
    known = {**vars(module), **NAMES, "agent": agent, "result": agent.run_sync("Hi")}

    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for example in doctest.DocTestFinder().find(module, name, globs=known):
        runner.run(example, out=report.append)

    assert not runner.failures, "".join(report)
