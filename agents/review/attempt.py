"""One provider's attempt at a review: every chunk of the diff, within the budget, through the tools."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glue.agents.review import gate, prompt
from glue.agents.review.chunk import Chunk, chunks, coverage
from glue.agents.review.codec import from_json
from glue.agents.review.config import Config
from glue.agents.review.model import Bundle, Finding, ReviewRun, Try
from glue.agents.review.record import Record, Recorder, canned
from glue.agents.review.tools import Desk, tools
from glue.context import AnyTool
from glue.errors import ConfigError, ToolError
from glue.events import Event
from glue.limits import Limits, Outcome
from glue.loop import run
from glue.result import RunResult
from glue.tools.git import Repo
from glue.types import AssistantMessage, Provider, Request, Usage, user

_SPENT = (Outcome.BUDGET, Outcome.MAX_TURNS)


@dataclass(slots=True)
class Setting:
    """What every attempt of one review shares."""

    bundle: Bundle
    config: Config
    repo: Repo | None
    on_event: Callable[[Event], None] | None
    seed: str
    ruled: tuple[Finding, ...]
    record: Record | None
    replay: bool


@dataclass(slots=True)
class _Spent:
    """What one provider has used of the budget."""

    turns: int = 0
    usage: Usage = field(default_factory=lambda: Usage(cost=0.0))
    started: float = field(default_factory=time.monotonic)

    def limits(self, config: Config) -> Limits | None:
        """What is left, or None where nothing is."""
        tokens = config.max_tokens - self.usage.total
        seconds = config.max_seconds - (time.monotonic() - self.started)
        usd = None if config.max_usd is None else config.max_usd - (self.usage.cost or 0.0)
        if tokens <= 0 or seconds <= 0 or (usd is not None and usd <= 0):
            return None
        return Limits(
            max_turns=config.max_turns, max_requests=None, token_budget=tokens, usd_budget=usd, seconds=seconds
        )


async def attempt(setting: Setting, provider: Provider, index: int) -> tuple[ReviewRun, Try]:
    """Ask one provider about every chunk, as far as the budget goes."""
    bundle, config, record = setting.bundle, setting.config, setting.record
    asked = provider
    if record is not None and not setting.replay:
        record.providers.append(provider.name)
        asked = Recorder(provider, index, record)
    desk = Desk(bundle, config, source=provider.name, known=setting.ruled)
    offered: list[AnyTool] = list(tools(desk, setting.repo))
    if record is not None and setting.replay:
        offered = canned(offered, index, record)
    elif record is not None:
        record.tools = tuple(tool.spec for tool in offered)
    spent, pieces = _Spent(), chunks(bundle, config.chunk_tokens)
    shown: list[Chunk] = []
    codes: list[str] = []
    detail = model = ""
    last: RunResult[None] | None = None
    for number, chunk in enumerate(pieces, 1):
        limits = spent.limits(config)
        if limits is None:
            break
        desk.finished = False
        text = prompt.question(bundle, chunk, number, len(pieces), setting.ruled, setting.seed)
        last = await _ask(asked, text, offered, limits, setting, desk)
        spent.turns += last.turns
        spent.usage += last.usage
        model = next((one.model for one in last.messages if isinstance(one, AssistantMessage) and one.model), model)
        if last.error is not None and last.outcome is Outcome.FAILED:
            codes, detail = [f"provider.{getattr(last.error, 'kind', 'failed')}"], str(last.error)
            break
        if not desk.finished:
            if last.outcome not in _SPENT or not shown:
                codes.append("channel.unfinished")
            break
        shown.append(chunk)
    drafted = ReviewRun(
        findings=(*setting.ruled, *desk.findings),
        dropped=tuple(desk.refused),
        summary="\n\n".join(dict.fromkeys(desk.summaries)),
        coverage=coverage(bundle, shown, "the model was not asked" if codes else "budget spent"),
        finished=bool(pieces) and len(shown) > 0 and not codes,
        provider=provider.name,
        model=model,
        outcome=str(last.outcome) if last else "",
        stop_reason=str(last.stop_reason or "") if last else "",
        codes=tuple(codes),
        raw=last.text[:20_000] if last else "",
        canary=prompt.token(setting.seed, "canary"),
        prompt=prompt.NAME,
        turns=spent.turns,
        tokens_in=spent.usage.input,
        tokens_out=spent.usage.output,
        cost=spent.usage.cost,
    )
    note = Try(
        provider=provider.name,
        model=model,
        outcome=drafted.outcome,
        detail=detail[:300],
        turns=spent.turns,
        tokens_in=spent.usage.input,
        tokens_out=spent.usage.output,
        cost=spent.usage.cost,
        seconds=round(time.monotonic() - spent.started, 3),
    )
    return drafted, note


async def _ask(
    provider: Provider, text: str, offered: Sequence[AnyTool], limits: Limits, setting: Setting, desk: Desk
) -> RunResult[None]:
    """Ask about one chunk; a reply in the wrong channel is read if it is the JSON form, else asked for again once."""
    request = Request(system=prompt.system(setting.bundle, setting.config, setting.seed))
    result = await run(provider, text, tools=offered, limits=limits, request=request, on_event=setting.on_event)
    if desk.finished or not result.outcome.complete or _take_json(result.text, desk):
        return result
    again = (*result.messages, user(prompt.AGAIN, origin="nudge"))
    return await run(provider, again, tools=offered, limits=limits, request=request, on_event=setting.on_event)


def _take_json(text: str, desk: Desk) -> bool:
    """Take the one JSON object that a model without tools may answer with."""
    data = gate.parse_reply(text)
    if data is None:
        return False
    for item in data["findings"][: gate.FINDINGS * 4]:
        finding = _from_item(item, desk.source)
        if finding is not None:
            try:
                desk.report(finding)
            except ToolError:
                continue  # it is kept among the refused
    try:
        desk.finish(data["summary"])
    except ToolError:
        return False
    return True


_ITEM = ("path", "quote", "title", "body", "severity", "confidence", "category", "suggestion", "acceptance")


def _from_item(item: Any, source: str) -> Finding | None:
    if not isinstance(item, dict):
        return None
    known = {name: value for name, value in item.items() if name in _ITEM and value is not None}
    claimed = item.get("line")
    try:
        finding = from_json(Finding, json.loads(json.dumps(known)))
    except (ConfigError, ValueError):
        return None
    return replace(finding, source=source, claimed=claimed if type(claimed) is int else None)
