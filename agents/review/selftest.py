"""Self-test: a model is scored on real fixes of the repository that are undone, and on clean changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from glue import Provider, dollars, seconds
from glue.agents.review.change.collect import file_text, from_texts
from glue.agents.review.change.syntax import is_doc, is_generated, is_test, language
from glue.agents.review.findings.analysers import deterministic
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, FileDiff, Finding, ReviewedChange, ReviewRun
from glue.errors import ConfigError, GitError
from glue.tools.git import Repo

HISTORY = 1_000  # commits that are looked through
FILES = 3  # sources of one change
_FIX = re.compile(r"\b(?:fix(?:e[sd])?|bug(?:fix)?|regress\w*|crash\w*|correct(?:s|ed)?)\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:typo|docs?|lint|format|ci|merge|bump|release|revert)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One change that was reviewed: a fix undone, or a change as it was."""

    sha: str
    subject: str
    undone: bool  # whether there is something to find
    found: bool = False  # a finding of the model on, or one line beside, the undone lines
    exact: bool = False  # on the very lines
    alarms: int = 0  # findings of the model elsewhere
    ruled: bool = False  # what analysers and rules alone would have found
    inconclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What came of a self-test; the model is scored apart from analysers and rules."""

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
        right, wrong = sum(trial.found for trial in self.trials), sum(trial.alarms for trial in self.trials)
        return right / (right + wrong) if right + wrong else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """The table, line by line."""
        found, clean = sum(trial.found for trial in self.undone), [one for one in self.trials if not one.undone]
        cost = "not known" if self.cost is None else dollars(self.cost)
        return [
            ("model", self.model or "none: analysers and rules alone"),
            ("fixes undone", str(len(self.undone))),
            ("found", f"{found} ({self.recall:.0%}), on the very lines {sum(trial.exact for trial in self.undone)}"),
            ("clean changes", f"{len(clean)}, with a false alarm {sum(bool(trial.alarms) for trial in clean)}"),
            ("precision", f"{self.precision:.0%}"),
            ("inconclusive", str(sum(trial.inconclusive for trial in self.trials))),
            ("rules alone", f"{sum(trial.ruled for trial in self.undone)} of {len(self.undone)}"),
            ("cost", f"{cost}, {self.tokens} tokens"),
            ("time", seconds(self.seconds)),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<15}{text}" for name, text in self.rows())


def differences(old: Score, new: Score) -> list[str]:
    """Say in lines how two scores differ."""
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
    say: Callable[[str], None] = lambda text: None,
) -> Score:
    """Undo up to `count` fixes of a repository's history, and review each, and as many clean changes."""
    started = time.monotonic()
    trials: list[Trial] = []
    cost: float | None = 0.0
    tokens, model = 0, ""
    for bundle, planned in changes(repo, count):
        run = await review(bundle, providers=providers(), alone=True)
        trials.append(_trial(run, bundle, planned))
        say(f"{len(trials)}: {planned.sha[:12]} {'fix undone' if planned.undone else 'clean'}: {_word(trials[-1])}")
        cost = None if cost is None or (run.provider and run.cost is None) else cost + (run.cost or 0.0)
        tokens += run.tokens_in + run.tokens_out
        model = f"{run.provider}:{run.model}".strip(":") or model
    if not any(trial.undone for trial in trials):
        raise ConfigError(f"no fix with a test was found in the last {HISTORY} commits; a self-test needs some history")
    return Score(model=model, trials=tuple(trials), cost=cost, seconds=time.monotonic() - started, tokens=tokens)


def _word(trial: Trial) -> str:
    if trial.inconclusive:
        return "inconclusive"
    found = "found" if trial.found else "missed" if trial.undone else "quiet"
    return f"{found}, {trial.alarms} false alarm{'s' * (trial.alarms != 1)}" if trial.alarms else found


def _trial(run: ReviewRun, bundle: Bundle, planned: Trial) -> Trial:
    said = [finding for finding in run.findings if not finding.rule] if not run.codes else []
    files = bundle.files if planned.undone else ()
    near, exact = ({(file.path, at) for file in files for at in _changed(file, beside)} for beside in (1, 0))
    hits = [finding for finding in said if _on(finding, near)]
    return replace(
        planned,
        found=bool(hits),
        exact=any(_on(finding, exact) for finding in hits),
        alarms=len(said) - len(hits),
        ruled=planned.undone and any(_on(finding, near) for finding in deterministic(bundle)),
        inconclusive=bool(run.codes),
    )


def _on(finding: Finding, places: set[tuple[str, int]]) -> bool:
    last = finding.line or finding.claimed or 0
    return any((finding.path, number) in places for number in range(finding.start_line or last, last + 1))


def _changed(file: FileDiff, beside: int) -> set[int]:
    """The lines of the new text that a change touches; where lines only went away, those around the gap."""
    lines: set[int] = set()
    for hunk in file.hunks:
        at = hunk.new_start
        for line in hunk.lines:
            at = line.new if line.new is not None else at
            if line.kind != " ":
                lines |= set(range(at - beside, at + beside + 1)) | ({at, at + 1} if line.kind == "-" else set())
    return lines


def changes(repo: Repo, count: int) -> Iterator[tuple[Bundle, Trial]]:
    """Fixes undone and clean changes in turn."""
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
        told = ReviewedChange(title="Tidy up" if is_fix else subject)
        bundle = from_texts(after, before, told) if is_fix else from_texts(before, after, told)
        wanted.append((bundle, Trial(sha=commit.sha, subject=subject[:120], undone=is_fix)))
        if len(fixes) >= count and len(clean) >= count:
            break
    for index, fix in enumerate(fixes):
        yield from (fix, *clean[index : index + 1])


def _texts(repo: Repo, sha: str, *, tested: bool) -> tuple[dict[str, str], dict[str, str]] | None:
    """The sources of a commit before and after it; None where it has none, too many, or (`tested`) no test."""
    try:
        parent = repo.resolve(f"{sha}^")
        changed = repo.changes(parent, sha)
    except GitError:
        return None
    if len(changed) > 10 or (tested and not any(is_test(one.path) for one in changed)):
        return None
    sources = [one for one in changed if language(one.path)]
    sources = [one for one in sources if not (is_test(one.path) or is_doc(one.path) or is_generated(one.path))]
    if not 1 <= len(sources) <= FILES or any((one.added or 0) + (one.deleted or 0) > 200 for one in sources):
        return None
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for one in sources:
        for rev, texts in ((parent, before), (sha, after)):
            text = file_text(repo, rev, one.path)
            if text is None:
                return None  # a file that came or went is more than a fix
            texts[one.path] = text
    return before, after
