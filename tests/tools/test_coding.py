"""Tests of the tools of a coding agent and of their prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.codec import to_plain
from glue.messages import ToolSpec
from glue.tools import coding, fs, git, shell


def test_the_prompt_lists_exactly_the_tools(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for options in ({}, {"write": False}, {"shell": True}, {"trust": True}):
        made = coding.tools(tmp_path, **options)  # type: ignore[arg-type]
        prompt = coding.prompt(made)

        for tool in made:
            assert f"- {tool.name}: {tool.spec.description}\n" in prompt
        for name in {"write_file", "shell", "git_status"} - {tool.name for tool in made}:
            assert f"- {name}:" not in prompt


def as_sent(spec: ToolSpec) -> dict[str, Any]:
    """Return the fields of a tool that every wire sends."""
    return {
        name: value
        for name, value in to_plain(spec).items()
        if name in ("name", "description", "parameters")
    }


def test_the_schemas_of_all_tools_are_small_and_contain_the_important_advice(
    tmp_path: Path,
) -> None:
    made = [
        *fs.tools(tmp_path, write=True),
        *git.tools(tmp_path, trust=True),
        *shell.tools(tmp_path),
    ]
    texts = {each.name: json.dumps(as_sent(each.spec), ensure_ascii=False) for each in made}

    assert len(made) == 14
    assert sum(map(glue.limits.estimate_tokens, texts.values())) < 2100
    for name, words in {
        "git_diff_branch": "Only commits count",
        "git_diff_worktree": "not committed",
        "edit_file": "exactly the quoted text",
        "read_file": "Read a file before you change",
        "shell": "Prefer the file tools",
    }.items():
        assert words in texts[name]


def test_without_a_repository_there_are_no_git_tools(tmp_path: Path) -> None:
    names = [tool.name for tool in coding.tools(tmp_path)]

    assert names == ["read_file", "list_dir", "find_files", "grep", "write_file", "edit_file"]
    assert "edit_file: Replace exactly the quoted text in a file" in coding.prompt(
        coding.tools(tmp_path)
    )


@pytest.mark.parametrize(
    ("questions", "error"),
    [("none", "questions must be 'all' or 'writes', not 'none'"), ("writes", "add shell=True")],
)
def test_questions_need_a_shell(tmp_path: Path, questions: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        coding.tools(tmp_path, questions=questions)
