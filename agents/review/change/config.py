"""The review's settings, read from the merge-base: a change never chooses the rules it is reviewed by."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

import glue
from glue.agents.review.records import Confidence, FailOn, ReviewedChange, Severity, SkippedFile
from glue.errors import ConfigError
from glue.tools.fs import Blocklist

MAX_LINES = 20_000  # of one file's change; more is "too large"
CONFIG_FILES = (".glue/review.toml", ".glue-review.toml", "glue-review.toml")
GUIDELINE_FILES = (
    "AGENTS.md",
    "CLAUDE.md",
    "REVIEW.md",
    ".glue/review.md",
    ".github/copilot-instructions.md",
    ".cursorrules",
)
DISMISSED_FILE = ".glue/dismissed"  # of the merge-base: one fingerprint and its reason a line
GENERATED_FILES = (
    "*.min.js", "*.min.css", "*.map", "*.pb.go", "*_pb2.py", "*.snap", "package-lock.json", "yarn.lock",
    "pnpm-lock.yaml", "poetry.lock",     "uv.lock", "go.sum", "Cargo.lock", "vendor/**", "node_modules/**", "dist/**",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a repository may set in its `.glue/review.toml`."""

    include: tuple[str, ...] = ()  # globs; empty means everything
    exclude: tuple[str, ...] = GENERATED_FILES
    secret_files: tuple[str, ...] = ()  # more names that no model may see; `!name` takes one off the built-in list
    disable: tuple[str, ...] = ()  # names of rules
    fail_on: FailOn = "high"
    min_severity: Severity = "medium"  # milder findings are folded into the sticky comment
    min_confidence: Confidence = "low"
    max_findings: int = 6  # comments on lines; the rest is folded
    language: str = "en"
    instructions: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)  # glob -> instructions for those files
    guidelines: tuple[str, ...] = GUIDELINE_FILES
    skip_titles: tuple[str, ...] = ("[skip-review]", "[skip review]")
    skip_labels: tuple[str, ...] = ("skip-review",)
    skip_authors: tuple[str, ...] = ()
    skip_drafts: bool = False
    model: str = ""
    max_turns: int = 24
    max_tokens: int = 400_000
    max_usd: float | None = None
    max_seconds: float = 600.0
    chunk_tokens: int = 12_000
    require_coverage: float = 0.0


def read_config(text: str, where: str = "review config") -> dict[str, Any]:
    """Parse a config file into plain data; `make` gives it its meaning."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from error
    make(data, where)
    return data


def make(data: Mapping[str, Any], where: str = "review config") -> Config:
    """Check plain data and make a Config of it."""
    known, values = {one.name for one in fields(Config)}, {name.replace("-", "_"): data[name] for name in data}
    if unknown := sorted(set(values) - known):
        raise ConfigError(f"{where}: unknown setting {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    try:
        config = glue.from_json(Config, values)
    except ValueError as error:
        said = str(error).lstrip(".").replace("an object", "a table")  # as TOML calls it
        raise ConfigError(f"{where}: {said}") from error
    for name in values:
        value = getattr(config, name)
        if isinstance(value, int | float) and value < 0:
            kind = "a number" if isinstance(value, float) else "a whole number"
            raise ConfigError(f"{where}: {name} must be {kind} of 0 or more, not {value!r}")
    return config


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path fits a glob: by its name, by its whole path, or below a directory written as `dir/**`."""
    name = path.rsplit("/", 1)[-1]
    for pattern in patterns:
        if "/" not in pattern and fnmatchcase(name, pattern):
            return True
        if fnmatchcase(path, pattern) or (pattern.startswith("**/") and fnmatchcase(path, pattern[3:])):
            return True
        if pattern.endswith("/**") and re.search(rf"(?:^|/){re.escape(pattern[:-3])}/", path):
            return True
    return False


def blocklist(config: Config) -> Blocklist:
    """The files whose content must reach no model: not in the diff, not through a tool."""
    return Blocklist.default().merge(config.secret_files)


def skip(path: str, config: Config, *, old_path: str = "", lines: int = 0) -> SkippedFile | None:
    """Say why a file is left out of the review; None where it is read."""
    secret = blocklist(config)
    if secret.blocks(path) or secret.blocks(old_path):
        return SkippedFile(path=path, kind="blocked", reason="blocked: may hold secrets", lines=lines)
    if config.include and not matches(path, config.include):
        return SkippedFile(path=path, reason="not included by config", lines=lines)
    if matches(path, config.exclude):
        return SkippedFile(path=path, reason="generated or excluded by config", lines=lines)
    if lines > MAX_LINES:
        return SkippedFile(path=path, kind="too_large", reason=f"too large: {lines} changed lines", lines=lines)
    return None


def why_not(change: ReviewedChange, config: Config) -> str:
    """Say why a change is not reviewed at all; the empty text where it is."""
    title = change.title.lower()
    for mark in config.skip_titles:
        if mark.lower() in title:
            return f"the title says {mark}"
    if label := next((label for label in change.labels if label in config.skip_labels), ""):
        return f"it has the label {label}"
    if change.author and change.author in config.skip_authors:
        return f"changes by {change.author} are not reviewed"
    if change.draft and config.skip_drafts:
        return "it is a draft"
    last = change.commits[0].message.lower() if change.commits else ""
    return next((f"the last commit says {mark}" for mark in config.skip_titles if mark.lower() in last), "")
