"""Fixtures of the tests of file tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.trees import Tools

from glue.tools.fs import Root
from glue.tools.fs import functions as ready


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    """Return tmp_path as an open root."""
    with Root(tmp_path) as opened:
        yield opened


@pytest.fixture
def tools(root: Root) -> Tools:
    """Return the functions behind the file tools by name."""
    return ready.functions(root)
