"""The command `glue review`, which collects, runs and publishes a review, and its subcommands."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import anyio
import click

from glue import Provider
from glue import providers as catalog
from glue.agents.review import runfile, storage
from glue.agents.review import selftest as scoring
from glue.agents.review.change import collect as source
from glue.agents.review.change.config import (
    DISMISSED_FILE,
    NOT_INCLUDED,
    make,
    read_config,
    why_not,
)
from glue.agents.review.delivery import clean, commands, forges, outputs
from glue.agents.review.delivery import publish as publishing
from glue.agents.review.delivery.discussion import with_discussion
from glue.agents.review.doctor import examine
from glue.agents.review.findings import dedupe, memory
from glue.agents.review.findings import model as reviewing
from glue.agents.review.findings.analysers import RUFF_RULES, HandedIn, find_ruff, handed_in
from glue.agents.review.findings.progress import ReviewProgress
from glue.agents.review.findings.rules import RULES
from glue.agents.review.records import (
    SEVERITIES,
    Bundle,
    ReviewedChange,
    ReviewRun,
    SecondLookMode,
)
from glue.errors import ConfigError, GitError, GlueError, UnsafePath
from glue.installing import install_command
from glue.text import clean_text, count, one_line
from glue.tools.git import Repo, find_git
from glue.trials import load_as, save

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
INTERRUPTED = "interrupted"
# Kind -> name of the template, path of the file to write, and what the user still has to do.
TEMPLATES = {
    "github": ("github.yml", ".github/workflows/review.yml", ""),
    "gitlab": (
        "gitlab.yml",
        ".gitlab/review.yml",
        "add to .gitlab-ci.yml:  include: {local: .gitlab/review.yml}",
    ),
    "gitea": ("gitea.yml", ".gitea/workflows/review.yml", ""),
    "pre-push": ("pre-push", "", ""),  # git is asked for the path
}


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds all `options`, which several commands share, to a command."""

    def decorate(function: F) -> F:
        return reduce(lambda wrapped, option: option(wrapped), reversed(options), function)

    return decorate


class _Out(click.Path):
    """The type of an option that names an output file. The folder of the file must exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not Path(value).parent.is_dir():
            self.fail(f"the folder {Path(value).parent} does not exist", param, ctx)
        return super().convert(value, param, ctx)


_OUT = _Out(dir_okay=False, writable=True)
_FILES = click.Path(exists=True, dir_okay=False)
_FOLDER = click.Path(exists=True, file_okay=False)
_MODEL_HELP = (
    "Provider and model for the review; several, separated by commas, are tried in order."
    " Default: GLUE_MODEL, else the model of the settings, else only analysers and rules."
)
_root = click.option(
    "-C", "root", default=".", type=_FOLDER, help="The repository. Default: the current folder."
)
_where = _options(
    _root,
    click.option(
        "--base", default="", help="The branch to compare with. Default: found automatically."
    ),
    click.option("--head", default="", help="The last commit of the change. Default: HEAD."),
    click.option(
        "--range", "range_", default="", metavar="A..B", help="Review a range of commits."
    ),
    click.option("--staged", is_flag=True, help="Review staged changes."),
    click.option("--dirty", is_flag=True, help="Review all uncommitted changes."),
    click.option(
        "--diff", "diff", type=click.File("rb"), help="Review a diff from a file, or - for stdin."
    ),
    click.option(
        "--paths", multiple=True, metavar="GLOB", help="Review only these files; may be repeated."
    ),
    click.option(
        "--paths-ignore",
        "ignored",
        multiple=True,
        metavar="GLOB",
        help="Do not review these files; may be repeated.",
    ),
    click.option(
        "--issue",
        "issues",
        multiple=True,
        help="Title of an issue that the change should solve; may be repeated.",
    ),
)
_pr = click.option("--pr", type=int, help="Number of the pull request. Default: found in CI.")
_second_look = click.option(
    "--second-look",
    type=click.Choice(["never", "auto", "always"]),
    help="Let the model check its own findings again, each in a separate run, before they are"
    " posted. auto checks only findings of medium severity or worse."
    " Default: second_look in .glue/review.toml of the base branch, else auto.",
)
_model = _options(
    click.option("-m", "--model", default="", help=_MODEL_HELP),
    click.option(
        "--config",
        "config_path",
        type=_FILES,
        help="A settings file to use instead of .glue/review.toml of the base branch.",
    ),
    _second_look,
    click.option(
        "--record", type=_OUT, help="Record the review in a file for `glue review replay`."
    ),
    click.option(
        "--previous",
        type=click.Path(file_okay=False),
        help="A folder that --save wrote. The model reads only new hunks, and the findings of the"
        " saved review on other hunks are kept.",
    ),
    click.option(
        "--sarif",
        multiple=True,
        type=_FILES,
        help="Report new results of another tool, from a SARIF file; may be repeated.",
    ),
    click.option(
        "--rdjson",
        multiple=True,
        type=_FILES,
        help="Report new results of another tool, from an RDJSON file; may be repeated.",
    ),
    click.option(
        "--sarif-base",
        multiple=True,
        type=_FILES,
        help="SARIF results of the --sarif tool for the base. Results in both are not reported.",
    ),
    click.option(
        "--rdjson-base",
        multiple=True,
        type=_FILES,
        help="RDJSON results of the --rdjson tool for the base. Results in both are not reported.",
    ),
)
_bundle = click.option(
    "--bundle",
    "bundle_path",
    default="bundle.json",
    type=_FILES,
    help="The bundle that `glue review collect` wrote. Default: bundle.json.",
)
_gate = _options(
    click.option(
        "--fail-on",
        type=click.Choice([*SEVERITIES, "never"]),
        help="Exit with code 1 for findings of this severity or worse."
        " Default: fail_on in .glue/review.toml of the base branch, else high.",
    ),
    click.option(
        "--require-coverage",
        type=click.FloatRange(0, 100),
        help="Exit with code 3 if less than this percentage of the change was read in full.",
    ),
)
_output = _options(
    click.option(
        "--format",
        "form",
        type=click.Choice(list(outputs.FORMATS)),
        default="terminal",
        help="The format of the report. Default: terminal.",
    ),
    click.option(
        "-o", "--output", type=_OUT, help="Write the report to a file instead of printing it."
    ),
)


def _note(text: str) -> None:
    """Print `text` on stderr, after "glue review: "."""
    click.echo(f"glue review: {text}", err=True)


class _Group(click.Group):
    """A click group that prints an error as one line, and exits with its command's return value.

    If the command returns None, the exit code is 0. After an error it is 2 or 3.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            ctx.exit(super().invoke(ctx) or 0)
        except GlueError as error:
            _note(clean.line(str(error), 600))
            ctx.exit(2 if isinstance(error, ConfigError | GitError | UnsafePath) else 3)
        except OSError as error:
            if error.filename is None:
                raise
            _note(f"{clean.line(str(error.filename))}: {error.strerror}")
            ctx.exit(2)  # 1 means that there are findings


@click.group(cls=_Group, invoke_without_command=True)
@_where
@_model
@_gate
@_output
@click.option(
    "--post/--no-post",
    default=None,
    help="Post the review to the forge. Default: only in CI on a pull request.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Post nothing; print the exact requests that would post the review.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False),
    help="Save the review in this folder, as bundle.json and findings.json, for --previous.",
)
@click.pass_context
def review(ctx: click.Context, /, **given: Any) -> int:
    """Review a branch, a range, staged changes or a pull request; print or post the findings.

    The report is printed. In CI on a pull request, it is also posted to the forge.

    Exit codes: 0 pass, 1 findings of the severity --fail-on or worse, 2 a mistake in the command or
    the settings, 3 inconclusive, 4 not delivered.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    bundle = _gather(given)
    if reason := why_not(bundle.change, make(_settings(bundle, given))):
        _note(f"the review is skipped: {reason}")
        return 0
    if nothing := _nothing(bundle, given):
        _note(nothing)
        return 0
    run = _run(bundle, given)
    if given["save"]:
        home = Path(given["save"])
        home.mkdir(parents=True, exist_ok=True)
        storage.save(bundle, home / "bundle.json")
        storage.save(run, home / "findings.json")
    posts = given["post"] if given["post"] is not None else bundle.change.mode == "pull_request"
    posts = (posts or given["dry_run"]) and run.outcome != INTERRUPTED
    return _publish(bundle, run, given, post=posts)


@review.command()
@_where
@_pr
@click.option(
    "--out",
    default="bundle.json",
    type=_OUT,
    help="The file to write the bundle to. Default: bundle.json.",
)
def collect(out: str, **given: Any) -> None:
    """Write the change to a bundle file. Checks nothing out; needs no key and no write token.

    In CI, a token that may read the pull request adds its comments and the issues that it closes.
    """
    bundle = _gather(given)
    storage.save(bundle, out)
    click.echo(
        f"{out}: {count(len(bundle.files), 'file')}, {len(bundle.skipped)} left out", err=True
    )


@review.command("run")
@_bundle
@click.option(
    "-C",
    "root",
    default="",
    help="The repository that the model may read. Default: the model reads only the bundle.",
)
@_model
@click.option(
    "--out",
    default="findings.json",
    type=_OUT,
    help="The file to write the findings to. Default: findings.json.",
)
def run_command(bundle_path: str, out: str, **given: Any) -> int:
    """Review a bundle with analysers, rules and a model, and write the findings to a file.

    Needs no write token: tokens of forges are removed from the environment first. A model without a
    key is not asked.
    """
    for name in forges.TOKENS:
        os.environ.pop(name, None)
    bundle = storage.load(Bundle, bundle_path)
    run = _run(bundle, given, is_model_needed=False)
    storage.save(run, out)
    verb = "read in full" if run.provider else "analysed"
    found = count(len(run.findings), "finding")
    click.echo(f"{out}: {found}, {run.coverage.percent:g} % {verb}", err=True)
    return 3 if run.codes else 0


_saved = _options(
    _bundle,
    click.option(
        "--findings",
        "findings_path",
        default="findings.json",
        type=_FILES,
        help="The findings that `glue review run` wrote. Default: findings.json.",
    ),
)


@review.command()
@_saved
@_gate
@_output
@click.option(
    "--dry-run",
    is_flag=True,
    help="Post nothing; print the exact requests that would post the review.",
)
@click.option("--blind", is_flag=True, help="With --dry-run: read nothing from the forge either.")
@click.option(
    "--check",
    is_flag=True,
    help="Also add a check run with annotations. GitHub only; needs the permission checks: write.",
)
@click.option(
    "--forge", type=click.Choice(forges.NAMES), help="The forge to post to. Default: found in CI."
)
@click.option("--api", default="", help="The address of the forge's API. Default: found in CI.")
@click.option(
    "--repo",
    default="",
    metavar="OWNER/NAME",
    help="The repository of the pull request. Default: found in CI.",
)
@_pr
def publish(**given: Any) -> int:
    """Check saved findings, drop those that fail a check, remove secrets, and post the rest.

    Needs a token with write access, but no model.
    """
    return _publish(*_saved_review(given), given, post=True)


@review.command()
@_saved
@_gate
@_output
def gate(**given: Any) -> int:
    """Check saved findings, drop those that fail a check, and print the report. Post nothing.

    The exit code is the verdict: 0 if the review passes, 1 if a finding fails it, and 3 if it is
    inconclusive.
    """
    return _publish(*_saved_review(given), given, post=False)


def _saved_review(given: Mapping[str, Any]) -> tuple[Bundle, ReviewRun]:
    bundle = storage.load(Bundle, given["bundle_path"])
    return bundle, storage.load(ReviewRun, given["findings_path"])


@review.command()
@click.argument("run_file", type=_FILES)
@_gate
@_output
def replay(run_file: str, **given: Any) -> int:
    """Replay a recorded review offline, and print its report and differences from the recording.

    The exit code is 1 if it differs, else that of the review.
    """
    old = runfile.load(run_file)
    config = make(old.config) if old.config else None
    again = partial(
        reviewing.review,
        providers=old.replays(),
        config=config,
        record=old,
        replay=True,
        second_look=old.second_look,
    )
    run = anyio.run(again, old.bundle)
    if old.result:
        lines = runfile.differences(old.result, run)
    else:
        lines = [f"the run file {run_file} has no result; record the review again"]
    click.echo(
        _rows(lines) or "the replay has the findings, summary and requests of the recording",
        err=True,
    )
    code = _publish(old.bundle, run, given, post=False, environ={})
    return 1 if lines else code


@review.command("diff")
@click.argument("old", type=_FILES)
@click.argument("new", type=_FILES)
def diff_command(old: str, new: str) -> int:
    """Print the differences between two reviews or two self-test scores, and exit with 1 if any.

    A review is in a findings.json or in a run file.
    """
    one, other = _result(old), _result(new)
    if isinstance(one, ReviewRun) and isinstance(other, ReviewRun):
        lines = runfile.differences(one, other)
    elif isinstance(one, scoring.Score) and isinstance(other, scoring.Score):
        lines = scoring.differences(one, other)
    else:
        raise ConfigError(
            "one file is a review and the other a self-test; give two of the same kind"
        )
    click.echo(_rows(lines) or "no difference")
    return 1 if lines else 0


def _rows(lines: Sequence[str]) -> str:
    return "\n".join(clean.line(line, 300) for line in lines)


@review.command()
@_root
def doctor(root: str) -> int:
    """Print mistakes in CI workflows that let a pull request run code with your rights.

    The exit code is 1 if there is a mistake of the level "error".
    """
    found = examine(root)
    for problem in found:
        click.echo(clean.line(str(problem), 600))
    if not found:
        click.echo("no problems found in the workflows")
    click.echo(
        "this command finds only mistakes that endanger a review bot; zizmor (docs.zizmor.sh)"
        " finds other mistakes in workflows"
    )
    return 1 if any(problem.level == "error" for problem in found) else 0


@review.command()
@_root
@click.option("-m", "--model", default="", help="Provider and model to test. Default: GLUE_MODEL.")
@click.option(
    "--count", default=10, type=click.IntRange(1, 500), help="Number of fixes to undo. Default: 10."
)
@click.option(
    "--repeat",
    default=1,
    type=click.IntRange(1, 20),
    help="Number of reviews of each change. Default: 1.",
)
@_second_look
@click.option(
    "--out",
    type=_OUT,
    help="Write the score to a file for `review diff` and `glue eval diff`.",
)
def selftest(
    root: str,
    model: str,
    count: int,
    repeat: int,
    second_look: SecondLookMode | None,
    out: str | None,
) -> None:
    """Measure how many defects a model finds if fixes of your git history are undone.

    The fixes are undone in a scratch repository; yours is not changed. Up to the same number of
    clean changes is reviewed too. The score is printed. Each change is reviewed exactly as by
    `glue review`. Other findings are listed: read them, and record with `glue review label` whether
    they are right.
    """
    asked = providers(model)
    work = partial(
        scoring.selftest,
        source.top(root),
        providers=lambda: asked,
        count=count,
        repeat=repeat,
        second_look=second_look,
        on_progress=partial(click.echo, err=True),
    )
    score = _ask(asked, work)
    click.echo(clean_text(str(score), drop=True).replace("##[", "# #["))
    if out:
        save(score, Path(out))


@review.command()
@click.argument("id_", metavar="ID")
@click.argument("label", type=click.Choice(memory.LABELS))
@click.argument("reason", nargs=-1)
@_root
@click.option(
    "--findings",
    "findings_path",
    default="findings.json",
    type=_FILES,
    help="File with the findings of a review or the score of a self-test. Default: findings.json.",
)
def label(
    id_: str, label: memory.Label, reason: tuple[str, ...], root: str, findings_path: str
) -> None:
    """Write to .glue/dismissed whether a finding is right, arguable or wrong.

    The ID is the fingerprint of the finding. Later reviews read the file from the base branch:
    commit it.
    """
    result = _result(findings_path)
    found = result.findings if isinstance(result, ReviewRun) else result.listed
    named = dedupe.unique(found)[0] if isinstance(result, ReviewRun) else found
    match = [finding for finding in named if finding.fingerprint.startswith(id_.lower())]
    if len(match) != 1 or len(id_) < 4:
        known = ", ".join(finding.fingerprint for finding in named[:10]) or "none"
        known += ", ..." if len(named) > 10 else ""
        raise ConfigError(
            f"{id_} does not identify exactly one finding in {findings_path};"
            f" give its id, or at least the first 4 characters of the id; the ids are: {known}"
        )
    path = Path(source.top(root), DISMISSED_FILE)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    path.parent.mkdir(exist_ok=True)
    line = memory.line(match[0], label, " ".join(reason))
    path.write_text(memory.added(old, line), encoding="utf-8")
    click.echo(f"wrote to {path}: {clean.line(line)}")


@review.command()
@click.argument("kind", type=click.Choice(list(TEMPLATES)))
@_root
@click.option(
    "--from",
    "origin",
    default="",
    metavar="OWNER/NAME@COMMIT",
    help="The repository and commit from which CI installs glue.",
)
@click.option("-m", "--model", default="", help="Provider and model for the reviews in CI.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(kind: str, root: str, origin: str, model: str, force: bool) -> None:
    """Write a CI workflow that reviews pull requests, or a git hook that reviews before a push."""
    name, place, hint = TEMPLATES[kind]
    path = Path(source.top(root), place or _hook(source.top(root), name))
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already; --force replaces it")
    text = files("glue.agents.review").joinpath("ci", name).read_text(encoding="utf-8")
    owner, _, commit = origin.partition("@")
    if origin and (owner.count("/") != 1 or not commit):
        raise ConfigError(f"--from takes OWNER/NAME@COMMIT, not {origin!r}")
    unpinned = not origin and "REPLACE_WITH_A_FULL_COMMIT_HASH" in text
    if origin:
        text = text.replace("OWNER/glue", owner).replace("REPLACE_WITH_A_FULL_COMMIT_HASH", commit)
    default = "anthropic:claude-haiku-5-5"
    # Some templates take the model from a variable of the CI job.
    is_variable = model and default not in text
    text = text.replace(default, model or default)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if kind == "pre-push":
        path.chmod(0o755)
    click.echo(f"wrote {path}")
    if unpinned:
        click.echo(
            "in this file, replace OWNER/glue and REPLACE_... with the repository and the commit"
            " of glue, or use --from"
        )
    if is_variable:
        click.echo(f"set the variable GLUE_MODEL={model} for the CI job or the git hook")
    if hint:
        click.echo(hint)


def _hook(root: str, name: str) -> str:
    """Return the path of the file that git runs as the hook `name`; raise GitError if git fails.

    Worktrees share hooks, and `core.hooksPath` may name another folder, so git is asked. `run_git`
    cannot be used, because it switches off hooks and the settings of the user.
    """
    argv = [find_git(root), "-C", root, "rev-parse", "--git-path", f"hooks/{name}"]
    asked = subprocess.run(argv, capture_output=True, check=False)
    if asked.returncode:
        reason = one_line(asked.stderr.decode("utf-8", "replace"))
        raise GitError(
            f"the folder of the git hooks of {root} was not found: {reason}", kind="missing"
        )
    return os.fsdecode(asked.stdout.rstrip(b"\n"))


@review.command()
def rules() -> None:
    """Print the name and severity of each rule that needs no model: of glue, and of ruff."""
    for name, rule in RULES.items():
        title = rule["title"].replace("{", "<").replace("}", ">")
        click.echo(f"{name:<22}{rule['severity']:<10}{title}")
    for code, ruff in RUFF_RULES.items():
        click.echo(f"ruff/{code:<17}{ruff['severity']:<10}{ruff['why']}")
    if not find_ruff():
        _note(f"ruff is not installed; install it: {install_command('review')}")


@review.command()
def respond() -> None:
    """Reply to the command in a comment that started this CI job, and write outputs of the step.

    Run this in a CI job for issue_comment events. The outputs are: command, review (true or false),
    head, base, number, and memory. The output memory is the line for .glue/dismissed after
    `/ignore always`.
    """
    found = commands.respond(os.environ)
    values = {"command": found.name, "review": found.review, "head": found.head}
    values |= {"base": found.base, "number": found.number or 0, "memory": found.memory}
    outputs.append(os.environ.get("GITHUB_OUTPUT", ""), outputs.step_outputs(values))
    text = found.refused or (
        f"{found.name} by {found.by}" if found.name else "the comment has no command"
    )
    _note(clean.line(text))


def _gather(given: Mapping[str, Any]) -> Bundle:
    """Collect the change that the options name, and return it as a bundle.

    If the options name no change, collect the change of the CI job's pull request, or of the
    current branch if the CI job has none. The discussion of a pull request is added to the bundle.
    """
    root = source.top(given["root"])
    chosen = [name for name in ("range_", "staged", "dirty", "diff") if given[name]]
    only = source.PathFilter(given["paths"], given["ignored"])
    if len(chosen) > 1 or (chosen and (given["base"] or given["head"])):
        raise ConfigError(
            "--range, --staged, --dirty, --diff and --base/--head exclude each other; give one"
        )
    if given["diff"]:
        raw = given["diff"].read()
        bundle = source.from_diff(
            raw,
            change=ReviewedChange(mode="diff"),
            rules=only.narrow(make(_settings(Bundle(), given))),
        )
        if raw.strip() and not bundle.files and not bundle.skipped:
            raise ConfigError("--diff: this is not a diff; give the output of `git diff`")
    elif given["range_"]:
        bundle = source.collect_range(root, given["range_"], only=only)
    elif chosen:
        bundle = source.collect_dirty(root, staged=given["staged"], only=only)
    else:
        bundle = _branch(root, given, only)
    change = replace(bundle.change, issues=tuple(given["issues"]))
    if change.mode == "pull_request":
        place = forges.find_pull_request(os.environ)
        change, note = with_discussion(change, place, os.environ)
        if note:
            _note(clean.line(note))
    return replace(bundle, change=change)


def _branch(root: str, given: Mapping[str, Any], only: source.PathFilter) -> Bundle:
    """Collect the change of the branch that --base or --head names, and return it as a bundle.

    If neither is given, collect the change of the CI job's pull request, or of the current branch
    if the CI job has none.
    """
    place = forges.find_pull_request(os.environ)
    base, head = given["base"], given["head"]
    is_named = bool(base or head)
    change = None if is_named else forges.read_change(place, os.environ)
    if change is not None:
        base, head = change.base_sha or change.base_ref, change.head_sha
    elif given.get("pr") is not None:
        # The CI job was not started by an event of a pull request.
        change = ReviewedChange(
            mode="pull_request", forge=place.forge, repo=place.repo, number=given["pr"]
        )
    bundle = source.collect(root, base=base, head=head or "HEAD", change=change, only=only)
    command = commands.read(place.event) if is_named else None
    if command is None:
        return bundle
    # A user asked for this review in a comment; `respond` has checked their permission.
    words = command.argument if command.name == "ask" else ""
    change = replace(
        bundle.change, mode="pull_request", forge=place.forge, repo=place.repo, number=place.number
    )
    return replace(bundle, change=replace(change, asked_by=command.by, request=words))


def _nothing(bundle: Bundle, given: Mapping[str, Any]) -> str:
    """Return a message if the change has no files or --paths matches none of them, else ""."""
    if not bundle.files and not bundle.skipped:
        return f"there is nothing to review{_hint(given)}"
    changed = count(len(bundle.skipped), "file")
    is_left_out = not bundle.files and all(skip.reason == NOT_INCLUDED for skip in bundle.skipped)
    if given["paths"] and is_left_out:
        return f"no file matches --paths {' '.join(given['paths'])}; the change has {changed}"
    return ""


def _hint(given: Mapping[str, Any]) -> str:
    """Return a hint for a user whose branch has no changes, or "" if there is none.

    The hint is about uncommitted changes or a shallow clone. If the user named a change, return "".
    """
    if any(given[name] for name in ("range_", "staged", "dirty", "diff", "base", "head")):
        return ""
    root = source.top(given["root"])
    try:
        if source.collect_dirty(root).files:
            return "; there are uncommitted changes: --dirty reviews them"
        with Repo(root) as repo:
            is_shallow = repo.shallow
        return "; the clone is shallow: fetch more history, or name --base" if is_shallow else ""
    except GlueError:
        return ""


def _settings(bundle: Bundle, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings in the file that --config names, else those of the base branch."""
    path = given.get("config_path")
    if not path:
        return bundle.config
    return read_config(Path(path).read_text(encoding="utf-8", errors="replace"), path)


def _run(bundle: Bundle, given: Mapping[str, Any], *, is_model_needed: bool = True) -> ReviewRun:
    """Review a bundle by analysers, rules and the named model, if any, and return the result.

    If --record is given, the run file is written. Progress is printed on stderr. After Ctrl-C the
    findings so far are returned, with the outcome "interrupted".
    """
    if given["record"] and given["previous"]:
        raise ConfigError("--record and --previous exclude each other; leave out one")
    plain = _settings(bundle, given)
    config = make(plain)
    record = (
        runfile.RunFile(secrets.token_hex(16), bundle, config=plain) if given["record"] else None
    )
    asked = providers(given["model"], config.model, is_model_needed)
    if not find_ruff() and any(file.path.endswith(".py") for file in bundle.files):
        _note(f"ruff is not installed, so its rules are not checked: {install_command('review')}")
    callbacks = reviewing.ReviewCallbacks(
        on_progress=lambda text: click.echo(clean.line(text, 200), err=True) if asked else None
    )
    earlier, analysed = _earlier(given["previous"]), _handed_in(bundle, given)
    progress = ReviewProgress(bundle)

    async def go() -> ReviewRun:
        try:
            return await reviewing.review(
                bundle,
                providers=asked,
                config=config,
                on_event=progress,
                callbacks=callbacks,
                repo=repo,
                record=record,
                earlier=earlier,
                handed_in=analysed,
                second_look=given["second_look"] or config.second_look,
            )
        finally:
            progress.end()

    with ExitStack() as stack:
        root = source.top(given["root"]) if given["root"] and not given.get("diff") else ""
        is_git = root and any(
            os.path.lexists(os.path.join(root, name)) for name in (".git", "objects")
        )
        repo = stack.enter_context(Repo(root)) if is_git else None
        try:
            done = _ask(asked, go)
        except KeyboardInterrupt:
            if callbacks.partial_result is None:
                raise
            done = replace(callbacks.partial_result(), outcome=INTERRUPTED)
            _note("interrupted; these are the findings so far")
    if record is not None and record.result is not None:
        record.save(given["record"])
    return done


def _earlier(folder: str | None) -> dedupe.EarlierReview | None:
    """Return the review that --save wrote to `folder`, or print why it is unusable and return None.

    If `folder` is empty or None, nothing is printed.
    """
    if not folder:
        return None
    try:
        earlier = dedupe.load(folder)
        if earlier is None:
            _note(f"the folder {folder} has no earlier review yet; the whole change is reviewed")
        return earlier
    except ConfigError as error:
        _note(f"{clean.line(str(error))}; the whole change is reviewed")
        return None


def _handed_in(bundle: Bundle, given: Mapping[str, Any]) -> HandedIn | None:
    """Return the HandedIn of the user's SARIF and RDJSON files, or None if no file is given.

    Its findings are results that the files for the base do not contain or, without such files,
    results on added lines. Notes on the files are printed on stderr. Raise ConfigError if only
    files for the base are given.
    """
    now = [(form, path) for form in ("sarif", "rdjson") for path in given[form]]
    before = [(form, path) for form in ("sarif", "rdjson") for path in given[f"{form}_base"]]
    if before and not now:
        raise ConfigError(
            "--sarif-base and --rdjson-base need results to compare with;"
            " give --sarif or --rdjson too"
        )
    if not now:
        return None
    found = handed_in(bundle, now, before, source.top(given["root"] or "."))
    for note in found.notes:
        _note(clean.line(note))
    return found


def _ask(asked: Sequence[Provider], work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, close the providers in `asked`, and return the result of `work`."""

    async def run() -> T:
        try:
            return await work()
        finally:
            for provider in asked:
                if hasattr(provider, "aclose"):
                    await provider.aclose()

    return anyio.run(run)


def providers(model: str, configured: str = "", is_needed: bool = True) -> list[Provider]:
    """Return a provider for each named model that has a key; [] means a review without a model.

    The names are in `model`, else in the variable GLUE_MODEL, else in `configured`. A model without
    a key, or the model `offline`, is left out with a note on stderr. Raise ConfigError if models
    are named, none has a key, and `is_needed`.
    """
    named = model or os.environ.get("GLUE_MODEL", "") or configured
    specs = [spec.strip() for spec in named.split(",") if spec.strip()]
    ready = [spec for spec in specs if catalog.key_available(spec)]
    for spec in specs:
        if spec not in ready:
            _note(f"{spec} has no key and is left out of the review")
    if specs and not ready and is_needed:
        return [catalog.new(specs[0])]  # raises ConfigError, which names the variable
    opened = [catalog.new(spec) for spec in ready]
    able = [provider for provider in opened if not isinstance(provider, catalog.Offline)]
    if len(able) < len(opened):
        _note("the provider offline only plays a model and cannot review; it is left out")
    return able


def _publish(
    bundle: Bundle,
    run: ReviewRun,
    given: Mapping[str, Any],
    *,
    post: bool,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Check the findings, post them if `post`, print or save the report, and return the exit code.

    Findings that fail a check are dropped. In a dry run, the requests to the forge are printed
    instead of the report. Otherwise the outputs of the CI step are written too. `environ` contains
    the variables of the CI job.
    """
    config = make(_settings(bundle, given))
    required = given["require_coverage"]
    if required is None:
        required = config.require_coverage or None  # 0 means that no coverage is required
    dry = bool(given.get("dry_run"))
    # Options of the user override the pull request of the CI job.
    options = {name: given[name] for name in ("forge", "api", "repo") if given.get(name)}
    options |= {"number": given["pr"]} if given.get("pr") is not None else {}
    published = publishing.publish(
        bundle,
        run,
        environ,
        place=replace(forges.find_pull_request(environ), **options),
        post=post,
        dry=dry,
        blind=bool(given.get("blind")),
        fail_on=given["fail_on"] or config.fail_on,
        require_coverage=required,
        config=config,
        check=bool(given.get("check")),
    )
    report = published.report
    if dry:
        text = publishing.format_requests(published.requests)
    elif given["form"] == "terminal":
        colour = not given["output"] and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = outputs.terminal(report, colour=colour)
    else:
        text = outputs.render(report, given["form"])
    if given["output"]:
        Path(given["output"]).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    if not dry:
        values = {
            "verdict": published.verdict.word,
            "findings": len(report.items),
            "comment-url": published.delivery.url if published.delivery else "",
        }
        outputs.write_step(report, environ, values)
    for reason in published.verdict.reasons:
        _note(reason)
    return published.verdict.exit_code


def _result(path: str) -> ReviewRun | scoring.Score:
    """Load a review from findings.json or a run file, or a self-test score from a score file.

    Raise ConfigError if the file is a run file without a result, or none of the three.
    """
    raw = Path(path).read_bytes()
    if raw.startswith(b'{"type": "%s"' % runfile.KIND.encode()):
        result = runfile.load(path).result
        if result is None:
            raise ConfigError(f"the run file {path} has no result; record the review again")
        return result
    if raw.startswith(b'{"type": "eval"'):
        return load_as(scoring.Score, scoring.Trial, Path(path))
    return storage.load(ReviewRun, path)
