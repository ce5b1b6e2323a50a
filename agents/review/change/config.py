"""The review's settings, read from the merge-base: a change never chooses the rules it is reviewed by."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from glue.agents.review.records import CONFIDENCES, SEVERITIES, Change, Confidence, Severity
from glue.errors import ConfigError
from glue.tools.fs import Blocklist

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
    fail_on: Severity | None = "high"
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
    known = {one.name: one for one in fields(Config)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        key = name.replace("-", "_")
        if key not in known:
            raise ConfigError(f"{where}: unknown setting {name!r}; there are: {', '.join(sorted(known))}")
        values[key] = _value(key, value, where)
    return Config(**values)


def _value(name: str, value: Any, where: str) -> Any:
    choices: dict[str, tuple[str, ...]] = {
        "fail_on": (*SEVERITIES, "never"),
        "min_severity": SEVERITIES,
        "min_confidence": CONFIDENCES,
    }
    if name in choices:
        if value not in choices[name]:
            raise ConfigError(f"{where}: {name} must be one of {', '.join(choices[name])}, not {value!r}")
        return None if value == "never" else value
    sample = getattr(Config(), name)
    if isinstance(sample, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{where}: {name} must be a list of texts, not {value!r}")
        return tuple(value)
    if isinstance(sample, dict):
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise ConfigError(f"{where}: {name} must be a table of texts, not {value!r}")
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    if sample is None or isinstance(sample, float):
        if not number:
            raise ConfigError(f"{where}: {name} must be a number of 0 or more, not {value!r}")
        return float(value)
    if type(value) is not type(sample) or (isinstance(value, int) and value < 0):
        kinds: dict[type, str] = {str: "a text", int: "a whole number of 0 or more", bool: "true or false"}
        raise ConfigError(f"{where}: {name} must be {kinds[type(sample)]}, not {value!r}")
    return value


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


def why_skip(path: str, config: Config) -> str:
    """The reason why a file is left out of the review, or nothing."""
    if blocklist(config).blocks(path):
        return "blocked: may hold secrets"
    if config.include and not matches(path, config.include):
        return "not included by config"
    if matches(path, config.exclude):
        return "generated or excluded by config"
    return ""


def why_not(change: Change, config: Config) -> str:
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
