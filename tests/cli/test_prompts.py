"""`glue prompts`: list, show and compare versions of prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.prompts import find_version

Cli = Callable[..., Any]


def test_prompts_are_listed_shown_and_compared(cli: Cli) -> None:
    folder = Path("prompts/greet")
    folder.mkdir(parents=True)
    (folder / "v1.md").write_text("Hello.\n")
    (folder / "v2.md").write_text("Good day.\n")

    assert "review" in cli("prompts").out
    assert "v1, v2*" in cli("prompts", "--from", "prompts").out
    assert cli("prompts", "show", "greet", "--from", "prompts").out == "Good day.\n"
    assert cli("prompts", "show", "greet", "v1", "--from", "prompts").out == "Hello.\n"
    compared = cli("prompts", "--from", "prompts", "diff", "greet", "v1", "v2").out
    assert compared.endswith("@@ -1 +1 @@\n-Hello.\n+Good day.\n")
    assert cli("prompts", "show", "absent", "--from", "prompts").err == (
        "glue: unknown prompt 'absent'; prompts: greet\n"
    )
    Path("empty").mkdir()
    assert cli("prompts", "--from", "empty").err == (
        "no prompts in empty; a prompt is a folder of versions, such as NAME/v1.md\n"
    )


@pytest.mark.parametrize(
    ("end", "text"), [("", "Good day.\n"), ("@v1", "Hello.\n"), ("@v2", "Good day.\n")]
)
def test_a_version_is_found_in_a_folder_whose_path_contains_an_at_sign(
    tmp_path: Path, end: str, text: str
) -> None:
    folder = tmp_path / "a@b" / "greet"
    folder.mkdir(parents=True)
    (folder / "v1.md").write_text("Hello.\n")
    (folder / "v2.md").write_text("Good day.\n")

    assert find_version(f"{folder}{end}").text == text
