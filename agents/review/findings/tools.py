"""Tools of the reviewing model: it reads files and history, reports findings, and finishes. Nothing writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from glue import Tool, tool
from glue.agents.review.change.collect import file_text
from glue.agents.review.change.config import Config, blocklist
from glue.agents.review.findings import gate
from glue.agents.review.findings.anchor import MIN_QUOTE, anchor, fault, weakens_test
from glue.agents.review.findings.rules import strip_hidden
from glue.agents.review.records import Bundle, Category, Confidence, Finding, Severity
from glue.errors import GitError, ToolError
from glue.tools.fs import Blocklist
from glue.tools.git import Repo, commit_page

LINES = 400  # of one page
HITS = 60
DISAGREE = "test and code disagree"
Side = Literal["head", "base"]


class ReviewDraft:
    """The review as the model writes it: findings and a summary, each checked as it comes."""

    def __init__(self, bundle: Bundle, config: Config, *, source: str, known: Sequence[Finding] = ()) -> None:
        self.bundle = bundle
        self.config = config
        self.source = source
        self.findings: list[Finding] = []
        self.refused: list[Finding] = []
        self.summaries: list[str] = []
        self.finished = False
        self.read: list[str] = []  # what the reading tools showed
        self.on_finding: Callable[[Finding], None] = lambda finding: None
        self._refusals = 0
        self._context = gate.context(bundle)
        self._known = {(finding.path, finding.line, finding.category) for finding in known}

    def report(self, finding: Finding) -> str:
        """Check a finding and take it; what is wrong with it is a ToolError."""
        try:
            placed, notes = self._checked(finding)
        except ToolError:
            self.refused.append(replace(finding, dropped=gate.ANSWERED))
            raise
        self.findings.append(placed)
        self.on_finding(placed)
        return " ".join([f"Recorded as finding {len(self.findings)} on {placed.where}.", *notes])

    def finish(self, summary: str) -> str:
        """Take the summary, and the run ends with it. What is wrong with one is said twice; then it does without."""
        codes = gate.summary_codes(summary, self.shown, language=self.config.language)
        if codes and self._refusals < 2:
            self._refusals += 1
            known = (gate.REFUSALS["summary"][code] for code in codes if code in gate.REFUSALS["summary"])
            fault = next(known, f"it is not plain prose about this change ({codes[0]})")
            raise ToolError(f"the summary was refused: {fault}; call finish_review again")
        self.summaries.append(summary)
        self.finished = True
        return "The review is finished."

    def give_up(self) -> bool:
        """End a review whose summary was refused and not sent again: the host writes one."""
        self.finished = self.finished or self._refusals > 0
        self._refusals = 0
        return self.finished

    @property
    def shown(self) -> str:
        """Everything the model has been shown: the change, and what it read with tools."""
        return "\n".join((self._context, *self.read))

    def seen(self) -> tuple[str, ...]:
        """The names its findings speak of that stand in what it read, and not in the change."""
        spoken = {name for one in self.findings for name in gate.names(f"{one.title}\n{one.body}")}
        rest = "\n".join(self.read)
        return tuple(sorted(name for name in spoken if name not in self._context and name in rest))

    def _checked(self, finding: Finding) -> tuple[Finding, list[str]]:
        notes: list[str] = []
        if len("".join(finding.quote.split())) < MIN_QUOTE:
            short = f"the quote is too short to find; quote at least {MIN_QUOTE} characters of one line, verbatim"
            raise ToolError(short)
        paths = [file.path for file in self.bundle.files]
        placed = anchor(finding, self.bundle.files, self.bundle.head)
        if placed is None and finding.path not in paths:
            close = get_close_matches(finding.path, paths, 3, 0.5) or paths[:10]
            raise ToolError(f"{finding.path!r} is not in the diff; there are: {', '.join(close)}")
        if placed is None:
            raise ToolError("that quote is not in the diff; copy one added or shown line of it character for character")
        if placed.path != finding.path:
            notes.append(f"The quote stands in {placed.path}, so it was put there.")
        if placed.anchor in ("deleted", "file"):
            notes.append("It stands on no line of the new diff, so it will be listed without a comment on a line.")
        if code := gate.finding_code(placed, self.bundle, shown=self.shown, language=self.config.language):
            other = f"the text was refused ({code}); write plain sentences about this code"
            raise ToolError(gate.REFUSALS["finding"].get(code, other))
        same = (placed.path, placed.line, placed.category)
        near = [one for one in self.findings if (one.path, one.line) == same[:2]]
        if same in self._known or any(one.category == placed.category or one.title == placed.title for one in near):
            raise ToolError("that was reported already; go on with something else, or finish")
        if problem := fault(placed, self.bundle):
            notes.append(f"The suggestion was left out: {problem}.")
            placed = replace(placed, suggestion=None, note=problem)
        if weakens_test(placed, self.bundle):
            placed = replace(placed, suggestion=None, note=DISAGREE)
            notes.append(
                "A test is not weakened to make code pass: it will be shown as a disagreement of test and code."
            )
        return placed, notes


def tools(draft: ReviewDraft, repo: Repo | None = None) -> list[Tool[..., Any]]:
    """Make the tools of one review. Without a repository only the files of the change can be read."""
    blocked = blocklist(draft.config)
    history = [] if repo is None else _history(draft.bundle.change.head_sha or "HEAD", blocked, repo)
    return [*_reading(draft, blocked, repo), *history, *_reporting(draft)]


def _reporting(draft: ReviewDraft) -> list[Tool[..., Any]]:
    @tool
    async def report_finding(
        path: Annotated[str, "the file, as the diff names it"],
        quote: Annotated[str, "the code it is about: one line or a few, copied character for character from the diff"],
        title: Annotated[str, "the problem in one line"],
        body: Annotated[str, "what happens, when, and why it is bad; two to five sentences"],
        severity: Severity,
        confidence: Confidence,
        category: Category,
        suggestion: Annotated[
            str | None, "the whole replacement of exactly the quoted lines; leave out if unsure"
        ] = None,
        acceptance: Annotated[str, "how one sees that it is mended, in one line"] = "",
        line: Annotated[
            int | None, "the line in the new file, if known; only used where the quote occurs twice"
        ] = None,
    ) -> str:
        """Report one problem of the change. The answer says at once if something about the report is wrong."""
        return draft.report(
            Finding(
                path=path,
                quote=quote,
                title=" ".join(title.split()),
                body=body.strip(),
                severity=severity,
                confidence=confidence,
                category=category,
                suggestion=suggestion,
                acceptance=" ".join(acceptance.split()),
                source=draft.source,
                claimed=line,
            )
        )

    @tool(terminates=True)
    async def finish_review(
        summary: Annotated[str, "two to six sentences on the change and what you looked at"],
    ) -> str:
        """End the review. Call it once, alone, when everything was looked at and draft."""
        return draft.finish(summary)

    return [report_finding, finish_review]


def _reading(draft: ReviewDraft, blocked: Blocklist, repo: Repo | None) -> list[Tool[..., Any]]:
    change = draft.bundle.change
    sides = {"head": (draft.bundle.head, change.head_sha), "base": (draft.bundle.base, change.merge_base)}

    @tool(timeout=20)
    def read_file(path: str, start: int = 1, lines: int = 200, side: Side = "head") -> str:
        """Read lines of a file, as it is after the change (head) or was before it (base).

        Args:
            path: from the top of the repository
            start: first line, counted from 1
            lines: how many, at most 400
        """
        if blocked.blocks(path):
            raise ToolError(f"{path!r} may hold secrets and is not shown")
        known, rev = sides[side]
        text = known.get(path)
        if text is None and repo is not None and rev:
            with _git_errors():
                text = file_text(repo, rev, path, 1024 * 1024, links=True)
        if text is None:
            raise ToolError(f"there is no file {path!r} on the {side} side")
        rows = text.split("\n")
        first, last = max(start, 1), min(max(start, 1) + min(max(lines, 1), LINES) - 1, len(rows))
        shown = [f"{number:>6}  {strip_hidden(rows[number - 1])[:1_000]}" for number in range(first, last + 1)]
        draft.read.append("\n".join(shown))
        return f"{draft.read[-1]}\n[lines {first}-{last} of {len(rows)}]"

    @tool(timeout=20)
    def grep(pattern: str, side: Side = "head", ignore_case: bool = False) -> str:
        """Search all text files for an extended regular expression, line by line."""
        known, rev = sides[side]
        if repo is not None and rev:
            with _git_errors():
                hits = [(hit.path, hit.line, hit.text) for hit in repo.grep(pattern, rev, ignore_case=ignore_case)]
        else:
            # Python's expressions can run for ever, so without git's own engine only plain text is looked for.
            wanted = pattern.lower() if ignore_case else pattern
            lines = ((path, *row) for path, text in known.items() for row in enumerate(text.split("\n"), 1))
            hits = [row for row in lines if wanted in (row[2].lower() if ignore_case else row[2])]
        hits = [hit for hit in hits if not blocked.blocks(hit[0])]
        if not hits:
            return "nothing found"
        rows = [f"{path}:{line}: {strip_hidden(text.strip())[:300]}" for path, line, text in hits[:HITS]]
        draft.read.append("\n".join(rows))
        return draft.read[-1] + ("\n[there is more]" if len(hits) > HITS else "")

    return [read_file, grep]


def _history(head: str, blocked: Blocklist, repo: Repo) -> list[Tool[..., Any]]:
    @tool(timeout=20)
    def git_log(path: str = "", limit: int = 20) -> str:
        """List the commits before and in this change, newest first; with a path, those that touched it."""
        with _git_errors():
            commits = repo.log("", head, limit=min(max(limit, 1), 50), paths=(path,) if path else ())
        rows = [
            f"{one.sha[:12]} {one.date[:10]} {one.author}: {one.message.strip().split(chr(10))[0]}" for one in commits
        ]
        return strip_hidden("\n".join(rows)) or "no commits"

    @tool(timeout=20)
    def git_show(commit: str, page: int = 1) -> str:
        """Show one commit: its message and what it changed."""
        with _git_errors():
            return strip_hidden(commit_page(repo, repo.resolve(commit), (max(page, 1) - 1) * LINES + 1, blocked))

    return [git_log, git_show]


@contextmanager
def _git_errors() -> Iterator[None]:
    """What git refuses goes back to the model."""
    try:
        yield
    except (GitError, IndexError) as error:
        raise ToolError(str(error)) from error
