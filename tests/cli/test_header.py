"""The `# /// script` header of an agent file, read without running the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue.cli.header import parse_header, read_glue_section, read_source
from glue.cli.settings import check_settings
from glue.errors import ConfigError

HEADER = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# model = "groq"
# allow = ["save"]
# ///
raise SystemExit("this must never run")
"""


def test_a_header_is_read_without_running_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HEADER)

    assert parse_header(read_source(tmp_path / "a.py"))["dependencies"] == ["glue-agents"]
    assert check_settings(read_glue_section(tmp_path / "a.py"), "a.py") == {
        "model": "groq",
        "allow": ("save",),
    }


def test_a_header_with_windows_line_ends_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(HEADER.replace("\n", "\r\n").encode())

    assert read_glue_section(tmp_path / "a.py")["model"] == "groq"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "# /// other\n# x = 1\n# ///\n",
        "# /// script\nx = 1\n",
        "# /// script\n# x = 1\n",
    ],
)
def test_a_file_without_a_header_has_no_settings(text: str) -> None:
    assert parse_header(text) == {}


def test_two_headers_and_invalid_toml_are_refused() -> None:
    block = "# /// script\n# x = 1\n# ///\n"

    with pytest.raises(ConfigError, match="several"):
        parse_header(block + "\n" + block)
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse_header("# /// script\n# x = \n# ///\n")


def test_at_most_8_mb_of_a_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    path.touch()
    os.truncate(path, 8 * 1024 * 1024 + 1)

    assert len(read_source(path)) == 8 * 1024 * 1024
