"""Self-test: score a model on fixes of the repository that are undone, and on clean changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from glue import Provider
from glue.agents.review.change.collect import file_text, from_texts
from glue.agents.review.change.languages import is_doc, is_generated, is_test, language
from glue.agents.review.findings.analysers import deterministic
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, FileDiff, Finding, ReviewedChange, ReviewRun
from glue.errors import ConfigError, GitError
from glue.text import format_dollars, format_seconds
from glue.tools.git import Repo

HISTORY = 1_000  # commits to search
FILES = 3  # source files in one change at most
_FIX = re.compile(
    r"\b(?:fix(?:e[sd])?|bug(?:fix)?|regress\w*|crash\w*|correct(?:s|ed)?)\b", re.IGNORECASE
)
_NOT = re.compile(r"\b(?:typo|docs?|lint|format|ci|merge|bump|release|revert)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One reviewed change: a fix that was undone, or a clean change."""

    sha: str
    subject: str
    undone: bool  # whether a fix was undone, so that there is a bug to find
    found: bool = False  # the model reported the changed lines, or one line next to them
    exact: bool = False  # the model reported exactly the changed lines
    alarms: int = 0  # findings of the model elsewhere
    ruled: bool = False  # analysers and rules found it without the model
    inconclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The result of a self-test. Analysers and rules are counted separately from the model."""

    model: str = ""
    trials: tuple[Trial, ...] = ()
    cost: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    kind: str = field(default="selftest", metadata={"always": True})

    @property
    def undone(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.undone]

    @property
    def recall(self) -> float:
        return sum(trial.found for trial in self.undone) / len(self.undone) if self.undone else 0.0

    @property
    def precision(self) -> float:
        right = sum(trial.found for trial in self.trials)
        wrong = sum(trial.alarms for trial in self.trials)
        return right / (right + wrong) if right + wrong else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """Return the table of results, each row as name and text."""
        found = sum(trial.found for trial in self.undone)
        exact = sum(trial.exact for trial in self.undone)
        clean = [trial for trial in self.trials if not trial.undone]
        false_alarms = sum(bool(trial.alarms) for trial in clean)
        cost = "unknown" if self.cost is None else format_dollars(self.cost)
        return [
            ("model", self.model or "none: analysers and rules only"),
            ("fixes undone", str(len(self.undone))),
            ("found", f"{found} ({self.recall:.0%}), {exact} of them on the exact lines"),
            ("clean changes", f"{len(clean)}, {false_alarms} of them with a false alarm"),
            ("precision", f"{self.precision:.0%}"),
            ("inconclusive", str(sum(trial.inconclusive for trial in self.trials))),
            ("rules only", f"{sum(trial.ruled for trial in self.undone)} of {len(self.undone)}"),
            ("cost", f"{cost}, {self.tokens} tokens"),
            ("time", format_seconds(self.seconds)),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<15}{text}" for name, text in self.rows())


def differences(old: Score, new: Score) -> list[str]:
    """Return the differences between two scores as lines; an empty list if they are the same."""
    lines = [
        f"~ {name}: {was} -> {now}"
        for (name, was), (_, now) in zip(old.rows(), new.rows(), strict=True)
        if was != now and name not in ("cost", "time")
    ]
    before = {trial.sha: trial for trial in old.undone}
    for trial in new.undone:
        was = before.get(trial.sha)
        if was is not None and was.found != trial.found:
            lines.append(f"{'+' if trial.found else '-'} {trial.sha[:12]} {trial.subject}")
    return lines


async def selftest(
    repo: Repo,
    *,
    providers: Callable[[], Sequence[Provider]] = tuple,
    count: int = 10,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Score:
    """Review up to `count` undone fixes and as many clean changes, and return the score.

    Fixes are commits that also change a test; they are undone in memory. `on_progress` is called
    with one line for each review.
    """
    started = time.monotonic()
    trials: list[Trial] = []
    cost: float | None = 0.0
    tokens, model = 0, ""
    for bundle, planned in changes(repo, count):
        run = await review(bundle, providers=providers(), model_only=True)
        trials.append(_trial(run, bundle, planned))
        kind = "fix undone" if planned.undone else "clean"
        on_progress(f"{len(trials)}: {planned.sha[:12]} {kind}: {_word(trials[-1])}")
        if cost is None or (run.provider and run.cost is None):
            cost = None
        else:
            cost += run.cost or 0.0
        tokens += run.tokens_in + run.tokens_out
        model = f"{run.provider}:{run.model}".strip(":") or model
    if not any(trial.undone for trial in trials):
        raise ConfigError(
            f"no fix with a test was found in the last {HISTORY} commits;"
            " a self-test needs a history with fixes"
        )
    return Score(
        model=model,
        trials=tuple(trials),
        cost=cost,
        seconds=time.monotonic() - started,
        tokens=tokens,
    )


def _word(trial: Trial) -> str:
    if trial.inconclusive:
        return "inconclusive"
    found = "found" if trial.found else "missed" if trial.undone else "quiet"
    return (
        f"{found}, {trial.alarms} false alarm{'s' * (trial.alarms != 1)}" if trial.alarms else found
    )


def _trial(run: ReviewRun, bundle: Bundle, planned: Trial) -> Trial:
    """Return `planned`, completed with the results of its review."""
    reported = [finding for finding in run.findings if not finding.rule] if not run.codes else []
    files = bundle.files if planned.undone else ()
    near, exact = _places(files, margin=1), _places(files, margin=0)
    hits = [finding for finding in reported if _on(finding, near)]
    return replace(
        planned,
        found=bool(hits),
        exact=any(_on(finding, exact) for finding in hits),
        alarms=len(reported) - len(hits),
        ruled=planned.undone and any(_on(finding, near) for finding in deterministic(bundle)),
        inconclusive=bool(run.codes),
    )


def _on(finding: Finding, places: set[tuple[str, int]]) -> bool:
    """Return whether `places` contains a line of the finding."""
    last = finding.line or finding.claimed or 0
    return any(
        (finding.path, number) in places for number in range(finding.start_line or last, last + 1)
    )


def _places(files: Sequence[FileDiff], margin: int) -> set[tuple[str, int]]:
    """Return path and line number of the changed lines and of `margin` lines above and below them.

    The numbers are those of the new text. A deleted line counts as the lines around the gap.
    """
    places: set[tuple[str, int]] = set()
    for file in files:
        for hunk in file.hunks:
            at = hunk.new_start
            for line in hunk.lines:
                at = line.new if line.new is not None else at
                if line.kind == " ":
                    continue
                places.update((file.path, n) for n in range(at - margin, at + margin + 1))
                if line.kind == "-":
                    places.update({(file.path, at), (file.path, at + 1)})
    return places


def changes(repo: Repo, count: int) -> Iterator[tuple[Bundle, Trial]]:
    """Yield up to `count` undone fixes and as many clean changes in turn, each with its Trial."""
    fixes: list[tuple[Bundle, Trial]] = []
    clean: list[tuple[Bundle, Trial]] = []
    for commit in repo.log("", repo.resolve("HEAD"), limit=HISTORY):
        subject = commit.message.split("\n", 1)[0]
        is_fix = bool(_FIX.search(subject)) and not _NOT.search(subject)
        wanted = fixes if is_fix else clean
        if len(wanted) >= count or (_FIX.search(subject) and not is_fix):
            continue
        found = _texts(repo, commit.sha, tested=is_fix)
        if found is None:
            continue
        before, after = found
        change = ReviewedChange(title="Tidy up" if is_fix else subject)
        old, new = (after, before) if is_fix else (before, after)
        bundle = from_texts(old, new, change)
        wanted.append((bundle, Trial(sha=commit.sha, subject=subject[:120], undone=is_fix)))
        if len(fixes) >= count and len(clean) >= count:
            break
    for index, fix in enumerate(fixes):
        yield from (fix, *clean[index : index + 1])


def _texts(repo: Repo, sha: str, *, tested: bool) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the texts of the source files in a commit, by path, before and after the commit.

    Return None if the commit has no or too many source files, adds or deletes one, or changes too
    many lines; if `tested`, also if it changes no test.
    """
    try:
        parent = repo.resolve(f"{sha}^")
        changed = repo.changes(parent, sha)
    except GitError:
        return None
    if len(changed) > 10 or (tested and not any(is_test(file.path) for file in changed)):
        return None
    sources = [
        file
        for file in changed
        if language(file.path)
        and not (is_test(file.path) or is_doc(file.path) or is_generated(file.path))
    ]
    sizes = [(file.added or 0) + (file.deleted or 0) for file in sources]
    if not 1 <= len(sources) <= FILES or max(sizes) > 200:
        return None
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for file in sources:
        for rev, texts in ((parent, before), (sha, after)):
            text = file_text(repo, rev, file.path)
            if text is None:
                return None  # a file was added or deleted, which is more than a fix
            texts[file.path] = text
    return before, after
