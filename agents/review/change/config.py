"""The settings of a review, and the decision which files and changes are reviewed.

The settings are read from the merge-base, so a change cannot choose the rules of its own review.
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
DISMISSED_FILE = ".glue/dismissed"  # decisions on earlier findings, one on each line
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
    # More patterns of files that no model may see; `!name` allows a file of the built-in list.
    secret_files: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()  # names of rules
    fail_on: FailOn = "high"
    min_severity: Severity = "medium"  # less severe findings are folded in the sticky comment
    min_confidence: Confidence = "low"  # less certain findings are folded too
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
    samples: int = 1  # checks of each finding; the finding is dropped only if all refute it
    max_turns: int = 24  # of the run that reviews one chunk
    max_tokens: int = 400_000  # of the whole review, like the two limits below
    max_usd: float | None = None
    max_seconds: float = 600.0
    chunk_tokens: int = 12_000  # size of one chunk of the diff
    require_coverage: float = 0.0  # percent of the change that must be read; 0 requires nothing


def read_config(text: str, where: str = "review config") -> dict[str, Any]:
    """Parse and check the text of a config file, and return its settings as a dict.

    Raise ConfigError if the text is not TOML or a setting is wrong. `where` names the file in
    the message. `make` builds a Config from the dict.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: this is not valid TOML: {error}") from error
    make(data, where)
    return data


def make(data: Mapping[str, Any], where: str = "review config") -> Config:
    """Return the Config for the settings in `data`; raise ConfigError if one of them is wrong.

    `where` names the config file in the message.
    """
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
    """Return whether a file matches a glob in `patterns`: as in a .gitignore, but without `!`.

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
    """Return the Blocklist of files that may contain secrets: built-in patterns and `secret_files`.

    A pattern `!name` in `secret_files` allows a file that a built-in pattern blocks. No model may
    see the content of blocked files, neither in the diff nor through a tool.
    """
    added = [name for name in config.secret_files if not name.startswith("!")]
    allowed = [name for name in config.secret_files if name.startswith("!")]
    return Blocklist.default().merge(added, allow=allowed)


def skip(path: str, config: Config, *, old_path: str = "", lines: int = 0) -> SkippedFile | None:
    """Return a SkippedFile with the reason if a file is left out of the review, else None.

    `old_path` is the name before a rename. `lines` is the number of changed lines, if known.
    """
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
    """Return the reason why the settings exclude a whole change from review, or "" if they do not.

    The reason is a mark in the title or in the newest commit message, a label, the author, or that
    the change is a draft.
    """
    title = change.title.lower()
    for mark in config.skip_titles:
        if mark.lower() in title:
            return f"the title contains {mark!r}"
    if label := next((label for label in change.labels if label in config.skip_labels), ""):
        return f"the change has the label {label}"
    if change.author and change.author in config.skip_authors:
        return f"changes by {change.author} are not reviewed"
    if change.draft and config.skip_drafts:
        return "the change is a draft"
    message = change.commits[0].message.lower() if change.commits else ""
    for mark in config.skip_titles:
        if mark.lower() in message:
            return f"the message of the last commit contains {mark!r}"
    return ""
