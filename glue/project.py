"""Project context: AGENTS.md, skills and roles are read from a folder. All of it is opt-in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glue.dataclass import dataclass
from glue.errors import ConfigError
from glue.function.decorator import Tool

MOST = 32 * 1024  # bytes of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Instructions under a name, from `roles/NAME.md`; a model may be named in the front matter."""

    name: str
    instructions: str
    description: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Knowledge that a model may ask for, from `.agents/skills/NAME/SKILL.md`."""

    name: str
    description: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """All that was found below a folder."""

    instructions: str = ""
    skills: tuple[Skill, ...] = ()

    @property
    def prompt(self) -> str:
        """What is added to an agent's instructions."""
        parts = [self.instructions]
        if self.skills:
            lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in self.skills)
            parts.append(f"Skills you can read with the tool `skill`:\n{lines}")
        return "\n\n".join(part for part in parts if part)


def load_project(root: str | os.PathLike[str]) -> Project:
    """Read AGENTS.md and the skills of a folder; what is not there is left out."""
    root = _folder(root, "project")
    skills = []
    for folder in _entries(root / ".agents" / "skills"):
        if (text := _read(folder / "SKILL.md")) is None:
            continue
        matter, body = front_matter(text)
        description = " ".join(matter.get("description", "").split())[:300]
        skills.append(Skill(name=folder.name, description=description, text=body))
    return Project(instructions=_read(root / "AGENTS.md") or "", skills=tuple(skills))


def _folder(path: str | os.PathLike[str], option: str) -> Path:
    if not Path(path).is_dir():
        raise ConfigError(f"{option}: there is no folder {os.fspath(path)}")
    return Path(path)


def load_roles(folder: str | os.PathLike[str]) -> Mapping[str, Role]:
    """Read every `*.md` of a folder as a role."""
    roles = {}
    for path in _entries(_folder(folder, "roles")):
        if path.suffix != ".md" or (text := _read(path)) is None:
            continue
        matter, body = front_matter(text)
        roles[path.stem] = Role(
            name=path.stem,
            instructions=body.strip(),
            description=matter.get("description", ""),
            model=matter.get("model", ""),
        )
    return roles


def find_role(roles: Mapping[str, Role] | str | os.PathLike[str] | None, name: str) -> Role:
    """Look a role up by name; raises ConfigError that lists what there is."""
    if isinstance(roles, (str, os.PathLike)):
        roles = load_roles(roles)
    if not roles or name not in roles:
        there = ", ".join(sorted(roles or ())) or "none; give the agent roles="
        raise ConfigError(f"there is no role {name!r}; there are: {there}")
    return roles[name]


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Split off `key: value` lines between two lines of dashes at the start."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return {}, text
    for end, line in enumerate(lines[1:], 1):
        if line.strip() == "---":
            pairs = (entry.partition(":") for entry in lines[1:end])
            matter = {key.strip(): value.strip().strip("\"'") for key, colon, value in pairs if colon}
            return matter, "".join(lines[end + 1 :]).lstrip("\n")
    return {}, text


def skill_tool(skills: Iterable[Skill]) -> Tool[..., Any]:
    """Make the tool by which a model reads a skill in full."""
    texts = {skill.name: skill.text for skill in skills}
    names = {"type": "string", "enum": list(texts)}
    parameters = {"type": "object", "properties": {"name": names}, "required": ["name"]}

    async def read(arguments: dict[str, str]) -> str:
        return texts[arguments["name"]]

    return Tool.from_schema("skill", "Read one of the project's skills in full.", parameters, read)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str | None:
    """Read a regular file, shortened with a word about it; None where there is none."""
    try:
        # A link could lead out of the project, and a pipe would never end.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = file.read(MOST + 1)
    text = data[:MOST].decode(errors="replace").strip()
    return f"{text}\n[{path.name} is longer than {MOST} bytes; the rest is left out]" if len(data) > MOST else text
