"""Project context: AGENTS.md, skills and roles from a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue import Agent, ToolMessage
from glue.errors import ConfigError
from glue.project import (
    MAX_BYTES,
    Role,
    Skill,
    find_checkout,
    find_role,
    front_matter,
    load_project,
    load_roles,
    project_folder,
    skill_tool,
)
from glue.testing import Script, call, calls


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_instructions_and_skills_are_read_from_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "Be brief.\n")
    write(tmp_path / ".agents/skills/deploy/SKILL.md", "---\ndescription: Use make\n---\nRun make.")
    write(tmp_path / ".agents/skills/release/SKILL.md", "---\ndescription: Ship it\n---\nTag it.")

    project = load_project(tmp_path)

    assert project.instructions == "Be brief."
    assert project.skills[1] == Skill(name="release", description="Ship it", text="Tag it.")
    assert project.prompt.startswith("Be brief.\n\nSkills you can read with the tool `skill`:\n")
    assert project.prompt.endswith("\n- deploy: Use make\n- release: Ship it")


def test_a_folder_without_project_files_has_an_empty_prompt(tmp_path: Path) -> None:
    assert load_project(tmp_path).prompt == ""


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="project: there is no folder"):
        load_project(tmp_path / "none")
    with pytest.raises(ConfigError, match="roles: there is no folder"):
        load_roles(tmp_path / "none")


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "outside.md", "secret")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "AGENTS.md").symlink_to(tmp_path / "outside.md")
    assert load_project(folder).instructions == ""

    (folder / "AGENTS.md").unlink()
    os.mkfifo(folder / "AGENTS.md")
    assert load_project(folder).instructions == ""


def test_a_long_file_is_shortened(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "x" * (MAX_BYTES + 1))

    text = load_project(tmp_path).instructions

    assert (
        text == "x" * MAX_BYTES + "\n[AGENTS.md is longer than 32768 bytes; the rest is left out]"
    )


def test_every_markdown_file_of_a_folder_is_a_role(tmp_path: Path) -> None:
    write(
        tmp_path / "critic.md", '---\nmodel: "openai"\ndescription: strict\n---\n\nFind faults.\n'
    )
    write(tmp_path / "plain.md", "Be plain.")
    write(tmp_path / "notes.txt", "not a role")

    roles = load_roles(tmp_path)

    assert dict(roles) == {
        "critic": Role(
            name="critic", instructions="Find faults.", description="strict", model="openai"
        ),
        "plain": Role(name="plain", instructions="Be plain."),
    }
    assert find_role(tmp_path, "plain") == find_role(roles, "plain") == roles["plain"]


def test_an_unknown_role_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path / "critic.md", "Find faults.")

    with pytest.raises(ConfigError, match="there is no role 'x'; there are: critic"):
        find_role(tmp_path, "x")
    with pytest.raises(ConfigError, match="there are: none; pass roles= to the agent"):
        find_role(None, "x")


@pytest.mark.parametrize(
    ("text", "matter", "body"),
    [
        ("---\na: 1\nb: 'two'\n---\n\nrest\n", {"a": "1", "b": "two"}, "rest\n"),
        ("---\nno pair\n---\nrest", {}, "rest"),
        ("---\na: 1\nnever closed", {}, "---\na: 1\nnever closed"),
        ("plain", {}, "plain"),
        ("", {}, ""),
    ],
)
def test_front_matter_is_split_from_the_text(text: str, matter: dict[str, str], body: str) -> None:
    assert front_matter(text) == (matter, body)


async def test_a_model_reads_a_skill_with_the_skill_tool() -> None:
    tool = skill_tool([Skill(name="deploy", description="", text="Run make.")])
    script = Script(calls(call("skill", {"name": "deploy"})), "done")

    result = await Agent(script, tools=[tool]).run("go")

    texts = [message.text for message in result.messages if isinstance(message, ToolMessage)]
    assert texts == ["Run make."]


def test_the_checkout_of_a_folder_is_the_nearest_one_above_it(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)

    assert find_checkout(tmp_path / "repo" / "a" / "b") == (tmp_path / "repo").resolve()
    assert project_folder(tmp_path / "repo" / "a") == (tmp_path / "repo").resolve()
    assert project_folder(tmp_path) == tmp_path.resolve()


def test_a_file_and_a_description_may_have_exactly_their_longest_length(tmp_path: Path) -> None:
    write(tmp_path / "AGENTS.md", "x" * MAX_BYTES)
    skill = f"---\ndescription: {'d' * 301}\n---\nTag it."
    write(tmp_path / ".agents/skills/release/SKILL.md", skill)

    project = load_project(tmp_path)

    assert project.instructions == "x" * 32_768
    assert project.skills[0].description == "d" * 300
