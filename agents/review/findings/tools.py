"""The tools of the reviewing model, to read files and history, report findings, and finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from glue import Context, Text, Tool, ToolCall, ToolResult, tool
from glue.agents.review.change.collect import file_text
from glue.agents.review.change.config import Config, blocklist
from glue.agents.review.findings import gate, prompt
from glue.agents.review.findings.anchor import (
    MIN_QUOTE,
    NEARBY,
    anchor,
    anchor_at_line,
    fault,
    resolve_path,
    weakens_test,
)
from glue.agents.review.findings.dedupe import is_duplicate, says_the_same
from glue.agents.review.findings.reading import read_report, read_reports
from glue.agents.review.findings.rules import strip_hidden
from glue.agents.review.records import Bundle, Category, Confidence, Finding, Severity
from glue.errors import GitError, ToolError, UnsafePath
from glue.messages import ToolSpec
from glue.tools.fs import Blocklist
from glue.tools.git import Repo, commit_page

LINES = 400  # lines in one page of a file
HITS = 60  # matches that grep shows
DISAGREE = "test and code disagree"
Side = Literal["head", "base"]


class ReviewDraft:
    """The findings and summaries that a model has reported so far.

    Each of them is checked when the model reports it.
    """

    def __init__(
        self,
        bundle: Bundle,
        config: Config,
        *,
        source: str,
        known: Sequence[Finding] = (),
        repo: Repo | None = None,
    ) -> None:
        self.bundle = bundle
        self.config = config
        self.source = source
        self.findings: list[Finding] = []
        self.refused: list[Finding] = []
        self.summaries: list[str] = []
        self.finished = False
        self.read: list[str] = []  # texts that the reading tools returned
        self.on_finding: Callable[[Finding], None] = lambda finding: None
        # Reports of the current reply that were sent back; the model has not seen the reasons yet.
        self.sent_back = 0
        self._held: list[Finding] = []
        self._refusals = 0
        self._context = gate.context(bundle)
        self._known = tuple(known)
        self._repo = repo

    def receive(self, arguments: str) -> str:
        """Record the valid findings in the arguments of a call, and return a text for the model.

        Raise ToolError with the reasons if no finding is recorded, or if one was refused or sent
        back since the last request.
        """
        try:
            reports = read_reports(arguments)
        except ValueError as error:
            self._refuse(Finding(path="", quote="", title="", body=arguments), "channel.unreadable")
            raise ToolError(str(error)) from None
        answers: list[str] = []
        failures: list[str] = []
        for given in reports[: gate.FINDINGS * 4]:
            try:
                answers.append(self.report_data(given))
            except ToolError as error:
                failures.append(str(error))
        if failures and (not answers or self.sent_back):
            raise ToolError("\n".join((*answers, *failures)))
        return "\n".join((*answers, *failures))

    def report_data(self, given: Mapping[str, Any]) -> str:
        """Convert a report with field names in any spelling to a finding, and pass it to `report`.

        Return the answer of `report` for the model. If the report has no text, record it as refused
        and raise ToolError.
        """
        try:
            finding = read_report(given, self.source)
        except ValueError as error:
            path, quote = (str(given.get(name) or "") for name in ("path", "quote"))
            self._refuse(Finding(path=path, quote=quote, title="", body=""), "transport.empty")
            raise ToolError(str(error)) from None
        return self.report(finding)

    def report(self, finding: Finding) -> str:
        """Record a finding and return a text for the model; raise ToolError if a check fails.

        The error has the reason: the finding is refused, is a duplicate, or is sent back.
        A finding that is sent back is kept, and recorded at the end unless the model corrects it.
        """
        placed = self._placed(finding)
        code = gate.finding_code(placed, self.bundle, language=self.config.language)
        if code:
            self._refuse(placed, code)
            default = f"the text was refused ({code}); write plain sentences about this code"
            raise ToolError(gate.REFUSALS["finding"].get(code, default))
        if any(is_duplicate(placed, other) for other in (*self._known, *self.findings)):
            self.refused.append(replace(placed, dropped=gate.DUPLICATE))
            raise ToolError(
                "this finding was already reported; continue with something else, "
                "or call finish_review"
            )
        if missing := self._missing_path(placed):
            self._send_back(
                placed,
                f"the path {missing!r} in the text exists neither before nor after this change;"
                " correct the title or body, and report the finding again",
            )
        placed, notes = self._checked_suggestion(placed)
        if placed.path != finding.path and placed.anchor == "relocated":
            notes.insert(0, f"The quote is in {placed.path}, so the finding was placed there.")
        if placed.line is None:
            notes.insert(
                0,
                "The quote is not on a line of the diff, so the finding gets no comment on a line.",
            )
        self._record(placed)
        return " ".join([f"Recorded as finding {len(self.findings)} on {placed.where}.", *notes])

    def finish(self, summary: str) -> str:
        """Record the summary and finish the review; raise ToolError if the summary is unsound.

        Return a text for the model. The error has the reason. It is raised at most twice for a
        part of the change: a third summary is recorded even if it is unsound.
        """
        codes = gate.summary_codes(summary, self.shown, language=self.config.language)
        if codes and self._refusals < 2:
            self._refusals += 1
            reasons = gate.REFUSALS["summary"]
            known = (reasons[code] for code in codes if code in reasons)
            reason = next(known, f"it is not plain prose about this change ({codes[0]})")
            if codes[0] == "grounding.topic":
                named = dict.fromkeys((*gate.names(summary, loose=True), *gate.paths(summary)))
                unknown = [name for name in named if name not in self.shown]
                reason = f"{reason}: {', '.join(unknown[:6])}"
            raise ToolError(f"the summary was refused: {reason}; call finish_review again")
        self.summaries.append(summary)
        self.finished = True
        self._refusals = 0  # another part of the change needs a summary of its own
        return "The review is finished."

    def give_up(self) -> bool:
        """Mark the review as finished if a summary was refused. Return whether it is finished.

        This is called if the model sends no further summary. glue then writes the summary.
        """
        self.finished = self.finished or self._refusals > 0
        self._refusals = 0
        return self.finished

    def settle(self) -> None:
        """Add to `findings` each finding that was sent back and that the model did not correct."""
        corrected = tuple(
            self.findings
        )  # two findings that were sent back do not correct each other
        for finding in self._held:
            if not any(_corrects(other, finding) for other in corrected):
                self._record(self._checked_suggestion(finding)[0])
        self._held.clear()

    @property
    def shown(self) -> str:
        """The text that the model was shown: the change, and results of its reading tools."""
        return "\n".join((self._context, *self.read))

    def seen(self) -> tuple[str, ...]:
        """Return the names in the summaries that occur in tool results but not in the change."""
        named = gate.names("\n".join(self.summaries), loose=True)
        read = "\n".join(self.read)
        return tuple(sorted({name for name in named if name not in self._context and name in read}))

    def _record(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.on_finding(finding)

    def _refuse(self, finding: Finding, code: str) -> None:
        self.refused.append(replace(finding, dropped=code))
        self.sent_back += 1

    def _send_back(self, finding: Finding, reason: str) -> None:
        """Add a finding to `_held` and raise ToolError; do neither if it corrects one of `_held`.

        The text of the error is `reason`, which the model reads. If the model does not correct a
        finding in `_held`, the finding is recorded at the end.
        """
        if any(_corrects(finding, other) for other in self._held):
            return
        self._held.append(finding)
        self.sent_back += 1
        raise ToolError(reason)

    def _placed(self, finding: Finding) -> Finding:
        """Return the finding with its line in the diff; raise ToolError if the quote is not found.

        If the quote is not found but the line number is in the diff, the finding is sent back once,
        and the second time it is placed on that line.
        """
        files = self.bundle.files
        placed = anchor(finding, files, self.bundle.head)
        if placed is not None:
            return placed
        named = anchor_at_line(finding, files)
        if named is not None:
            self._send_back(named, gate.REFUSALS["finding"]["grounding.quote"])
            return named
        paths = [file.path for file in files]
        if resolve_path(finding.path, files) not in paths:
            self._refuse(finding, "grounding.path")
            close = get_close_matches(finding.path, paths, 3, 0.5)
            title = "similar paths" if close else f"the first of its {len(paths)} paths"
            shown = ", ".join(close or paths[:10])
            raise ToolError(f"{finding.path!r} is not in the diff; {title}: {shown}")
        self._refuse(finding, "grounding.quote")
        if len("".join(finding.quote.split())) < MIN_QUOTE:
            raise ToolError(
                "the quote is too short to find its line; copy the whole line, or give its number"
                " in `line`"
            )
        raise ToolError(gate.REFUSALS["finding"]["grounding.quote"])

    def _missing_path(self, finding: Finding) -> str:
        """Return the first path in the text of a finding that does not exist, or "" if all exist.

        A path may exist before or after the change. Without a repository, return "".
        """
        repo, change = self._repo, self.bundle.change
        if repo is None or not change.head_sha or not change.merge_base:
            return ""
        names = [name for name in gate.paths(f"{finding.title}\n{finding.body}") if "/" in name]
        known = " ".join(f"{file.path} {file.old_path}" for file in self.bundle.files)
        for name in names[:5]:
            if name in self.shown or any(part.endswith(name) for part in known.split()):
                continue
            with suppress(GitError, UnsafePath):
                sides = (change.head_sha, change.merge_base)
                if all(repo.entry(side, name) is None for side in sides):
                    return name
        return ""

    def _checked_suggestion(self, placed: Finding) -> tuple[Finding, list[str]]:
        """Return the finding, with an unusable suggestion removed, and notes for the model."""
        notes: list[str] = []
        if problem := fault(placed, self.bundle):
            notes.append(f"The suggestion was left out: {problem}.")
            placed = replace(placed, suggestion=None, note=problem)
        if weakens_test(placed, self.bundle):
            placed = replace(placed, suggestion=None, note=DISAGREE)
            notes.append(
                "A test must not be weakened to make code pass, so the finding will be shown as"
                " a disagreement between test and code."
            )
        return placed, notes


def _corrects(new: Finding, old: Finding) -> bool:
    """Return whether the finding `new` is probably the corrected version of `old`.

    It has the same text, or it uses similar words near the same line.
    """
    if new.path != old.path:
        return False
    if (new.title, new.body) == (old.title, old.body):
        return True
    if new.claimed is not None and old.claimed is not None and new.claimed != old.claimed:
        return False  # the same kind of defect on another line
    near = new.line is not None and old.line is not None and abs(new.line - old.line) <= NEARBY
    return near and says_the_same(new, old)


def tools(draft: ReviewDraft, repo: Repo | None = None) -> list[Any]:
    """Return the tools that the model may call in a review; they store its reports in `draft`.

    Without a repository they read only the changed files, and there are no tools for the history.
    """
    blocked = blocklist(draft.config)
    history = (
        [] if repo is None else _history(draft.bundle.change.head_sha or "HEAD", blocked, repo)
    )
    return [*_reading(draft, blocked, repo), _discussion(draft), *history, *_reporting(draft)]


@dataclass(slots=True)
class ReportTool:
    """The tool `report_finding`, with which the model adds findings to a `ReviewDraft`.

    The model is shown the schema of a typed function, but arguments that break the schema are read
    as they were meant.
    """

    spec: ToolSpec
    draft: ReviewDraft
    alone: bool = False

    @property
    def advisory(self) -> bool:
        """Return whether no report since the last request was refused or sent back.

        If so, `finish_review` may end the run. If a report was refused or sent back, the model
        sees the reason with its next request, and can correct the report.
        """
        return not self.draft.sent_back

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            text, is_error = self.draft.receive(call.arguments), False
        except ToolError as error:
            text, is_error = str(error), True
        return ToolResult(content=(Text(text=text),), is_error=is_error)


def _reporting(draft: ReviewDraft) -> list[Any]:
    @tool
    def report_finding(
        path: Annotated[str, "the file, as the diff names it"],
        quote: Annotated[
            str,
            "the code with the problem: one line or a few, copied character for character from the"
            " diff; deleted lines may be quoted",
        ],
        title: Annotated[str, "the problem in one line"],
        body: Annotated[str, "what goes wrong, when, and why that is bad; two to five sentences"],
        severity: Severity,
        confidence: Confidence,
        category: Category,
        suggestion: Annotated[
            str | None, "the complete replacement for exactly the quoted lines; leave out if unsure"
        ] = None,
        acceptance: Annotated[str, "how to verify the fix, in one line"] = "",
        line: Annotated[
            int | None,
            "the line number in the new file, if known, because the quote may occur several times",
        ] = None,
    ) -> None:
        """Report one problem in the change. If it is refused, correct the report and call again."""

    @tool(terminates=True)
    async def finish_review(
        summary: Annotated[str, "two to six sentences: what the change does, and what you checked"],
    ) -> str:
        """End the review. Call it once, after you have reported every problem."""
        return draft.finish(summary)

    return [ReportTool(report_finding.spec, draft), finish_review]


def _reading(draft: ReviewDraft, blocked: Blocklist, repo: Repo | None) -> list[Tool[..., Any]]:
    change = draft.bundle.change
    sides = {
        "head": (draft.bundle.head, change.head_sha),
        "base": (draft.bundle.base, change.merge_base),
    }

    @tool(timeout=20)
    def read_file(path: str, start: int = 1, lines: int = 200, side: Side = "head") -> str:
        """Read lines of a file.

        Args:
            path: path from the top of the repository
            start: first line, counted from 1
            lines: number of lines, at most 400
            side: head is the file after the change, base is the file before it
        """
        if blocked.blocks(path):
            raise ToolError(f"{path!r} may contain secrets and is not shown")
        known, rev = sides[side]
        text = known.get(path)
        if text is None and repo is not None and rev:
            with _git_errors():
                text = file_text(repo, rev, path, 1024 * 1024, links=True)
        if text is None:
            raise ToolError(f"there is no file {path!r} on the {side} side")
        rows = text.split("\n")
        first = max(start, 1)
        last = min(first + min(max(lines, 1), LINES) - 1, len(rows))
        shown = [
            f"{number:>6}  {strip_hidden(rows[number - 1])[:1_000]}"
            for number in range(first, last + 1)
        ]
        draft.read.append("\n".join(shown))
        return f"{draft.read[-1]}\n[lines {first}-{last} of {len(rows)}]"

    @tool(timeout=20)
    def grep(pattern: str, side: Side = "head", ignore_case: bool = False) -> str:
        """Return the lines of text files that match a pattern, with their paths and numbers.

        Args:
            pattern: POSIX extended regular expression
            side: head searches the files after the change, base the files before it
            ignore_case: whether upper and lower case are equal
        """
        known, rev = sides[side]
        if repo is not None and rev:
            with _git_errors():
                hits = [
                    (hit.path, hit.line, hit.text)
                    for hit in repo.grep(pattern, rev, ignore_case=ignore_case)
                ]
        else:
            # A regular expression can take for ever in Python, so without git's engine only plain
            # text is searched for.
            wanted = pattern.lower() if ignore_case else pattern
            lines = (
                (path, *row)
                for path, text in known.items()
                for row in enumerate(text.split("\n"), 1)
            )
            hits = [row for row in lines if wanted in (row[2].lower() if ignore_case else row[2])]
        hits = [hit for hit in hits if not blocked.blocks(hit[0])]
        if not hits:
            return "no matches"
        rows = [
            f"{path}:{line}: {strip_hidden(text.strip())[:300]}" for path, line, text in hits[:HITS]
        ]
        draft.read.append("\n".join(rows))
        return draft.read[-1] + ("\n[more matches were left out]" if len(hits) > HITS else "")

    return [read_file, grep]


def _discussion(draft: ReviewDraft) -> Tool[..., Any]:
    @tool
    def read_discussion() -> str:
        """Return commit messages, comments so far, and the issues that the change should solve."""
        draft.read.append(prompt.discussion(draft.bundle))
        return draft.read[-1]

    return read_discussion


def _history(head: str, blocked: Blocklist, repo: Repo) -> list[Tool[..., Any]]:
    @tool(timeout=20)
    def git_log(path: str = "", limit: int = 20) -> str:
        """List the commits of this change and the commits before it, newest first.

        Args:
            path: list only commits that changed this file
            limit: number of commits, at most 50
        """
        with _git_errors():
            commits = repo.log(
                "", head, limit=min(max(limit, 1), 50), paths=(path,) if path else ()
            )
        rows = []
        for commit in commits:
            subject = commit.message.strip().split("\n")[0]
            rows.append(f"{commit.sha[:12]} {commit.date[:10]} {commit.author}: {subject}")
        return strip_hidden("\n".join(rows)) or "no commits"

    @tool(timeout=20)
    def git_show(commit: str, offset: int = 1) -> str:
        """Show the message and the diff of one commit.

        Args:
            commit: hash of the commit
            offset: line of the diff at which the page begins; a page ends with the next offset
        """
        with _git_errors():
            return strip_hidden(commit_page(repo, repo.resolve(commit), max(offset, 1), blocked))

    return [git_log, git_show]


@contextmanager
def _git_errors() -> Iterator[None]:
    """Raise errors of git as ToolError, which is sent to the model."""
    try:
        yield
    except (GitError, IndexError) as error:
        raise ToolError(str(error)) from error
