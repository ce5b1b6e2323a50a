"""Find security mistakes in CI workflows, such as running code of a pull request with secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDERS = (".github", ".gitea", ".forgejo")
_HEAD = re.compile(
    r"ref:\s*.*(?:github\.event\.pull_request\.head|github\.head_ref|refs/pull/)|gh pr checkout"
)
_UNTRUSTED = re.compile(
    r"\$\{\{[^}]*github\.(?:event\.(?:pull_request\.(?:title|body|head\.ref|head\.label)"
    r"|issue\.(?:title|body)|comment\.body|review\.body|head_commit\.message"
    r"|commits|pages|workflow_run\.head_branch)|head_ref)[^}]*\}\}"
)
_USES = re.compile(r"^\s*-?\s*uses:\s*['\"]?(?P<what>[^\s'\"#]+)")
_PINNED = re.compile(r"@[0-9a-f]{40}$")


@dataclass(frozen=True, slots=True)
class WorkflowProblem:
    """A security mistake on one line of a CI workflow."""

    path: str
    line: int
    level: str  # error or warning
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.level}: {self.text}"


def examine(root: str | Path) -> list[WorkflowProblem]:
    """Return the problems of all workflow files in the checkout `root`."""
    top = Path(root)
    found = (
        path for folder in _FOLDERS for path in top.glob(f"{folder}/workflows/*") if path.is_file()
    )
    files = sorted(path for path in found if path.suffix in (".yml", ".yaml"))
    texts = {
        str(path.relative_to(top)): path.read_text(encoding="utf-8", errors="replace")
        for path in files
    }
    return [problem for path, text in texts.items() for problem in workflow(text, path)]


def workflow(text: str, path: str = "workflow.yml") -> list[WorkflowProblem]:
    """Return the problems of one workflow, whose text is `text` and whose file is `path`.

    The text is read line by line and not as YAML, which is enough for the usual layout.
    """
    return [WorkflowProblem(path, *fault) for fault in _faults(text.split("\n"))]


def _faults(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    bare = [re.sub(r"(?:^|\s)#.*", "", line) for line in lines]
    whole = "\n".join(bare)
    privileged = re.search(r"\bpull_request_target\b|\bworkflow_run\b|\bissue_comment\b", whole)
    head = next((number for number, line in enumerate(bare, 1) if _HEAD.search(line)), 0)
    if privileged and head:
        text = (
            f"{privileged.group()} runs with secrets and checks out the head: anybody who opens a"
            " pull request can run code with them; read git objects instead, or use pull_request"
        )
        yield head, "error", text
    if not re.search(r"^\s*permissions:", whole, re.MULTILINE):
        text = (
            "no `permissions:` key, so the token gets the default permissions of the repository,"
            " often write access; list the permissions that are needed"
        )
        yield 1, "warning", text
    if re.search(r"^\s*permissions:\s*write-all", whole, re.MULTILINE):
        number = next(n for n, line in enumerate(bare, 1) if "write-all" in line)
        text = "`permissions: write-all` gives every job all permissions; list only the needed ones"
        yield number, "error", text
    inside: int | None = None
    for number, line in enumerate(bare, 1):
        started = re.match(r"[\s-]*(?=run:)", line)
        if started:
            inside = started.end()
        elif line.strip() and inside is not None and len(line) - len(line.lstrip()) <= inside:
            inside = None
        if inside is not None and _UNTRUSTED.search(line):
            text = (
                "text of the pull request is inserted into a script;"
                " pass it as an `env:` variable instead"
            )
            yield number, "error", text
        what = used["what"] if (used := _USES.match(line)) else ""
        if what.startswith("./"):
            if head and number > head:
                level = "error" if privileged else "warning"
                text = (
                    f"`uses: {what}` runs code of the pull request,"
                    " because an earlier step checks out the head"
                )
                yield number, level, text
        elif what.startswith("docker://"):
            if "@sha256:" not in what:
                yield number, "warning", f"{what} is not pinned; add its @sha256 digest"
        elif what and not _PINNED.search(what):
            text = f"{what} is not pinned, so its code can change; name a full commit hash"
            yield number, "warning", text
    if privileged and re.search(r"persist-credentials:\s*true", whole):
        text = (
            "`persist-credentials: true` leaves the token in .git/config, where every later step"
            " can read it; set it to false"
        )
        yield 1, "warning", text
