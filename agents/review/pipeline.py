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
from glue.agents.review.change.config import Config
from glue.agents.review.records import Bundle, Change, ReviewRun, Severity
from glue.errors import ConfigError

if TYPE_CHECKING:
    from glue.agents.review.delivery.forges.forge import Where


def gather(given: Mapping[str, Any], environ: Mapping[str, str]) -> Bundle:
    """Collect what the options name, or what CI is about, or the current branch."""
    from glue.agents.review.change import collect
    from glue.agents.review.delivery.forges import change_of, where

    root, chosen = given["root"], [name for name in ("range_", "staged", "dirty", "diff") if given[name]]
    if len(chosen) > 1 or (chosen and (given["base"] or given["head"])):
        raise ConfigError("--range, --staged, --dirty, --diff and --base/--head exclude each other; give one")
    if given["diff"]:
        return collect.from_diff(given["diff"].read(), change=Change(mode="diff"))
    if given["range_"]:
        return collect.collect_range(root, given["range_"])
    if given["staged"]:
        return collect.collect_staged(root)
    if given["dirty"]:
        return collect.collect_dirty(root)
    if given["base"] or given["head"]:
        return asked(collect.collect(root, base=given["base"], head=given["head"] or "HEAD"), environ)
    change = change_of(where(environ), environ)
    if change is not None:
        return collect.collect(
            root, base=change.base_sha or change.base_ref, head=change.head_sha or "HEAD", change=change
        )
    return collect.collect(root)


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
    from glue.agents.review.change.config import make

    return make(_plain(bundle, given))


def _plain(bundle: Bundle, given: Mapping[str, Any]) -> Mapping[str, Any]:
    from glue.agents.review.change.config import read_config

    path = given.get("config_path")
    return read_config(Path(path).read_text(encoding="utf-8"), path) if path else bundle.config


def run(bundle: Bundle, given: Mapping[str, Any]) -> ReviewRun:
    """Review a bundle with the rules and, where one is named, a model."""
    import secrets

    import anyio

    from glue.agents.review.cassette import RunFile
    from glue.agents.review.change import incremental
    from glue.tools.git import Repo

    if given["record"] and given.get("previous"):
        raise ConfigError("--record keeps a whole review; leave out --previous")
    config = settings(bundle, given)
    record = RunFile(secrets.token_hex(16), bundle, config=_plain(bundle, given)) if given["record"] else None
    chain = providers(given["model"], config.model)
    with ExitStack() as stack:
        has_git = given.get("root") and not given.get("diff") and os.path.lexists(os.path.join(given["root"], ".git"))
        repo = stack.enter_context(Repo(given["root"])) if has_git else None
        earlier = incremental.load(given["previous"]) if given.get("previous") else None
        done = anyio.run(lambda: _review(bundle, chain, config=config, repo=repo, record=record, earlier=earlier))
    if record is not None:
        record.save(given["record"])
    return done


async def _review(bundle: Bundle, chain: Sequence[Provider], **options: Any) -> ReviewRun:
    from glue.agents.review.findings.model import review
    from glue.agents.review.progress import Progress

    progress = Progress(bundle)
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
        language=config.language,
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
    from glue.agents.review import records

    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    records.save(bundle, home / "bundle.json")
    records.save(run, home / "findings.json")


def result(path: str) -> ReviewRun:
    from glue.agents.review import cassette, records

    if Path(path).read_bytes()[:200].find(cassette.KIND.encode()) >= 0:
        result = cassette.load(path).result
        if result is None:
            raise ConfigError(f"{path} has no result")
        return result
    return records.load(ReviewRun, path)


def texts(root: str) -> dict[str, str]:
    from glue.agents.review.findings.rules.view import is_generated, is_test, language
    from glue.tools.git import Repo

    with Repo(root) as repo:
        entries = [one for one in repo.list_tree("HEAD") if one.kind == "blob" and one.mode != "120000"]
        wanted = [one for one in entries if language(one.path) and not is_test(one.path) and not is_generated(one.path)]
        return {
            one.path: repo.blob(one.sha, cap=256 * 1024, cut=True).decode("utf-8", "replace") for one in wanted[:200]
        }
