"""Files that belong together: lock files and manifests, migrations and their way back, the review's own settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from glue.agents.review.change.config import CONFIG_FILES, is_guideline
from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

LOCK_BEHIND = Rule(
    name="lockfile-drift",
    category="process",
    severity="medium",
    confidence="high",
    title="Dependencies changed, but `{lock}` did not",
    body="`{manifest}` asks for other dependencies and `{lock}` still pins the old ones: a clean install fails, or "
    "installs "
    "something else than was tested.",
    acceptance="`{lock}` is regenerated and part of the change.",
)
NO_WAY_BACK = Rule(
    name="migration-without-down",
    category="process",
    severity="medium",
    confidence="high",
    title="The migration has no way back",
    body="{what}, so it cannot be undone when the deployment goes wrong.",
    acceptance="The migration can be undone, or says why that is impossible.",
)
OWN_RULES = Rule(
    name="review-rules-changed",
    category="process",
    severity="medium",
    confidence="high",
    title="This change edits the rules it is reviewed by",
    body="`{path}` steers the review. The version of the base branch was used for this review; the new one needs a "
    "person's eye.",
    acceptance="A maintainer has read the new rules.",
)

_LOCKS = {
    "package.json": ("package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lockb"),
    "pyproject.toml": ("poetry.lock", "uv.lock", "pdm.lock"),
    "Pipfile": ("Pipfile.lock",),
    "go.mod": ("go.sum",),
    "Cargo.toml": ("Cargo.lock",),
    "Gemfile": ("Gemfile.lock",),
    "composer.json": ("composer.lock",),
}
_DEPENDENCY = {
    "package.json": re.compile(r"^\s*\"[@\w./-]+\"\s*:\s*\"[\^~><=]*\s*v?\d[\w.+-]*\""),
    "pyproject.toml": re.compile(r"^\s*(?:\"[\w.\[\]-]+\s*(?:[<>=~!^].*)?\"\s*,?|[\w-]+\s*=\s*[\"{][\^~><=\d].*)\s*$"),
    "go.mod": re.compile(r"^\s*(?:require\s+)?[\w.-]+\.[\w./-]+\s+v\d"),
}
_NOT_A_DEPENDENCY = re.compile(
    r"\"(?:version|name|node|main|type|engines|description)\"\s*:|^\s*(?:version|requires-python|target-version|line-length)\b"
)


def check(project: Project) -> Iterator[Finding]:
    touched = {file.path for file in project.bundle.files} | {skip.path for skip in project.bundle.skipped}
    known = {*project.bundle.paths, *touched}
    for view in project.views:
        yield from _lock(view, touched, known)
        yield from _migration(view, known)
        if view.path in CONFIG_FILES or is_guideline(view.path):
            yield from OWN_RULES.at(view, min(view.added, default=1), path=view.path)


def _lock(view: View, touched: set[str], known: set[str]) -> Iterator[Finding]:
    path = PurePosixPath(view.path)
    changed = [line for line in view.file.added if _is_dependency(path.name, line.text)]
    before = {" ".join(line.text.split()).rstrip(",") for line in view.file.deleted}
    changed = [line for line in changed if " ".join(line.text.split()).rstrip(",") not in before]
    if not changed or changed[0].new is None:
        return
    locks = [str(path.parent / name).removeprefix("./") for name in _LOCKS.get(path.name, ())]
    present = [lock for lock in locks if lock in known]
    if present and not any(lock in touched for lock in present):
        yield from LOCK_BEHIND.at(view, changed[0].new, lock=present[0], manifest=view.path)


def _is_dependency(name: str, text: str) -> bool:
    pattern = _DEPENDENCY.get(name)
    return pattern is not None and pattern.match(text) is not None and not _NOT_A_DEPENDENCY.search(text)


def _migration(view: View, known: set[str]) -> Iterator[Finding]:
    if view.file.status != "added":
        return
    if view.path.endswith(".up.sql") and view.path.removesuffix(".up.sql") + ".down.sql" not in known:
        yield from NO_WAY_BACK.at(view, 1, what="There is no `.down.sql` beside it")
    elif "migrations/" in view.path or "versions/" in view.path or "alembic" in view.path:
        text = view.source.code
        if match := re.search(r"RunPython\(\s*[\w.]+\s*\)", text):
            yield from NO_WAY_BACK.at(
                view, view.source.line_of(match.start()), what="`RunPython` is given no reverse function"
            )
        elif match := re.search(r"def downgrade\([^)]*\)[^:]*:\s*\n\s*pass\s*$", text, re.MULTILINE):
            yield from NO_WAY_BACK.at(
                view,
                view.source.line_of(match.start()),
                view.source.line_of(match.end()),
                what="`downgrade` does nothing",
            )
        elif re.search(r"\bexports\.up\b", text) and not re.search(r"\bexports\.down\b", text):
            number = view.source.line_of(text.index("exports.up"))
            yield from NO_WAY_BACK.at(view, number, what="It exports `up` and no `down`")
