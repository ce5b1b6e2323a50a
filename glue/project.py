"""Project context: AGENTS.md, skills and roles, which are read from a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glue.errors import ConfigError
from glue.function.decorator import Tool

MAX_BYTES = 32 * 1024  # of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Named instructions from `roles/NAME.md`. The front matter may name a model."""

    name: str
    instructions: str
    description: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A text that the model can read on demand, from `.agents/skills/NAME/SKILL.md`."""

    name: str
    description: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The instructions and skills found in a folder."""

    instructions: str = ""
    skills: tuple[Skill, ...] = ()

    @property
    def prompt(self) -> str:
        """The text that is added to an agent's instructions: AGENTS.md and a list of the skills."""
        parts = [self.instructions]
        if self.skills:
            lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in self.skills)
            parts.append(f"Skills you can read with the tool `skill`:\n{lines}")
        return "\n\n".join(part for part in parts if part)


def load_project(root: str | os.PathLike[str]) -> Project:
    """Return a Project with the text of AGENTS.md and the skills in the folder `root`.

    The text is empty if AGENTS.md does not exist. Raise ConfigError if `root` does not exist.
    """
    root = _folder(root, "project")
    skills = []
    for folder in _entries(root / ".agents" / "skills"):
        text = _read(folder / "SKILL.md")
        if text is None:
            continue
        matter, body = front_matter(text)
        description = " ".join(matter.get("description", "").split())[:300]
        skills.append(Skill(name=folder.name, description=description, text=body))
    return Project(instructions=_read(root / "AGENTS.md") or "", skills=tuple(skills))


def find_checkout(folder: str | os.PathLike[str] = ".") -> Path | None:
    """Return the top folder of the git checkout that contains `folder`, or None."""
    here = Path(folder).resolve()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), None)


def project_folder(folder: str | os.PathLike[str] = ".") -> Path:
    """Return the top folder of the git checkout that contains `folder`, or else `folder`.

    AGENTS.md and the skills are read from the returned folder.
    """
    return find_checkout(folder) or Path(folder).resolve()


def _folder(path: str | os.PathLike[str], option: str) -> Path:
    if not Path(path).is_dir():
        raise ConfigError(f"{option}: there is no folder {os.fspath(path)}")
    return Path(path)


def load_roles(folder: str | os.PathLike[str]) -> Mapping[str, Role]:
    """Read each `*.md` file in a folder as a role, and return the roles by file name without `.md`.

    Links are skipped. Raise ConfigError if the folder does not exist.
    """
    roles = {}
    for path in _entries(_folder(folder, "roles")):
        text = _read(path) if path.suffix == ".md" else None
        if text is None:
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
    """Return the role called `name` from a mapping of roles, or from a folder of role files.

    If the role does not exist, raise a ConfigError that lists the known names.
    """
    if isinstance(roles, (str, os.PathLike)):
        roles = load_roles(roles)
    if not roles or name not in roles:
        known = ", ".join(sorted(roles or ())) or "none; pass roles= to the agent"
        raise ConfigError(f"there is no role {name!r}; there are: {known}")
    return roles[name]


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the fields of a text's front matter as a dict, and the rest of the text.

    Front matter is a block of `key: value` lines between two lines of `---` at the start. If there
    is none, return an empty dict and the whole text.
    """
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return {}, text
    for end, line in enumerate(lines[1:], 1):
        if line.strip() == "---":
            pairs = (entry.partition(":") for entry in lines[1:end])
            matter = {
                key.strip(): value.strip().strip("\"'") for key, colon, value in pairs if colon
            }
            return matter, "".join(lines[end + 1 :]).lstrip("\n")
    return {}, text


def skill_tool(skills: Iterable[Skill]) -> Tool[..., Any]:
    """Return the tool with which a model reads the whole text of a skill."""
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
    """Return the text of a file, or None if it is not a regular file or cannot be opened.

    Links are not followed. A text that is longer than MAX_BYTES is cut, and a note is added.
    """
    try:
        # A link could lead out of the project, and a pipe would never end.
        posix_flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | posix_flags)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = file.read(MAX_BYTES + 1)
    text = data[:MAX_BYTES].decode(errors="replace").strip()
    if len(data) > MAX_BYTES:
        text += f"\n[{path.name} is longer than {MAX_BYTES} bytes; the rest is left out]"
    return text
