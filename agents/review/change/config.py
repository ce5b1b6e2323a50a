"""The settings of a review.

They are read from the merge-base, so a change cannot choose the rules it is reviewed by.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from glue.agents.review.records import (
    Confidence,
    FailOn,
    ReviewedChange,
    SecondLookMode,
    Severity,
    SkippedFile,
)
from glue.codec import from_json
from glue.errors import ConfigError
from glue.tools.fs import Blocklist
from glue.tools.git.pathspec import Scope

MAX_LINES = 20_000  # changed lines of one file; a file with more is "too large"
CONFIG_FILES = (".glue/review.toml", ".glue-review.toml", "glue-review.toml")
GUIDELINE_FILES = (
    "AGENTS.md",
    "CLAUDE.md",
    "REVIEW.md",
    ".glue/review.md",
    ".github/copilot-instructions.md",
    ".cursorrules",
)
DISMISSED_FILE = ".glue/dismissed"  # one fingerprint and its reason on each line
NOT_INCLUDED = "not included by config"  # the reason to skip a file
GENERATED_FILES = (
    "*.min.js", "*.min.css", "*.map", "*.pb.go", "*_pb2.py", "*.snap", "package-lock.json",
    "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "go.sum", "Cargo.lock",
    "**/vendor/**", "**/node_modules/**", "**/dist/**",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings that a repository may write in `.glue/review.toml`."""

    include: tuple[str, ...] = ()  # globs; empty means everything
    exclude: tuple[str, ...] = GENERATED_FILES
    # More file names that no model may see; `!name` removes one from the built-in list.
    secret_files: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()  # names of rules
    fail_on: FailOn = "high"
    min_severity: Severity = "medium"  # less severe findings are folded in the sticky comment
    min_confidence: Confidence = "low"
    max_findings: int = 6  # comments on lines; further findings are folded
    language: str = "en"
    prompt: str = ""  # version of the built-in instructions, such as "v1"; default the newest
    instructions: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)  # glob -> instructions for those files
    guidelines: tuple[str, ...] = GUIDELINE_FILES
    skip_titles: tuple[str, ...] = ("[skip-review]", "[skip review]")
    skip_labels: tuple[str, ...] = ("skip-review",)
    skip_authors: tuple[str, ...] = ()
    skip_drafts: bool = False
    model: str = ""
    second_look: SecondLookMode = "auto"  # check the model's findings before they are posted
    samples: int = 1  # checks of each finding; it is refuted only if all agree
    max_turns: int = 24
    max_tokens: int = 400_000
    max_usd: float | None = None
    max_seconds: float = 600.0
    chunk_tokens: int = 12_000
    require_coverage: float = 0.0


def read_config(text: str, where: str = "review config") -> dict[str, Any]:
    """Parse a config file and return its content as a dict, from which `make` builds a Config.

    Raise ConfigError if the text is not TOML or a setting is wrong. `where` names the file in
    the message.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from error
    make(data, where)
    return data


def make(data: Mapping[str, Any], where: str = "review config") -> Config:
    """Build a Config from the content of a config file; raise ConfigError if a setting is wrong."""
    known = {setting.name for setting in fields(Config)}
    values = {name.replace("-", "_"): data[name] for name in data}
    if unknown := sorted(set(values) - known):
        raise ConfigError(
            f"{where}: unknown setting {unknown[0]!r}; the settings are: {', '.join(sorted(known))}"
        )
    try:
        config = from_json(Config, values)
    except ValueError as error:
        reason = str(error).lstrip(".").replace("an object", "a table")  # the word of TOML
        raise ConfigError(f"{where}: {reason}") from error
    for name in values:
        value = getattr(config, name)
        if isinstance(value, int | float) and value < 0:
            kind = "a number" if isinstance(value, float) else "a whole number"
            raise ConfigError(f"{where}: {name} must be {kind} of 0 or more, not {value!r}")
    if config.samples < 1:
        raise ConfigError(
            f'{where}: samples must be 1 or more; to check no findings, set second_look = "never"'
        )
    return config


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a file matches one of the globs in `patterns`, read as in a .gitignore.

    A glob without `/` matches the name of the file, or of a folder above it, at any depth. A glob
    with `/` starts at the top of the repository. `*` matches within one name, `**` across folders.

    >>> matches("gen/api/a.py", ("gen",)), matches("src/gen/a.py", ("gen/**",))
    (True, False)
    """
    scope = _scope(patterns)
    return bool(scope.included) and scope.covers(path)


@lru_cache(maxsize=64)
def _scope(patterns: tuple[str, ...]) -> Scope:
    return Scope(patterns)


def blocklist(config: Config) -> Blocklist:
    """Return the blocklist of files whose content no model may see, in the diff or by a tool."""
    added = [name for name in config.secret_files if not name.startswith("!")]
    allowed = [name for name in config.secret_files if name.startswith("!")]
    return Blocklist.default().merge(added, allow=allowed)


def skip(path: str, config: Config, *, old_path: str = "", lines: int = 0) -> SkippedFile | None:
    """Return a SkippedFile with the reason if a file is left out of the review, else None."""
    secret = blocklist(config)
    if secret.blocks(path) or secret.blocks(old_path):
        return SkippedFile(
            path=path, kind="blocked", reason="blocked: may contain secrets", lines=lines
        )
    if config.include and not matches(path, config.include):
        return SkippedFile(path=path, reason=NOT_INCLUDED, lines=lines)
    if matches(path, config.exclude):
        return SkippedFile(path=path, reason="generated or excluded by config", lines=lines)
    if lines > MAX_LINES:
        return SkippedFile(
            path=path, kind="too_large", reason=f"too large: {lines} changed lines", lines=lines
        )
    return None


def why_not(change: ReviewedChange, config: Config) -> str:
    """Return the reason why a change is not reviewed at all, or "" if it is."""
    title = change.title.lower()
    for mark in config.skip_titles:
        if mark.lower() in title:
            return f"the title contains {mark}"
    if label := next((label for label in change.labels if label in config.skip_labels), ""):
        return f"it has the label {label}"
    if change.author and change.author in config.skip_authors:
        return f"changes by {change.author} are not reviewed"
    if change.draft and config.skip_drafts:
        return "it is a draft"
    message = change.commits[0].message.lower() if change.commits else ""
    for mark in config.skip_titles:
        if mark.lower() in message:
            return f"the last commit contains {mark}"
    return ""
