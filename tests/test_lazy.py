"""`lazy_names`: packages that load their public names at first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = """
from glue.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"tools": "hammer saw", "colours": "red"})
"""


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a package whose names are defined in the modules `tools` and `colours`."""
    folder = tmp_path / "workshop"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "tools.py").write_text("hammer, saw = 'hammer', 'saw'\n")
    (folder / "colours.py").write_text("red = 'red'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("workshop")
    for name in [name for name in sys.modules if name.partition(".")[0] == "workshop"]:
        del sys.modules[name]


def test_a_module_is_loaded_when_one_of_its_names_is_used(workshop: ModuleType) -> None:
    assert "workshop.tools" not in sys.modules

    assert workshop.hammer == "hammer"

    assert "workshop.tools" in sys.modules
    assert "workshop.colours" not in sys.modules


def test_a_loaded_name_becomes_an_attribute_of_the_package(workshop: ModuleType) -> None:
    assert "saw" not in vars(workshop)

    assert workshop.saw == "saw"

    assert vars(workshop)["saw"] == "saw"


def test_dir_lists_names_that_are_not_loaded_yet(workshop: ModuleType) -> None:
    assert {"hammer", "saw", "red", "__name__"} <= set(dir(workshop))
    assert "workshop.tools" not in sys.modules


def test_an_unknown_name_raises_an_attribute_error(workshop: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'workshop' has no attribute 'drill'"):
        _ = workshop.drill
