"""`glue review`: collect, run and publish, each alone or all three at once. Exit codes as in the table of the docs."""

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
from glue.agents.review import records, runfile
from glue.agents.review import selftest as scoring
from glue.agents.review.change import collect as source
from glue.agents.review.change.config import make, read_config, why_not
from glue.agents.review.delivery import clean, commands, forges, outputs
from glue.agents.review.delivery import publish as publishing
from glue.agents.review.doctor import examine
from glue.agents.review.findings import dedupe
from glue.agents.review.findings import model as reviewing
from glue.agents.review.findings.analysers import RUFF_RULES, find_ruff, handed_in
from glue.agents.review.findings.rules import RULES
from glue.agents.review.records import SEVERITIES, Bundle, Finding, ReviewedChange, ReviewRun
from glue.errors import ConfigError, GitError, GlueError, UnsafePath
from glue.tools.git import Repo, find_git

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
INTERRUPTED = "interrupted"
TEMPLATES = {  # a file, where it goes, and what is left to do
    "github": ("github.yml", ".github/workflows/review.yml", ""),
    "gitlab": ("gitlab.yml", ".gitlab/review.yml", "add to .gitlab-ci.yml:  include: {local: .gitlab/review.yml}"),
    "gitea": ("gitea.yml", ".gitea/workflows/review.yml", ""),
    "pre-push": ("pre-push", "", ""),  # where git looks for hooks
}


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Join options that commands share into one decorator."""
    return lambda function: reduce(lambda made, option: option(made), reversed(options), function)


class _Out(click.Path):
    """A file to be written: that it cannot be is said before anything is paid for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not Path(value).parent.is_dir():
            self.fail(f"there is no folder {Path(value).parent}", param, ctx)
        return super().convert(value, param, ctx)


_OUT = _Out(dir_okay=False, writable=True)
_FILES = click.Path(exists=True, dir_okay=False)
_FOLDER = click.Path(exists=True, file_okay=False)
_MODEL_HELP = "Provider and model; several with commas. Left out: GLUE_MODEL, or rules alone."
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
_pr = click.option("--pr", type=int, help="The pull request; found in CI by itself.")
_model = _options(
    click.option("-m", "--model", default="", help=_MODEL_HELP),
    click.option("--config", "config_path", type=_FILES, help="Settings to use instead of the base's own."),
    click.option("--record", type=_OUT, help="Keep everything in a run file for `replay`."),
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
    click.option("--fail-on", type=click.Choice([*SEVERITIES, "never"]), help="The mildest severity that fails."),
    click.option(
        "--require-coverage", type=click.FloatRange(0, 100), help="Percent of the change that must have been read."
    ),
)
_output = _options(
    click.option(
        "--format", "form", type=click.Choice(list(outputs.FORMATS)), default="terminal", help="What to print."
    ),
    click.option("-o", "--output", type=_OUT, help="Write it to a file instead."),
)


def _tell(text: str) -> None:
    click.echo(f"glue review: {text}", err=True)


class _Group(click.Group):
    """Leave with the code that a command returns; a user's mistake is said in one line, and is a usage error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            ctx.exit(super().invoke(ctx) or 0)
        except GlueError as error:
            _tell(clean.line(str(error), 600))
            ctx.exit(2 if isinstance(error, ConfigError | GitError | UnsafePath) else 3)
        except OSError as error:
            if error.filename is None:
                raise
            _tell(f"{clean.line(str(error.filename))}: {error.strerror}")
            ctx.exit(2)  # 1 would say that something was found


@click.group(cls=_Group, invoke_without_command=True)
@_where
@_model
@_gate
@_output
@click.option("--post/--no-post", default=None, help="Post the review; in CI on a pull request this is the default.")
@click.option("--dry-run", is_flag=True, help="Print the exact requests instead of sending them.")
@click.option("--save", type=click.Path(file_okay=False), help="Keep bundle.json and findings.json in this folder.")
@click.pass_context
def review(ctx: click.Context, /, **given: Any) -> int:
    """Review a change: the current branch, what is staged, a range, or a pull request in CI.

    Exit codes: 0 pass, 1 findings at or above --fail-on, 2 usage, 3 inconclusive, 4 not delivered.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    bundle = _gather(given)
    if reason := why_not(bundle.change, make(_settings(bundle, given))):
        _tell(f"skipped: {reason}")
        return 0
    if not bundle.files and not bundle.skipped:
        _tell(f"there is nothing to review{_hint(given)}")
        return 0
    run = _run(bundle, given)
    if given["save"]:
        home = Path(given["save"])
        home.mkdir(parents=True, exist_ok=True)
        records.save(bundle, home / "bundle.json")
        records.save(run, home / "findings.json")
    posts = given["post"] if given["post"] is not None else bundle.change.mode == "pull_request"
    posts = (posts or given["dry_run"]) and run.outcome != INTERRUPTED
    return _publish(bundle, run, given, post=posts)


@review.command()
@_where
@_pr
@click.option("--out", default="bundle.json", type=_OUT, help="Where to write the bundle.")
def collect(out: str, **given: Any) -> None:
    """Gather the change from git objects into a bundle. Needs no key and no write token."""
    bundle = _gather(given)
    records.save(bundle, out)
    click.echo(f"{out}: {len(bundle.files)} files, {len(bundle.skipped)} left out", err=True)


@review.command("run")
@click.option("--bundle", "bundle_path", default="bundle.json", type=_FILES)
@click.option(
    "-C", "root", default="", help="The repository, for the reading tools; without it the bundle is all there is."
)
@_model
@click.option("--out", default="findings.json", type=_OUT, help="Where to write the findings.")
def run_command(bundle_path: str, out: str, **given: Any) -> int:
    """Review a bundle by rules and a model. The model where one is named and has a key. Never sees a write token."""
    for name in forges.TOKENS:
        os.environ.pop(name, None)
    bundle = records.load(Bundle, bundle_path)
    run = _run(bundle, given, is_model_needed=False)
    records.save(run, out)
    click.echo(f"{out}: {len(run.findings)} findings, {run.coverage.percent:g} % read in full", err=True)
    return 3 if run.codes else 0


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
def publish(**given: Any) -> int:
    """Gate, redact and post saved findings. Needs the write token and no model."""
    return _publish(*_saved_review(given), given, post=True)


@review.command()
@_saved
@_gate
@_output
def gate(**given: Any) -> int:
    """Judge saved findings and post nothing. The exit code is the answer."""
    return _publish(*_saved_review(given), given, post=False)


def _saved_review(given: Mapping[str, Any]) -> tuple[Bundle, ReviewRun]:
    return records.load(Bundle, given["bundle_path"]), records.load(ReviewRun, given["findings_path"])


@review.command()
@click.argument("run_file", type=_FILES)
@_gate
@_output
def replay(run_file: str, **given: Any) -> int:
    """Play a run file again, offline. Says whether it comes to the same."""
    old = runfile.load(run_file)
    config = make(old.config) if old.config else None
    again = partial(reviewing.review, providers=old.replays(), config=config, record=old, replay=True)
    run = anyio.run(again, old.bundle)
    lines = runfile.differences(old.result, run) if old.result else ["the run file has no result"]
    click.echo(_rows(lines) or "the same findings, summary and requests", err=True)
    code = _publish(old.bundle, run, given, post=False, environ={})
    return 1 if lines else code


@review.command("diff")
@click.argument("old", type=_FILES)
@click.argument("new", type=_FILES)
def diff_command(old: str, new: str) -> int:
    """Say how two reviews differ. Each is a findings.json, a run file, or a score. Exit code 1 where they do."""
    one, other = _result(old), _result(new)
    if isinstance(one, ReviewRun) and isinstance(other, ReviewRun):
        lines = runfile.differences(one, other)
    elif isinstance(one, scoring.Score) and isinstance(other, scoring.Score):
        lines = scoring.differences(one, other)
    else:
        raise ConfigError("one is a review and the other a self-test; give two of a kind")
    click.echo(_rows(lines) or "no difference")
    return 1 if lines else 0


def _rows(lines: Sequence[str]) -> str:
    return "\n".join(clean.line(line, 300) for line in lines)


@review.command()
@_root
def doctor(root: str) -> int:
    """Find workflows that would hand a pull request your rights."""
    found = examine(root)
    for problem in found:
        click.echo(clean.line(str(problem), 600))
    if not found:
        click.echo("nothing found in the workflows")
    return 1 if any(problem.level == "error" for problem in found) else 0


@review.command()
@_root
@click.option("-m", "--model", default="", help="Provider and model to test; left out: GLUE_MODEL.")
@click.option("--count", default=10, type=click.IntRange(1, 500), help="How many fixes to undo.")
@click.option("--out", type=_OUT, help="Keep the score, to compare with `review diff`.")
def selftest(root: str, model: str, count: int, out: str | None) -> None:
    """Score a model on real fixes of your history. They are undone in memory, beside clean changes."""
    chain = providers(model)
    tell = partial(click.echo, err=True)
    with Repo(source.top(root)) as repo:
        found = _ask(chain, lambda: scoring.selftest(repo, providers=lambda: chain, count=count, say=tell))
    click.echo(str(found))
    if out:
        records.save(found, out)


@review.command()
@click.argument("kind", type=click.Choice(list(TEMPLATES)))
@_root
@click.option("--from", "origin", default="", metavar="OWNER/NAME@COMMIT", help="Where CI gets glue from, pinned.")
@click.option("-m", "--model", default="", help="Provider and model that CI asks.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(kind: str, root: str, origin: str, model: str, force: bool) -> None:
    """Write a workflow for CI, or a git hook. The one reviews pull requests, the other before a push."""
    name, place, hint = TEMPLATES[kind]
    path = Path(source.top(root), place or _hook(source.top(root), name))
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; --force replaces it")
    text = files("glue.agents.review").joinpath("ci", name).read_text(encoding="utf-8")
    owner, _, commit = origin.partition("@")
    if origin and (owner.count("/") != 1 or not commit):
        raise ConfigError(f"--from takes OWNER/NAME@COMMIT, not {origin!r}")
    unpinned = not origin and "REPLACE_WITH_A_FULL_COMMIT_HASH" in text
    if origin:
        text = text.replace("OWNER/glue", owner).replace("REPLACE_WITH_A_FULL_COMMIT_HASH", commit)
    usual = "anthropic:claude-haiku-5-5"
    is_variable = model and usual not in text
    text = text.replace(usual, model or usual)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if kind == "pre-push":
        path.chmod(0o755)
    click.echo(f"wrote {path}")
    if unpinned:
        click.echo("put the repository and the commit of glue where it says OWNER/glue and REPLACE_..., or use --from")
    if is_variable:
        click.echo(f"set the variable GLUE_MODEL={model} where it runs")
    if hint:
        click.echo(hint)


def _hook(root: str, name: str) -> str:
    """Where git looks for a hook: worktrees share theirs, and `core.hooksPath` names another folder.

    Asked of git itself: `run_git` switches hooks and the user's own settings off.
    """
    argv = [find_git(root), "-C", root, "rev-parse", "--git-path", f"hooks/{name}"]
    asked = subprocess.run(argv, capture_output=True, check=False)
    if asked.returncode:
        raise GitError(f"{root} is no git repository", kind="missing")
    return os.fsdecode(asked.stdout.rstrip(b"\n"))


@review.command()
def rules() -> None:
    """List the deterministic rules."""
    for name, rule in RULES.items():
        title = rule["title"].replace("{", "<").replace("}", ">")
        click.echo(f"{name:<22}{'hint' if rule.get('hint') else rule['severity']:<10}{title}")
    for code, ruff in RUFF_RULES.items():
        click.echo(f"ruff/{code:<17}{ruff['severity']:<10}{ruff['why']}")
    if not find_ruff():
        _tell("ruff is not installed: pip install 'glue-agents[review]'")


@review.command()
def respond() -> None:
    """Answer a command in a comment. /review, /ask, /ignore, /config or /help, in a job for issue_comment events.

    Outputs of the step: command, review (true or false), head, base and number.
    """
    found = commands.respond(os.environ)
    values = {"command": found.name, "review": found.review, "head": found.head}
    values |= {"base": found.base, "number": found.number or 0}
    outputs.append(os.environ.get("GITHUB_OUTPUT", ""), outputs.step_outputs(values))
    said = found.refused or (f"{found.name} by {found.by}" if found.name else "no command")
    _tell(clean.line(said))


def _gather(given: Mapping[str, Any]) -> Bundle:
    """Collect what the options name, or what CI is about, or the current branch."""
    root, chosen = source.top(given["root"]), [name for name in ("range_", "staged", "dirty", "diff") if given[name]]
    only = source.PathFilter(given["paths"], given["ignored"])
    if len(chosen) > 1 or (chosen and (given["base"] or given["head"])):
        raise ConfigError("--range, --staged, --dirty, --diff and --base/--head exclude each other; give one")
    if given["diff"]:
        raw = given["diff"].read()
        bundle = source.from_diff(
            raw, change=ReviewedChange(mode="diff"), rules=only.narrow(make(_settings(Bundle(), given)))
        )
        if raw.strip() and not bundle.files and not bundle.skipped:
            raise ConfigError("--diff: this is no diff; give what `git diff` prints")
    elif given["range_"]:
        bundle = source.collect_range(root, given["range_"], only=only)
    elif chosen:
        bundle = source.collect_dirty(root, staged=given["staged"], only=only)
    else:
        bundle = _branch(root, given, only)
    issues = tuple(given["issues"])
    return replace(bundle, change=replace(bundle.change, issues=issues)) if issues else bundle


def _branch(root: str, given: Mapping[str, Any], only: source.PathFilter) -> Bundle:
    """Collect a branch: the one that is named, the one of CI's pull request, or the current one."""
    place = forges.find_pull_request(os.environ)
    base, head = given["base"], given["head"]
    is_named = bool(base or head)
    change = None if is_named else forges.change_of(place, os.environ)
    if change is not None:
        base, head = change.base_sha or change.base_ref, change.head_sha
    elif given.get("pr") is not None:  # a job that no event of a pull request started
        change = ReviewedChange(mode="pull_request", forge=place.forge, repo=place.repo, number=given["pr"])
    bundle = source.collect(root, base=base, head=head or "HEAD", change=change, only=only)
    command = commands.read(place.event) if is_named else None
    if command is None:
        return bundle
    # Somebody asked for this review in a comment; `respond` has checked that they may.
    words = command.argument if command.name == "ask" else ""
    change = replace(bundle.change, mode="pull_request", forge=place.forge, repo=place.repo, number=place.number)
    return replace(bundle, change=replace(change, asked_by=command.by, request=words))


def _hint(given: Mapping[str, Any]) -> str:
    """Say what there would be to review."""
    if any(given[name] for name in ("range_", "staged", "dirty", "diff", "base", "head")):
        return ""
    root = source.top(given["root"])
    try:
        if source.collect_dirty(root).files:
            return "; there are changes that are not committed: --dirty reviews them"
        with Repo(root) as repo:
            return "; the clone is shallow: fetch more history, or name --base" if repo.shallow else ""
    except GlueError:
        return ""


def _settings(bundle: Bundle, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The base's own settings, or those of the file that the user named."""
    path = given.get("config_path")
    return read_config(Path(path).read_text(encoding="utf-8", errors="replace"), path) if path else bundle.config


def _run(bundle: Bundle, given: Mapping[str, Any], *, is_model_needed: bool = True) -> ReviewRun:
    """Review a bundle with the rules and, where one is named, a model."""
    if given["record"] and given["previous"]:
        raise ConfigError("--record keeps a whole review; leave out --previous")
    plain = _settings(bundle, given)
    config = make(plain)
    record = runfile.RunFile(secrets.token_hex(16), bundle, config=plain) if given["record"] else None
    chain = providers(given["model"], config.model, is_model_needed)
    if not find_ruff() and any(file.path.endswith(".py") for file in bundle.files):
        _tell("ruff is not installed and looks at nothing: pip install 'glue-agents[review]'")
    callbacks = reviewing.ReviewCallbacks(
        say=lambda text: click.echo(clean.line(text, 200), err=True) if chain else None
    )
    earlier, analysed = _earlier(given["previous"]), _analysed(bundle, given)
    progress = reviewing.ReviewProgress(bundle)

    async def go() -> ReviewRun:
        try:
            asked = partial(
                reviewing.review, bundle, providers=chain, config=config, on_event=progress, callbacks=callbacks
            )
            return await asked(repo=repo, record=record, earlier=earlier, analysed=analysed)
        finally:
            progress.end()

    with ExitStack() as stack:
        root = source.top(given["root"]) if given["root"] and not given.get("diff") else ""
        is_git = root and any(os.path.lexists(os.path.join(root, name)) for name in (".git", "objects"))
        repo = stack.enter_context(Repo(root)) if is_git else None
        try:
            done = _ask(chain, go)
        except KeyboardInterrupt:
            if callbacks.so_far is None:
                raise
            done = replace(callbacks.so_far(), outcome=INTERRUPTED)
            _tell("stopped; this is what was found so far")
    if record is not None and record.result is not None:
        record.save(given["record"])
    return done


def _earlier(folder: str | None) -> dedupe.EarlierReview | None:
    """The review to go on from; one that is missing or of no use is left out, and that is said."""
    try:
        return dedupe.load(folder) if folder else None
    except ConfigError as error:
        _tell(f"{clean.line(str(error))}; the whole change is reviewed")
        return None


def _analysed(bundle: Bundle, given: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What other tools found, from the files that the user names."""
    now = [(form, path) for form in ("sarif", "rdjson") for path in given[form]]
    before = [(form, path) for form in ("sarif", "rdjson") for path in given[f"{form}_base"]]
    if before and not now:
        raise ConfigError("--sarif-base and --rdjson-base are compared with --sarif and --rdjson; give these too")
    return handed_in(bundle, now, before) if now else ()


def _ask(chain: Sequence[Provider], work: Callable[[], Awaitable[T]]) -> T:
    """Run what asks a chain of providers, then close what was opened by name."""

    async def asked() -> T:
        try:
            return await work()
        finally:
            for provider in chain:
                if hasattr(provider, "aclose"):
                    await provider.aclose()

    return anyio.run(asked)


def providers(model: str, configured: str = "", is_needed: bool = True) -> list[Provider]:
    """The chain by name; without one the rules speak alone. Whoever has no key is left out, and that is said."""
    named = model or os.environ.get("GLUE_MODEL", "") or configured
    specs = [spec.strip() for spec in named.split(",") if spec.strip()]
    ready = [spec for spec in specs if catalog.key_available(spec)]
    for spec in specs:
        if spec not in ready:
            _tell(f"{spec} has no key and is left out")
    if specs and not ready and is_needed:
        return [catalog.new(specs[0])]  # raises, and names the variable
    chain = [catalog.new(spec) for spec in ready]
    # The one that only plays a model has nothing to say of a change.
    return [provider for provider in chain if not isinstance(provider, catalog.Offline)]


def _publish(
    bundle: Bundle, run: ReviewRun, given: Mapping[str, Any], *, post: bool, environ: Mapping[str, str] = os.environ
) -> int:
    """Gate and post or only show; the exit code is the verdict."""
    config = make(_settings(bundle, given))
    required = given["require_coverage"] if given["require_coverage"] is not None else config.require_coverage or None
    dry = bool(given.get("dry_run"))
    # Where to post: what CI says, and what the user says instead.
    said = {name: given[name] for name in ("forge", "api", "repo") if given.get(name)}
    said |= {"number": given["pr"]} if given.get("pr") is not None else {}
    published = publishing.publish(
        bundle,
        run,
        environ,
        place=replace(forges.find_pull_request(environ), **said),
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
        _tell(reason)
    return published.verdict.exit_code


def _result(path: str) -> ReviewRun | scoring.Score:
    """Read what a review or a self-test left behind."""
    raw = Path(path).read_bytes()
    if raw.startswith(b'{"type": "%s"' % runfile.KIND.encode()):
        result = runfile.load(path).result
        if result is None:
            raise ConfigError(f"{path} has no result")
        return result
    if b'"kind": "selftest"' in raw:
        return records.load(scoring.Score, path)
    return records.load(ReviewRun, path)
