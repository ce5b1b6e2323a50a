"""Score the reviews of a model on changes that undo a fix, and on clean changes.

Every change is reviewed as in production: with the same collection, prompt, guidelines, settings,
reading tools and second look. An undone fix is a commit in a scratch repository that borrows the
objects of the real one; nothing is written to the real one. Findings that no planted defect
explains are listed for people to label, with `glue review label`; only labels make them right or
wrong. The intervals and comparisons are those of `glue eval`: whole changes are resampled.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TypeAlias

from glue import Provider
from glue.agents.review.change.collect import collect_range, file_text
from glue.agents.review.change.config import DISMISSED_FILE, make
from glue.agents.review.change.languages import is_doc, is_generated, is_test, language
from glue.agents.review.findings import dedupe, memory
from glue.agents.review.findings.analysers import deterministic
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, FileDiff, Finding, ReviewRun, SecondLookMode
from glue.errors import ConfigError, GitError
from glue.text import count as counted
from glue.text import format_dollars, format_seconds
from glue.tools.git import Repo, find_git
from glue.trials import CaseTrial, Evaluation, Summary
from glue.trials import differences as paired
from glue.view.comparison import sentence

HISTORY = 1_000  # commits to search
FILES = 3  # source files in one change at most
NO_MODEL = "analysers and rules only"  # the name of the model, if no model is asked
INCONCLUSIVE = "inconclusive"  # the outcome of a review that the gate did not accept
_FIX = re.compile(
    r"\b(?:fix(?:e[sd])?|bug(?:fix)?|regress\w*|crash\w*|correct(?:s|ed)?)\b", re.IGNORECASE
)
_NOT = re.compile(r"\b(?:typo|docs?|lint|format|ci|merge|bump|release|revert)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A commit that the self-test reviews: a bug fix, which it undoes, or another small change."""

    sha: str
    subject: str
    undone: bool  # whether a fix is undone, so that there is a bug to find


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(CaseTrial):
    """The result of the review of one sample by one model.

    The score is 1 if the model reported the lines of an undone fix, or one line next to them; and
    for a clean change, if the model reported nothing.
    """

    undone: bool
    exact: bool = False  # the model reported exactly the changed lines
    others: tuple[Finding, ...] = ()  # findings of the model elsewhere, for people to label
    ruled: bool = False  # analysers and rules found it without the model
    refuted: int = 0  # findings that the second look dropped

    @property
    def found(self) -> bool:
        """Return whether the sample is an undone fix and the model found the bug."""
        return self.undone and self.score > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Evaluation):
    """The result of a self-test: an evaluation in which every case is a change.

    Analysers and rules are counted separately from the model.
    """

    made_by: ClassVar[str] = "glue review selftest"
    trials: tuple[Trial, ...] = ()
    # Labels of the repository: fingerprint -> right, arguable or wrong.
    labels: Mapping[str, str] = field(default_factory=dict)

    def part(self, undone: bool, value: Callable[[Trial], float] | None = None) -> Score:
        """Return a copy with the trials of undone fixes or, if `undone` is False, of clean changes.

        If `value` is given, the score of each trial is replaced by `value(trial)`.
        """
        trials = [trial for trial in self.trials if trial.undone is undone]
        if value is not None:
            trials = [replace(trial, score=float(value(trial))) for trial in trials]
        return replace(self, trials=tuple(trials))

    @property
    def recall(self) -> float:
        return self.part(undone=True).summaries()[0].score

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The model's findings that do not point at an undone fix, for people to label.

        A finding points at a fix if it is on a line of the fix or next to one. For a commit in
        which no fix is undone, all findings of the model are returned.
        """
        return tuple(finding for trial in self.trials for finding in trial.others)

    def labelled(self, label: str) -> int:
        return sum(self.labels.get(finding.fingerprint) == label for finding in self.listed)

    @property
    def precision(self) -> float | None:
        """The share of right findings among all judged findings, or None if none is judged.

        A finding is judged if it is known to be right or wrong.
        """
        right = sum(trial.found for trial in self.trials) + self.labelled("right")
        judged = right + self.labelled("wrong")
        return right / judged if judged else None

    def rows(self) -> list[tuple[str, str]]:
        """Return the table of results, each row as name and text."""
        [whole] = self.summaries()
        [fixes] = self.part(undone=True).summaries()
        [exact] = self.part(undone=True, value=lambda trial: trial.exact).summaries()
        [noise] = self.part(undone=False, value=lambda trial: bool(trial.others)).summaries()
        cost = "unknown" if whole.cost is None else format_dollars(whole.cost * whole.trials)
        precision = "unknown" if self.precision is None else f"{self.precision:.0%}"
        unread = len(self.listed) - sum(map(self.labelled, memory.LABELS))
        ruled = len({trial.case for trial in self.trials if trial.ruled})
        refuted = sum(trial.refuted for trial in self.trials)
        repeats = fixes.trials // fixes.cases if fixes.cases else 1
        times = f"; each change was reviewed {repeats} times" if repeats > 1 else ""
        return [
            ("model", whole.model),
            ("fixes undone", f"{fixes.cases}{times}"),
            ("found", f"{_share(fixes)}; {exact.score:.0%} on the exact lines"),
            ("clean changes", str(noise.cases)),
            ("with findings", _share(noise)),
            (
                "other findings",
                ", ".join(f"{self.labelled(label)} {label}" for label in memory.LABELS)
                + f", {unread} without a label",
            ),
            ("precision", f"{precision} (right findings among those known to be right or wrong)"),
            ("second look", f"{counted(refuted, 'finding')} refuted"),
            ("inconclusive", str(whole.outcomes.get(INCONCLUSIVE, 0))),
            ("found by rules", f"{ruled} of {fixes.cases}"),
            ("cost", f"{cost}, {sum(trial.tokens for trial in self.trials)} tokens"),
            ("time", format_seconds(sum(trial.seconds for trial in self.trials))),
        ]

    def __str__(self) -> str:
        rows = [f"{name:<15}{text}" for name, text in self.rows()]
        unread = [one for one in self.listed if one.fingerprint not in self.labels]
        if unread:
            rows += ["", "Findings to label (glue review label ID right|arguable|wrong REASON):"]
            rows += [f"  {one.fingerprint} {one.where}: {one.title}" for one in unread]
        return "\n".join(rows)


def _share(part: Summary) -> str:
    """Return the mean score of the cases and its 95 % interval as text; "none" without cases."""
    if not part.cases:
        return "none"
    found = f"{part.score * part.cases:.3g} of {part.cases}"
    return f"{found}: {part.score:.0%} (95% interval {part.low:.0%} to {part.high:.0%})"


def differences(old: Score, new: Score) -> list[str]:
    """Return the differences between two scores as lines, or [] if only cost and time differ.

    Changes that both scores contain are compared in pairs.
    """
    lines = [
        f"~ {name}: {was} -> {now}"
        for (name, was), (_, now) in zip(old.rows(), new.rows(), strict=True)
        if was != now and name not in ("cost", "time")
    ]
    for name, undone in (("undone fixes", True), ("clean changes", False)) if lines else ():
        [pair] = paired(new.part(undone), old.part(undone))
        lines += [f"+ {case}" for case in pair.better] + [f"- {case}" for case in pair.worse]
        if pair.cases:
            lines.append(f"= {sentence(replace(pair, first=name, second='OLD'))}")
    return lines


async def selftest(
    root: str | os.PathLike[str],
    *,
    providers: Callable[[], Sequence[Provider]] = tuple,
    count: int = 10,
    repeat: int = 1,
    second_look: SecondLookMode | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Score:
    """Let models review up to `count` undone fixes and as many clean changes; return the score.

    Fixes are commits that also change a test. An undone fix is the reverse of such a commit. Each
    change is reviewed `repeat` times. `second_look` overrides the setting of the repository.
    `on_progress` is called with one line for each review. Raise ConfigError if no fix is found.
    """
    trials: list[Trial] = []
    model = NO_MODEL
    with tempfile.TemporaryDirectory(prefix="glue-selftest-") as folder:
        scratch = Scratch(Path(folder), root)
        samples = changes(root, scratch, count)
        repeated = ((*pair, number) for pair in samples for number in range(1, repeat + 1))
        for bundle, sample, number in repeated:
            config = make(bundle.config)
            asked = providers()
            model = ",".join(provider.name for provider in asked) or model
            with Repo(scratch.home, alternates=True) as repo:
                run = await review(
                    bundle,
                    providers=asked,
                    config=config,
                    repo=repo,
                    second_look=second_look or config.second_look,
                )
            trial = replace(judge(run, bundle, sample), model=model, repeat=number)
            trials.append(trial)
            kind = "fix undone" if sample.undone else "clean"
            on_progress(f"{len(trials)}: {sample.sha[:12]} {kind}: {_word(trial)}")
    if not any(trial.undone for trial in trials):
        raise ConfigError(
            f"no suitable fix was found in the last {HISTORY} commits;"
            " a self-test needs small fixes that also change a test"
        )
    return Score(models=(model,), trials=tuple(trials), labels=_labels(root))


def _labels(root: str | os.PathLike[str]) -> dict[str, str]:
    """Return the labels in the `.glue/dismissed` of HEAD, by fingerprint of the finding."""
    with Repo(root) as repo:
        text = file_text(repo, repo.resolve("HEAD"), DISMISSED_FILE) or ""
    bundle = Bundle(guidelines={DISMISSED_FILE: text})
    return {one.id: one.label for one in memory.decisions(bundle) if one.id}


def _word(trial: Trial) -> str:
    if trial.outcome == INCONCLUSIVE:
        return INCONCLUSIVE
    found = "found" if trial.found else "missed" if trial.undone else "quiet"
    more = counted(len(trial.others), "finding")
    if not trial.others:
        return found
    return f"{found}, {more} to label" if trial.undone else f"{more} to label"


def judge(run: ReviewRun, bundle: Bundle, sample: Sample) -> Trial:
    """Score the finished review `run` of the commit `sample`, and return a Trial."""
    reported = [finding for finding in run.findings if not finding.rule] if not run.codes else []
    reported = list(dedupe.unique(reported)[0])
    files = bundle.files if sample.undone else ()
    near, exact = _places(files, margin=1), _places(files, margin=0)
    hits = [finding for finding in reported if _on(finding, near)]
    others = [finding for finding in reported if finding not in hits]
    reasons = [f"{finding.fingerprint} {finding.where}: {finding.title}" for finding in others]
    return Trial(
        model=run.provider or NO_MODEL,
        case=f"{sample.sha[:12]} {sample.subject}",
        repeat=1,
        score=float(bool(hits) if sample.undone else not (reported or run.codes)),
        outcome=INCONCLUSIVE if run.codes else run.outcome or "done",
        reasons=(*run.codes, *reasons),
        text=run.summary,
        cost=run.cost if run.provider else 0.0,
        tokens=run.tokens_in + run.tokens_out,
        seconds=run.seconds,
        turns=run.turns,
        replied=f"{run.provider}:{run.model}".strip(":"),
        undone=sample.undone,
        exact=any(_on(finding, exact) for finding in hits),
        others=tuple(others),
        ruled=sample.undone and any(_on(finding, near) for finding in deterministic(bundle)),
        refuted=run.second_look.refuted,
    )


def _on(finding: Finding, places: set[tuple[str, int]]) -> bool:
    """Return whether `places` contains a line of the finding."""
    last = finding.line or finding.claimed or 0
    return any(
        (finding.path, number) in places for number in range(finding.start_line or last, last + 1)
    )


def _places(files: Sequence[FileDiff], margin: int) -> set[tuple[str, int]]:
    """Return (path, line number) of each changed line and of `margin` lines above and below it.

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


Pair: TypeAlias = tuple[str, str]  # hashes of two commits: before and after a change


class Scratch:
    """A bare repository in a temporary folder, which uses the objects of another repository."""

    def __init__(self, folder: Path, root: str | os.PathLike[str]) -> None:
        self.home = str(folder / "scratch.git")
        self._index = str(folder / "index")
        objects = self._git("-C", str(root), "rev-parse", "--git-path", "objects")
        self._git("init", "-q", "--bare", "--template=", self.home)
        borrowed = Path(self.home, "objects", "info", "alternates")
        borrowed.parent.mkdir(exist_ok=True)
        borrowed.write_text(f"{Path(os.fspath(root), objects).resolve()}\n", encoding="utf-8")

    def undo(self, fix: str, parent: str, paths: Sequence[str], tests: Sequence[str]) -> Pair:
        """Create two commits, one with a fix and one without it, and return their hashes.

        Both have the `tests` of the fix, and all other files as in the parent of the fix, so that
        a changelog does not tell what was undone. Only `paths` differ.
        """
        base = self.commit(self.tree(parent, fix, (*tests, *paths)))
        return base, self.commit(self.tree(parent, fix, tests), base)

    def tree(self, rev: str, other: str, paths: Sequence[str]) -> str:
        """Write a tree with the files of `rev`, but `paths` as in `other`, and return its hash."""
        here = ("-C", self.home)
        self._git(*here, "read-tree", rev)
        for path in paths:
            entry = self._git(*here, "ls-tree", other, "--", path)
            if entry:
                mode, _, blob = entry.partition("\t")[0].split()
                self._git(*here, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
            else:
                self._git(*here, "update-index", "--force-remove", "--", path)
        return self._git(*here, "write-tree")

    def commit(self, tree: str, parent: str = "") -> str:
        """Commit a tree with the message "Update", and return the hash of the commit.

        Another message could reveal the defect to the reviewing model.
        """
        parents = ("-p", parent) if parent else ()
        return self._git("-C", self.home, "commit-tree", tree, *parents, "-m", "Update")

    def _git(self, *args: str) -> str:
        names = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")
        dates = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self.home,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_INDEX_FILE": self._index,
            "GIT_LITERAL_PATHSPECS": "1",
            **dict.fromkeys(names, "selftest"),
            **dict.fromkeys(dates, "2024-01-01T00:00:00Z"),
        }
        done = subprocess.run([find_git(), *args], env=env, capture_output=True, check=False)
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            raise GitError(f"git {args[-1]}: {reason}", kind="failed")
        return os.fsdecode(done.stdout.strip())


def changes(
    root: str | os.PathLike[str], scratch: Scratch, count: int
) -> Iterator[tuple[Bundle, Sample]]:
    """Yield each change to review with its Sample. A change is an undone fix or a clean commit.

    An undone fix is a fix of the history in reverse, so that its defect is back. There are at most
    `count` fixes, and never more clean changes than fixes.
    """
    fixes: list[tuple[str, Sample]] = []
    clean: list[tuple[str, Sample]] = []
    with Repo(root) as repo:
        for commit in repo.log("", repo.resolve("HEAD"), limit=HISTORY):
            subject = commit.message.split("\n", 1)[0]
            is_fix = bool(_FIX.search(subject)) and not _NOT.search(subject)
            wanted = fixes if is_fix else clean
            if len(wanted) >= count or (_FIX.search(subject) and not is_fix):
                continue
            found = sources(repo, commit.sha, tested=is_fix)
            if found is None:
                continue
            parent, paths, tests = found
            pair = (parent, commit.sha)
            if is_fix:
                pair = scratch.undo(commit.sha, parent, paths, tests)
            sample = Sample(sha=commit.sha, subject=subject[:120], undone=is_fix)
            wanted.append((f"{pair[0]}..{pair[1]}", sample))
            if len(fixes) >= count and len(clean) >= count:
                break
    for index, fix in enumerate(fixes):
        for range_, sample in (fix, *clean[index : index + 1]):
            yield collect_range(scratch.home, range_, alternates=True), sample


def sources(repo: Repo, sha: str, *, tested: bool) -> tuple[str, list[str], list[str]] | None:
    """Return a commit's parent, source files and tests, or None if it does not suit a self-test.

    A commit does not suit if it changes no or too many source files, adds or deletes one, or
    changes too many lines; if `tested`, also if it changes no test.
    """
    try:
        parent = repo.resolve(f"{sha}^")
        changed = repo.changes(parent, sha)
    except GitError:
        return None
    tests = [file.path for file in changed if is_test(file.path)]
    if len(changed) > 10 or (tested and not tests):
        return None
    code = [
        file
        for file in changed
        if language(file.path)
        and not (is_test(file.path) or is_doc(file.path) or is_generated(file.path))
    ]
    sizes = [(file.added or 0) + (file.deleted or 0) for file in code]
    if not 1 <= len(code) <= FILES or max(sizes) > 200:
        return None
    paths = [file.path for file in code]
    # A file that was added or deleted is more than a fix.
    sides = [repo.entry(rev, path) for rev in (parent, sha) for path in paths]
    return (parent, paths, tests) if all(sides) else None
