"""Documentation that no longer says what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View, is_doc
from glue.agents.review.records import Finding

UNKNOWN = Rule(
    name="docs-name-unknown",
    category="docs",
    severity="low",
    confidence="high",
    title="The docs name {kind} `{new}`, which the code does not have",
    body="The text was changed from `{old}` to `{new}`, but this change adds no such {kind} and no code mentions it: "
    "who follows the "
    "text gets an error. Change the code as well, or leave the text.",
    acceptance="Every {kind} the text names exists in the code.",
)
STALE = Rule(
    name="docs-stale",
    category="docs",
    severity="medium",
    confidence="high",
    title="The docs still name `{old}`",
    body="This change replaces {kind} `{old}` by `{new}`, and {where} still tells readers to use `{old}`.",
    acceptance="No document names `{old}` any more.",
)

_ROUTE = re.compile(
    r"(?:\b(?:GET|POST|PUT|PATCH|DELETE|HEAD)\s+|(?:localhost|127\.0\.0\.1)(?::\d+)?)(?P<name>/[\w/{}:.<>-]*)"
)
_FLAG = re.compile(r"(?<![\w-])(?P<name>--[a-z][\w-]+)")
_CODE_ROUTE = re.compile(
    r"""(?:\.(?:get|post|put|patch|delete|route|Handle|HandleFunc|GET|POST|PUT|PATCH|DELETE)|path)\(\s*['"](?P<name>/?[\w/{}:.<>-]+)['"]"""
)
_CODE_FLAG = re.compile(
    r"""(?:add_argument|option)\([^)]*?['"](?P<name>--[a-z][\w-]+)['"]|\.\w+(?:Var)?\([^)]*?['"](?P<go>[a-z][\w-]+)['"]\s*,"""
)


def check(project: Project) -> Iterator[Finding]:
    for view in project.views:
        if view.is_doc:
            yield from _docs(view, project)
        elif view.language and not view.is_test:
            yield from _code(view, project)


def _docs(view: View, project: Project) -> Iterator[Finding]:
    for old, new in view.pairs:
        for kind, pattern in (("a route", _ROUTE), ("a flag", _FLAG)):
            before = {match["name"] for match in pattern.finditer(old.text)}
            after = {match["name"] for match in pattern.finditer(new.text)}
            gone, come = sorted(before - after), sorted(after - before)
            if len(gone) != 1 or len(come) != 1 or new.new is None:
                continue
            words = [word for word in re.split(r"[/{}<>:.]", come[0]) if len(word) > 2]
            if words and not _known(words[-1].lstrip("-"), project):
                yield from UNKNOWN.at(view, new.new, kind=kind.removeprefix("a "), old=gone[0], new=come[0])


def _known(word: str, project: Project) -> bool:
    """Whether any code, of the change or of the repository, holds the word."""
    return project.mentions(word) is True or any(
        word in line.text for view in project.code_views() for line in view.file.added
    )


def _code(view: View, project: Project) -> Iterator[Finding]:
    """A route or a flag that was renamed in the code while a document still has the old name."""
    for old, new in view.pairs:
        for kind, pattern in (("the route", _CODE_ROUTE), ("the flag", _CODE_FLAG)):
            was, now = (pattern.search(line.text) for line in (old, new))
            if was is None or now is None or new.new is None:
                continue
            before, after = _shown(was), _shown(now)
            if before == after or len(before) < 4 or project.mentions(before):
                continue
            docs = [path for path, text in project.bundle.head.items() if is_doc(path) and _names(before, text)]
            if docs:
                yield from STALE.at(view, new.new, kind=kind, old=before, new=after, where=docs[0])


def _shown(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return groups["name"] or (f"--{groups['go']}" if groups.get("go") else "")


def _names(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w/-]){re.escape(word)}(?![\w/-])", text) is not None
