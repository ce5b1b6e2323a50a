"""What the commands of `glue review` do, in the order of use; each is called by one or more of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glue import Provider
from glue.agents.review import records
from glue.agents.review.change.config import Config, make, read_config
from glue.agents.review.delivery import clean
from glue.agents.review.records import Bundle, Change, Finding, ReviewRun, Severity
from glue.errors import ConfigError, GlueError

if TYPE_CHECKING:
    from glue.agents.review.change.incremental import Earlier
    from glue.agents.review.delivery.forges import Where
    from glue.agents.review.selftest import Score


def gather(given: Mapping[str, Any], environ: Mapping[str, str]) -> Bundle:
    """Collect what the options name, or what CI is about, or the current branch."""
    from glue.agents.review.change import collect
    from glue.agents.review.delivery.forges import change_of, where

    root, chosen = collect.top(given["root"]), [name for name in ("range_", "staged", "dirty", "diff") if given[name]]
    only = collect.Only(given.get("paths") or (), given.get("ignored") or ())
    if len(chosen) > 1 or (chosen and (given["base"] or given["head"])):
        raise ConfigError("--range, --staged, --dirty, --diff and --base/--head exclude each other; give one")
    if given["diff"]:
        return _from_diff(given["diff"].read())
    if given["range_"]:
        return collect.collect_range(root, given["range_"], only=only)
    if given["staged"]:
        return collect.collect_staged(root)
    if given["dirty"]:
        return collect.collect_dirty(root)
    if given["base"] or given["head"]:
        return asked(
            collect.collect(
                root, base=given["base"], head=given["head"] or "HEAD", change=_pull(given, environ), only=only
            ),
            environ,
        )
    change = change_of(where(environ), environ)
    if change is not None:
        base = change.base_sha or change.base_ref
        return collect.collect(root, base=base, head=change.head_sha or "HEAD", change=change, only=only)
    return collect.collect(root, change=_pull(given, environ), only=only)


def _from_diff(raw: bytes) -> Bundle:
    from glue.agents.review.change.collect import from_diff

    bundle = from_diff(raw, change=Change(mode="diff"))
    if raw.strip() and not bundle.files:
        raise ConfigError("--diff: this is no diff; give what `git diff` prints")
    return bundle


def _pull(given: Mapping[str, Any], environ: Mapping[str, str]) -> Change | None:
    """The pull request that was named by number, for a job that no event of one started."""
    from glue.agents.review.delivery.forges import where

    if given.get("pr") is None:
        return None
    place = where(environ)
    return Change(mode="pull_request", forge=place.forge, repo=place.repo, number=given["pr"])


def why_nothing(given: Mapping[str, Any]) -> str:
    """Say that there is nothing to review, and what there would be."""
    from glue.agents.review.change import collect

    asked_for = any(given.get(name) for name in ("range_", "staged", "dirty", "diff", "base", "head"))
    try:
        dirty = not asked_for and bool(collect.collect_dirty(collect.top(given["root"])).files)
    except GlueError:
        dirty = False
    hint = "; there are changes that are not committed: --dirty reviews them" if dirty else ""
    return f"there is nothing to review{hint}"


def asked(bundle: Bundle, environ: Mapping[str, str]) -> Bundle:
    """Note who asked for this review in a comment, and with what words; `respond` has checked that they may."""
    from glue.agents.review.delivery.commands import read
    from glue.agents.review.delivery.forges import where

    place = where(environ)
    command = read(place.event)
    if command is None:
        return bundle
    words = command.argument if command.name == "ask" else ""
    change = replace(bundle.change, mode="pull_request", forge=place.forge, repo=place.repo, number=place.number)
    return replace(bundle, change=replace(change, asked_by=command.by, request=words))


def settings(bundle: Bundle, given: Mapping[str, Any]) -> Config:
    """The base's own settings, or those of the file that the user named."""
    return make(_plain(bundle, given))


def _plain(bundle: Bundle, given: Mapping[str, Any]) -> Mapping[str, Any]:
    path = given.get("config_path")
    return read_config(Path(path).read_text(encoding="utf-8"), path) if path else bundle.config


def run(bundle: Bundle, given: Mapping[str, Any]) -> ReviewRun:
    """Review a bundle with the rules and, where one is named, a model."""
    import secrets

    import anyio

    from glue.agents.review.cassette import RunFile
    from glue.agents.review.change.collect import top
    from glue.agents.review.findings.analysers import find_ruff
    from glue.agents.review.findings.model import Work
    from glue.tools.git import Repo

    if given["record"] and given.get("previous"):
        raise ConfigError("--record keeps a whole review; leave out --previous")
    if given.get("root"):
        given = {**given, "root": top(given["root"])}
    config = settings(bundle, given)
    record = RunFile(secrets.token_hex(16), bundle, config=_plain(bundle, given)) if given["record"] else None
    chain = providers(given["model"], config.model)
    if not find_ruff() and any(file.path.endswith(".py") for file in bundle.files):
        click.echo(
            "glue review: ruff is not installed and looks at nothing: pip install 'glue-agents[review]'", err=True
        )
    work = Work(say=lambda text: click.echo(clean.line(text, 200), err=True) if chain else None)
    with ExitStack() as stack:
        root = "" if given.get("diff") else given.get("root", "")
        is_git = root and any(os.path.lexists(os.path.join(root, name)) for name in (".git", "objects"))
        repo = stack.enter_context(Repo(root)) if is_git else None
        options: dict[str, Any] = {"config": config, "repo": repo, "record": record, "work": work}
        options |= {"earlier": _earlier(given), "analysed": _analysed(bundle, given)}
        try:
            done = anyio.run(lambda: _review(bundle, chain, **options))
        except KeyboardInterrupt:
            if work.so_far is None:
                raise
            done = replace(work.so_far(), outcome=INTERRUPTED)
            click.echo("glue review: stopped; this is what was found so far", err=True)
    if record is not None and record.result is not None:
        record.save(given["record"])
    return done


INTERRUPTED = "interrupted"


def _earlier(given: Mapping[str, Any]) -> Earlier | None:
    """The review to go on from; one that is missing or of no use is left out, and that is said."""
    from glue.agents.review.change import incremental

    if not given.get("previous"):
        return None
    try:
        return incremental.load(given["previous"])
    except ConfigError as error:
        click.echo(f"glue review: {clean.line(str(error))}; the whole change is reviewed", err=True)
        return None


def _analysed(bundle: Bundle, given: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What other tools found, from the files that the user names."""
    from glue.agents.review.findings.analysers import handed_in

    now = [(form, path) for form in ("sarif", "rdjson") for path in given.get(form) or ()]
    before = [(form, path) for form in ("sarif", "rdjson") for path in given.get(f"{form}_base") or ()]
    if before and not now:
        raise ConfigError("--sarif-base and --rdjson-base are compared with --sarif and --rdjson; give these too")
    return handed_in(bundle, now, before) if now else ()


async def _review(bundle: Bundle, chain: Sequence[Provider], **options: Any) -> ReviewRun:
    from glue.agents.review.findings.model import ReviewProgress, review

    progress = ReviewProgress(bundle)
    try:
        return await review(bundle, providers=chain, on_event=progress, **options)
    finally:
        progress.end()
        await close(chain)


async def close(chain: Sequence[Provider]) -> None:
    """Close what was opened by name."""
    for provider in chain:
        if hasattr(provider, "aclose"):
            await provider.aclose()


def providers(model: str, configured: str = "") -> list[Provider]:
    """The chain by name; without one the rules speak alone. Whoever has no key is left out, and that is said."""
    from glue import providers as known

    named = model or os.environ.get("GLUE_MODEL", "") or configured
    specs = [spec.strip() for spec in named.split(",") if spec.strip() and spec.strip() != "offline"]
    ready = [spec for spec in specs if known.key_available(spec)]
    for spec in specs:
        if spec not in ready:
            click.echo(f"glue review: {spec} has no key and is left out", err=True)
    if specs and not ready:
        return [known.new(specs[0])]  # raises, and names the variable
    return [known.new(spec) for spec in ready]


def publish(bundle: Bundle, run: ReviewRun, given: Mapping[str, Any], environ: Mapping[str, str], *, post: bool) -> int:
    """Gate and post or only show; the exit code is the verdict."""
    from glue.agents.review.delivery import outputs
    from glue.agents.review.delivery import publish as publishing

    config = settings(bundle, given)
    fail_on: Severity | None = config.fail_on
    if given["fail_on"]:
        fail_on = None if given["fail_on"] == "never" else given["fail_on"]
    required = given["require_coverage"] if given["require_coverage"] is not None else config.require_coverage or None
    dry = bool(given.get("dry_run"))
    published = publishing.publish(
        bundle,
        run,
        environ,
        place=_place(given, environ),
        post=post,
        dry=dry,
        blind=bool(given.get("blind")),
        fail_on=fail_on,
        require_coverage=required,
        config=config,
        check=bool(given.get("check")),
    )
    if dry:
        text = publishing.shown(published.requests)
    else:
        text = _rendered(published.report, given)
    if given["output"]:
        Path(given["output"]).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    if not dry:
        values: dict[str, str | int | float | bool] = {
            "verdict": published.verdict.word,
            "findings": len(published.report.items),
            "comment-url": published.delivery.url if published.delivery else "",
        }
        outputs.write_step(published.report, environ, values)
    for reason in published.verdict.reasons:
        click.echo(f"glue review: {reason}", err=True)
    return published.verdict.exit_code


def _place(given: Mapping[str, Any], environ: Mapping[str, str]) -> Where:
    """Where to post: what CI says, and what the user says instead."""
    from glue.agents.review.delivery.forges import where

    found = where(environ)
    said = {name: given[name] for name in ("forge", "api", "repo") if given.get(name)}
    return replace(found, **said, number=given["pr"] if given.get("pr") is not None else found.number)


def _rendered(report: Any, given: Mapping[str, Any]) -> str:
    from glue.agents.review.delivery import outputs

    colour = not given["output"] and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if given["form"] == "terminal":
        return outputs.terminal(report, colour=colour)
    return outputs.render(report, given["form"])


def save(folder: str, bundle: Bundle, run: ReviewRun) -> None:
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    records.save(bundle, home / "bundle.json")
    records.save(run, home / "findings.json")


def result(path: str) -> ReviewRun | Score:
    """Read what a review or a self-test left behind."""
    from glue.agents.review import cassette, selftest

    raw = Path(path).read_bytes()
    if cassette.KIND.encode() in raw[:400]:
        result = cassette.load(path).result
        if result is None:
            raise ConfigError(f"{path} has no result")
        return result
    if b'"kind": "selftest"' in raw:
        return selftest.load(path)
    return records.load(ReviewRun, path)


TEMPLATES = {
    "github": ("github.yml", ".github/workflows/review.yml"),
    "gitlab": ("gitlab.yml", ".gitlab/review.yml"),
    "gitea": ("gitea.yml", ".gitea/workflows/review.yml"),
    "pre-push": ("pre-push", ".git/hooks/pre-push"),
}


def init(root: str, kind: str, source: str, model: str, force: bool) -> list[str]:
    """Write the workflow or hook of one kind; returns what to say."""
    from importlib.resources import files

    from glue.agents.review.change.collect import top

    name, place = TEMPLATES[kind]
    path = Path(top(root), place)
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; --force replaces it")
    text = files("glue.agents.review").joinpath("ci", name).read_text(encoding="utf-8")
    said = [f"wrote {path}"]
    if source:
        owner, _, commit = source.partition("@")
        if owner.count("/") != 1 or not commit:
            raise ConfigError(f"--from takes OWNER/NAME@COMMIT, not {source!r}")
        text = text.replace("OWNER/glue", owner).replace("REPLACE_WITH_A_FULL_COMMIT_HASH", commit)
    elif "REPLACE_WITH_A_FULL_COMMIT_HASH" in text:
        said.append("put the repository and the commit of glue where it says OWNER/glue and REPLACE_..., or use --from")
    if model:
        text = text.replace("anthropic:claude-haiku-4-5", model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if kind == "pre-push":
        path.chmod(0o755)
    if kind == "gitlab":
        said.append(f"add to .gitlab-ci.yml:  include: {{local: {place}}}")
    return said
