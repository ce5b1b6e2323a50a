"""The functions of bench/house.py, on small modules and on this repository."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "bench" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules(house: ModuleType, **sources: str) -> list[object]:
    """Return modules of glue/ by name, with their source."""
    return [
        house.Module(Path("glue", f"{name}.py"), text, ast.parse(text))
        for name, text in sources.items()
    ]


def test_cycles_are_found_through_functions_and_packages(house: ModuleType) -> None:
    found = modules(
        house,
        __init__="if TYPE_CHECKING:\n    from glue.a import One as One\n",
        a="from glue.b import Two\n",
        b="def f():\n    from glue import One\n",
        c="from glue.a import One\nif TYPE_CHECKING:\n    from glue.d import Four\n",
        d="from glue.c import Three\n",
    )

    assert house.import_cycles(found) == ["glue.a glue.b"]


def test_imports_inside_functions_are_found(house: ModuleType) -> None:
    found = modules(
        house, a="import os\ndef f():\n    import re\n    def g():\n        import io\n"
    )

    assert house.local_imports(found) == ["glue/a.py:3", "glue/a.py:5"]


def test_loops_that_sleep_after_an_error_are_found_unless_they_use_backoff(
    house: ModuleType,
) -> None:
    loop = "while True:\n    try:\n        go()\n    except OSError:\n        time.sleep(1)\n"

    found = modules(house, a=loop, b=f"from glue.backoff import Backoff\n{loop}", c="sleep(1)")

    assert house.hand_made_backoffs(found) == ["glue/a.py:1"]


def test_long_lines_are_found_but_not_comments_for_checkers(house: ModuleType) -> None:
    found = modules(house, a=f"x = {'x' * 101}\n{'x' * 90}  # type: ignore[misc]\n")

    assert house.long_lines(found) == ["glue/a.py:1"]


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("glue/agent.py", "tests/test_agent.py"),
        ("glue/loop/turn.py", "tests/loop/test_turn.py"),
        ("tools/fs/edit.py", "tests/tools/fs/test_edit.py"),
    ],
)
def test_the_test_of_a_module_has_its_name(house: ModuleType, module: str, test: str) -> None:
    assert house.test_path(Path(module)) == Path(test)


def test_the_counts_of_a_repository_are_printed(tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "__init__.py").write_text("def load():\n    import json\n")
    (tmp_path / "glue" / "agent.py").write_text("name = 1\n")
    command = [sys.executable, str(ROOT / "bench" / "house.py"), "--prose", "", "--list"]

    done = subprocess.run(
        [*command, "--root", str(tmp_path)], capture_output=True, text=True, check=True
    )

    counts = {line[:28].strip(): line[28:].strip() for line in done.stdout.splitlines()}
    assert (counts["lines"], counts["modules"]) == ("3", "2")
    assert (counts["imports inside functions"], counts["modules without a test"]) == ("1", "1")
    assert "  glue/agent.py" in done.stdout
