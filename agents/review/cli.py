"""`glue review`: collect, run and publish, each alone or all three at once. Exit codes as in the table of the docs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from glue.agents.review import pipeline, records
from glue.agents.review.change.config import make, why_not
from glue.agents.review.delivery import clean, forges
from glue.agents.review.records import SEVERITIES, Bundle, ReviewRun
from glue.errors import ConfigError, GitError, GlueError, UnsafePath

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("terminal", "markdown", "html", "json", "sarif", "rdjson", "codequality", "annotations")


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_FILES = click.Path(exists=True, dir_okay=False)
_FOLDER = click.Path(exists=True, file_okay=False)
_root = click.option("-C", "root", default=".", type=_FOLDER, help="The repository.")
_where = _options(
    _root,
    click.option("--base", default="", help="The branch it starts from; found by itself if left out."),
    click.option("--head", default="", help="The commit under review (HEAD)."),
    click.option("--range", "range_", default="", metavar="A..B", help="Review a range of commits."),
    click.option("--staged", is_flag=True, help="Review what is staged."),
    click.option("--dirty", is_flag=True, help="Review everything that is not committed."),
    click.option("--diff", "diff", type=click.File("rb"), help="Review a diff from a file, or - for stdin."),
    click.option("--paths", multiple=True, metavar="GLOB", help="Review these files alone; may be repeated."),
    click.option("--paths-ignore", "ignored", multiple=True, metavar="GLOB", help="Leave these files out."),
    click.option("--issue", "issues", multiple=True, help="Title of an issue that the change is to solve."),
)
_pr = click.option("--pr", type=int, default=None, help="The pull request; found in CI by itself.")
_model = _options(
    click.option(
        "-m",
        "--model",
        default="",
        help="Provider and model; several with commas. Left out: GLUE_MODEL, or rules alone.",
    ),
    click.option("--config", "config_path", type=_FILES, help="Settings to use instead of the base's own."),
    click.option("--record", type=click.Path(dir_okay=False), help="Keep everything in a run file for `replay`."),
    click.option(
        "--previous",
        type=click.Path(file_okay=False),
        help="A folder of --save: the model reads only what is new since, and its other findings stay.",
    ),
    click.option("--sarif", multiple=True, type=_FILES, help="Take another tool's results into the review."),
    click.option("--rdjson", multiple=True, type=_FILES, help="The same from reviewdog's format."),
    click.option("--sarif-base", multiple=True, type=_FILES, help="Its results for the base: these are not new."),
    click.option("--rdjson-base", multiple=True, type=_FILES, help="The same from reviewdog's format."),
)
_gate = _options(
    click.option(
        "--fail-on", type=click.Choice([*SEVERITIES, "never"]), default=None, help="The mildest severity that fails."
    ),
    click.option(
        "--require-coverage",
        type=click.FloatRange(0, 100),
        default=None,
        help="Percent of the change that must have been read.",
    ),
)
_output = _options(
    click.option("--format", "form", type=click.Choice(FORMATS), default="terminal", help="What to print."),
    click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write it to a file instead."),
)


class _Group(click.Group):
    """Say a user's mistake in one line, and leave with the code of a usage error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GlueError as error:
            click.echo(f"glue review: {clean.line(str(error), 600)}", err=True)
            ctx.exit(2 if isinstance(error, ConfigError | GitError | UnsafePath) else 3)


@click.group(cls=_Group, invoke_without_command=True)
@_where
@_model
@_gate
@_output
@click.option("--post/--no-post", default=None, help="Post the review; in CI on a pull request this is the default.")
@click.option("--dry-run", is_flag=True, help="Print the exact requests instead of sending them.")
@click.option("--save", type=click.Path(file_okay=False), help="Keep bundle.json and findings.json in this folder.")
@click.pass_context
def review(ctx: click.Context, /, **given: Any) -> None:
    """Review a change: the current branch, what is staged, a range, or a pull request in CI.

    Exit codes: 0 pass, 1 findings at or above --fail-on, 2 usage, 3 inconclusive, 4 not delivered.
    """
    if ctx.invoked_subcommand is not None:
        return
    environ = dict(os.environ)
    bundle = _told(pipeline.gather(given, environ), given)
    config = pipeline.settings(bundle, given)
    reason = why_not(bundle.change, config)
    if reason:
        click.echo(f"glue review: skipped: {reason}", err=True)
        return
    if not bundle.files and not bundle.skipped:
        click.echo(f"glue review: {pipeline.why_nothing(given)}", err=True)
        return
    run = pipeline.run(bundle, given)
    if given["save"]:
        pipeline.save(given["save"], bundle, run)
    posts = given["post"] if given["post"] is not None else bundle.change.mode == "pull_request"
    posts = (posts or given["dry_run"]) and run.outcome != pipeline.INTERRUPTED
    ctx.exit(pipeline.publish(bundle, run, given, environ, post=posts))


def _told(bundle: Bundle, given: Any) -> Bundle:
    return replace(bundle, change=replace(bundle.change, issues=tuple(given["issues"]))) if given["issues"] else bundle


@review.command()
@_where
@_pr
@click.option("--out", default="bundle.json", type=click.Path(dir_okay=False), help="Where to write the bundle.")
def collect(out: str, **given: Any) -> None:
    """Gather the change from git objects into a bundle. Needs no key and no write token."""
    bundle = _told(pipeline.gather(given, os.environ), given)
    records.save(bundle, out)
    click.echo(f"{out}: {len(bundle.files)} files, {len(bundle.skipped)} left out", err=True)


@review.command("run")
@click.option("--bundle", "bundle_path", default="bundle.json", type=_FILES)
@click.option(
    "-C", "root", default="", help="The repository, for the reading tools; without it the bundle is all there is."
)
@_model
@click.option("--out", default="findings.json", type=click.Path(dir_okay=False), help="Where to write the findings.")
@click.pass_context
def run_command(ctx: click.Context, /, bundle_path: str, out: str, **given: Any) -> None:
    """Review a bundle: the rules, and a model where one is named. Never sees a write token."""
    for name in forges.TOKENS:
        os.environ.pop(name, None)
    bundle = records.load(Bundle, bundle_path)
    run = pipeline.run(bundle, given)
    records.save(run, out)
    click.echo(f"{out}: {len(run.findings)} findings, {run.coverage.percent:g} % read in full", err=True)
    ctx.exit(3 if run.codes else 0)


_saved = _options(
    click.option("--bundle", "bundle_path", default="bundle.json", type=_FILES),
    click.option("--findings", "findings_path", default="findings.json", type=_FILES),
)


@review.command()
@_saved
@_gate
@_output
@click.option("--dry-run", is_flag=True, help="Send no change; print the exact requests.")
@click.option("--blind", is_flag=True, help="With --dry-run: do not even look at the forge.")
@click.option("--check", is_flag=True, help="Also add a check run with annotations (GitHub; checks: write).")
@click.option("--forge", type=click.Choice(forges.NAMES), help="Where to post; found in CI by itself.")
@click.option("--api", default="", help="The address of the forge's API.")
@click.option("--repo", default="", metavar="OWNER/NAME", help="The repository; found in CI by itself.")
@_pr
@click.pass_context
def publish(ctx: click.Context, /, bundle_path: str, findings_path: str, **given: Any) -> None:
    """Gate, redact and post saved findings. Needs the write token and no model."""
    bundle, run = records.load(Bundle, bundle_path), records.load(ReviewRun, findings_path)
    ctx.exit(pipeline.publish(bundle, run, given, os.environ, post=True))


@review.command()
@_saved
@_gate
@_output
@click.pass_context
def gate(ctx: click.Context, /, bundle_path: str, findings_path: str, **given: Any) -> None:
    """Judge saved findings and post nothing: the exit code is the answer."""
    bundle, run = records.load(Bundle, bundle_path), records.load(ReviewRun, findings_path)
    ctx.exit(pipeline.publish(bundle, run, given, os.environ, post=False))


@review.command()
@click.argument("run_file", type=_FILES)
@_gate
@_output
@click.pass_context
def replay(ctx: click.Context, /, run_file: str, **given: Any) -> None:
    """Play a run file again, offline, and say whether it comes to the same."""
    import anyio

    from glue.agents.review import cassette
    from glue.agents.review.findings.model import review as review_bundle

    old = cassette.load(run_file)
    config = make(old.config) if old.config else None
    run = anyio.run(lambda: review_bundle(old.bundle, providers=old.replays(), config=config, record=old, replay=True))
    lines = cassette.differences(old.result, run) if old.result else ["the run file has no result"]
    click.echo("\n".join(lines) if lines else "the same findings, summary and requests", err=True)
    code = pipeline.publish(old.bundle, run, given, {}, post=False)
    ctx.exit(1 if lines else code)


@review.command("diff")
@click.argument("old", type=_FILES)
@click.argument("new", type=_FILES)
@click.pass_context
def diff_command(ctx: click.Context, /, old: str, new: str) -> None:
    """Say how two reviews differ; each is a findings.json, a run file, or a score. Exit code 1 where they do."""
    from glue.agents.review import cassette, selftest

    one, other = pipeline.result(old), pipeline.result(new)
    if isinstance(one, ReviewRun) and isinstance(other, ReviewRun):
        lines = cassette.differences(one, other)
    elif isinstance(one, selftest.Score) and isinstance(other, selftest.Score):
        lines = selftest.differences(one, other)
    else:
        raise ConfigError("one is a review and the other a self-test; give two of a kind")
    click.echo("\n".join(lines) if lines else "no difference")
    ctx.exit(1 if lines else 0)


@review.command()
@_root
@click.pass_context
def doctor(ctx: click.Context, /, root: str) -> None:
    """Look at your own workflows for what would hand a pull request your rights."""
    from glue.agents.review.doctor import examine

    found = examine(root)
    for trouble in found:
        click.echo(clean.line(str(trouble), 600))
    if not found:
        click.echo("nothing found in the workflows")
    ctx.exit(1 if any(trouble.level == "error" for trouble in found) else 0)


@review.command()
@_root
@click.option("-m", "--model", default="", help="Provider and model to test; left out: GLUE_MODEL.")
@click.option("--count", default=10, type=click.IntRange(1, 500), help="How many fixes to undo.")
@click.option("--out", type=click.Path(dir_okay=False), help="Keep the score, to compare with `review diff`.")
def selftest(root: str, model: str, count: int, out: str | None) -> None:
    """Undo real fixes of your own history, in memory, and see how many a model finds, beside clean changes."""
    import anyio

    from glue.agents.review.change.collect import top
    from glue.agents.review.selftest import Score
    from glue.agents.review.selftest import selftest as test
    from glue.tools.git import Repo

    chain = pipeline.providers(model)

    async def score(repo: Repo) -> Score:
        try:
            return await test(repo, providers=lambda: chain, count=count, say=lambda text: click.echo(text, err=True))
        finally:
            await pipeline.close(chain)

    with Repo(top(root)) as repo:
        found = anyio.run(score, repo)
    click.echo(str(found))
    if out:
        records.save(found, out)


@review.command()
@click.argument("kind", type=click.Choice(["github", "gitlab", "gitea", "pre-push"]))
@_root
@click.option("--from", "source", default="", metavar="OWNER/NAME@COMMIT", help="Where CI gets glue from, pinned.")
@click.option("-m", "--model", default="", help="Provider and model that CI asks.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(kind: str, root: str, source: str, model: str, force: bool) -> None:
    """Write the workflow that reviews pull requests, or a git hook that reviews before a push."""
    for row in pipeline.init(root, kind, source, model, force):
        click.echo(row)


@review.command()
def rules() -> None:
    """List the deterministic rules."""
    from glue.agents.review.findings.analysers import find_ruff, ruff_rules
    from glue.agents.review.findings.rules import RULES

    for name, rule in RULES.items():
        title = rule["title"].replace("{", "<").replace("}", ">")
        click.echo(f"{name:<22}{rule['severity']:<10}{title}")
    for code, ruff in ruff_rules().items():
        click.echo(f"ruff/{code:<17}{ruff['severity']:<10}{ruff['why']}")
    if not find_ruff():
        click.echo("glue review: ruff is not installed: pip install 'glue-agents[review]'", err=True)


@review.command()
def respond() -> None:
    """Answer a command in a comment (/review, /ask, /ignore, /config, /help), in a job for issue_comment events.

    Outputs of the step: command, review (true or false), head, base and number.
    """
    from glue.agents.review.delivery import outputs
    from glue.agents.review.delivery.commands import respond as answer

    found = answer(os.environ)
    values: dict[str, str | int | float | bool] = {"command": found.command, "review": found.review, "head": found.head}
    values |= {"base": found.base, "number": found.number or 0}
    outputs.append(os.environ.get("GITHUB_OUTPUT", ""), outputs.step_outputs(values))
    said = found.refused or (f"{found.command} by {found.by}" if found.command else "no command")
    click.echo(f"glue review: {clean.line(said)}", err=True)
