"""Run a review: the rules first, then a model with tools; the next provider where the gate says garbage."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from glue.agents.review import gate, prompt, rules
from glue.agents.review.attempt import Setting, attempt
from glue.agents.review.chunk import everything
from glue.agents.review.config import Config, make
from glue.agents.review.incremental import Earlier, carried, joined, narrow
from glue.agents.review.model import Bundle, ReviewRun, Try
from glue.agents.review.offline import Player
from glue.agents.review.record import Record
from glue.agents.review.tools import Desk, searcher, tools
from glue.events import Event
from glue.limits import Limits
from glue.loop import run
from glue.tools.git import Repo
from glue.types import Provider


async def review(
    bundle: Bundle,
    *,
    providers: Sequence[Provider] = (),
    config: Config | None = None,
    repo: Repo | None = None,
    on_event: Callable[[Event], None] | None = None,
    record: Record | None = None,
    replay: bool = False,
    earlier: Earlier | None = None,
) -> ReviewRun:
    """Review a bundle. Without providers the rules alone speak, through the same loop and tools.

    With an `earlier` review the model reads only the hunks that are new, and what it said of the others stays.
    """
    started = time.monotonic()
    config = config or make(bundle.config)
    seed = record.seed if record else secrets.token_hex(16)
    if record is not None and replay:
        ruled = record.ruled
    else:
        ruled = rules.check(bundle, disable=config.disable, search=searcher(repo, bundle))
    setting = Setting(bundle, config, repo, on_event, seed, ruled, record, replay)
    result = await _offline(setting)
    tries: list[Try] = []
    if earlier is not None:
        setting = replace(setting, bundle=narrow(bundle, earlier))
    unread = setting.bundle
    for index, provider in enumerate(providers if earlier is None or unread.files else ()):
        drafted, note = await attempt(setting, provider, index)
        judged = gate.judge(drafted, unread, language=config.language, examples=prompt.examples())
        codes = tuple(dict.fromkeys((*drafted.codes, *judged.codes)))
        tries.append(replace(note, codes=codes))
        result = replace(drafted, codes=codes)
        if not codes:
            break
    if earlier is not None and not result.codes:
        findings = (*result.findings, *carried(bundle, earlier))
        result = replace(result, findings=findings, coverage=joined(bundle, earlier, result.coverage))
    notices = (*rules.notices(bundle), *_secret_files(bundle))
    attacked = bool(rules.notices(bundle)) or any(one.category == "attack" for one in result.findings)
    result = replace(
        result,
        change=bundle.change,
        skipped=bundle.skipped,
        notices=tuple(dict.fromkeys((*notices, *result.notices))),
        tripwire=attacked,
        tries=tuple(tries),
        seconds=round(time.monotonic() - started, 3),
    )
    if record is not None and not replay:
        record.result, record.ruled = result, ruled
    return result


async def _offline(setting: Setting) -> ReviewRun:
    """Let the `offline` provider play the rules."""
    from glue.providers.offline import Offline

    bundle = setting.bundle
    desk = Desk(bundle, setting.config, source="rules")
    player = Player(setting.ruled, bundle)
    turns = len(setting.ruled) // 4 + 8
    limits = Limits(
        max_turns=turns, max_requests=None, error_nudge=None, error_halt=None, repeat_nudge=None, repeat_halt=None
    )
    result = await run(
        Offline(player), "Review this change by the rules.", tools=tools(desk), limits=limits, on_event=setting.on_event
    )
    result.unwrap()
    # Calls of one turn run side by side and end in any order; the rules' own order is kept.
    put = {(one.path, one.title, one.quote): one for one in desk.findings}
    named = [(one.rule, put.get((one.path, one.title, one.quote))) for one in setting.ruled]
    findings = tuple(replace(finding, rule=rule) for rule, finding in named if finding is not None)
    return ReviewRun(
        findings=findings,
        summary="\n\n".join(desk.summaries),
        coverage=everything(bundle),
        finished=desk.finished,
        outcome=str(result.outcome),
        prompt="rules",
    )


def _secret_files(bundle: Bundle) -> tuple[str, ...]:
    names = [skip.path for skip in bundle.skipped if skip.reason.startswith("blocked")]
    return tuple(f"{name} is changed here and may hold secrets; its content was shown to nobody" for name in names[:5])
