"""Review a bundle: analysers and rules first, then a model, which reports findings through tools.

Each chunk of the diff is one prompt. If a provider fails or the gate refuses its review, the next
provider is asked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glue import (
    AssistantMessage,
    Limits,
    Message,
    Outcome,
    Provider,
    Request,
    RunResult,
    Usage,
    run,
    user,
)
from glue.agents.review.change.chunk import Chunk, chunks, coverage
from glue.agents.review.change.config import Config, make
from glue.agents.review.findings import gate, prompt, rules, secondlook
from glue.agents.review.findings.analysers import HandedIn, analysed_files, deterministic
from glue.agents.review.findings.dedupe import EarlierReview, carried, joined, narrow
from glue.agents.review.findings.reading import read_reply
from glue.agents.review.findings.surroundings import surroundings
from glue.agents.review.findings.tools import ReviewDraft, tools
from glue.agents.review.records import (
    Bundle,
    Finding,
    ProviderAttempt,
    ReviewRun,
    SecondLookMode,
)
from glue.agents.review.runfile import REPORTING, RunFile, replay_tools
from glue.errors import ToolError
from glue.events import Event, RequestStart
from glue.tasks import finish_in_thread
from glue.text import format_dollars
from glue.tools.git import Repo

# Fields that ReviewRun and ProviderAttempt have in common.
_FIGURES = ("provider", "model", "outcome", "turns", "tokens_in", "tokens_out", "cost")
AGAIN = (
    "The text of your reply was not recorded: only calls of `report_finding` and `finish_review`"
    " count. Report each problem that you have not reported yet with one call of `report_finding`,"
    " then call `finish_review`."
)


@dataclass(slots=True)
class ReviewCallbacks:
    """Functions through which a running review reports its progress and its result so far.

    `on_progress` is called with one line of text for each step. The review sets `partial_result`
    to a function that returns the result so far, in case the review is interrupted.
    """

    on_progress: Callable[[str], None] = lambda text: None
    partial_result: Callable[[], ReviewRun] | None = None


@dataclass(kw_only=True)
class _Attempt:
    """The attempt of one provider to review all chunks within the budget."""

    bundle: Bundle
    config: Config
    repo: Repo | None
    on_event: Callable[[Event], None] | None
    seed: str
    rule_findings: tuple[Finding, ...]
    kept: tuple[Finding, ...]  # findings of an earlier review on hunks that did not change
    around: str
    record: RunFile | None
    replay: bool
    callbacks: ReviewCallbacks
    provider: Provider
    index: int

    def __post_init__(self) -> None:
        self.draft = ReviewDraft(
            self.bundle,
            self.config,
            source=self.provider.name,
            known=(*self.rule_findings, *self.kept),
            repo=self.repo,
        )
        if self.around:
            self.draft.read.append(self.around)  # the summary may name these tests and callers
        self.asked = self.provider  # replaced by a recorder if the review is recorded
        self.offered = list[Any](tools(self.draft, self.repo))
        self.chunks = chunks(self.bundle, self.config.chunk_tokens)
        self.request = Request(system=prompt.system(self.bundle, self.config, self.seed))
        self.shown: list[Chunk] = []
        self.codes: list[str] = []
        self.detail = self.model = ""
        self.turns = 0
        self.usage = Usage(cost=0.0)
        self.started = time.monotonic()
        self.last: RunResult[None] | None = None

    async def run(self) -> ReviewRun:
        """Review the chunks one by one, and return the result before the gate checks it.

        Stop before the end if the budget is spent or the model does not finish a chunk.
        """
        draft, record = self.draft, self.record
        if record is not None and self.replay:
            self.offered = replay_tools(self.offered, self.index, record, draft.read)
        elif record is not None:
            self.asked = record.record(self.provider)
            record.tools = tuple(tool.spec for tool in self.offered)
        draft.on_finding = lambda finding: self.callbacks.on_progress(f"  {one_line(finding)}")
        for number, chunk in enumerate(self.chunks, 1):
            limits = self._limits()
            if limits is None or not await self._chunk(chunk, number, limits):
                break
        return self.drafted()

    def _limits(self) -> Limits | None:
        """Return the limits of the next run, computed from the rest of the budget.

        Return None if the budget of tokens, dollars or seconds is spent.
        """
        config = self.config
        tokens = config.max_tokens - self.usage.total
        seconds = config.max_seconds - (time.monotonic() - self.started)
        usd = None if config.max_usd is None else config.max_usd - (self.usage.cost or 0.0)
        if tokens <= 0 or seconds <= 0 or (usd is not None and usd <= 0):
            return None
        return Limits(
            max_turns=config.max_turns,
            max_requests=None,
            token_budget=tokens,
            usd_budget=usd,
            seconds=seconds,
            # Reports that are sent back are errors of calls, and the next report may be right.
            error_nudge=None,
            error_halt=None,
        )

    async def _chunk(self, chunk: Chunk, number: int, limits: Limits) -> bool:
        """Review one chunk of the diff; return False if the model did not finish it.

        Then no further chunk is reviewed. If the model answers in text instead of tool calls, the
        text is read if it is JSON; otherwise the model is asked once more.
        """
        draft = self.draft
        where = ", ".join(dict.fromkeys(piece.path for piece in chunk.pieces))
        cost = f", {format_dollars(self.usage.cost)}" if self.usage.cost else ""
        count = len(draft.findings)
        counted = f"{count} finding{'s' * (count != 1)} so far{cost}"
        self.callbacks.on_progress(
            f"{self.provider.name}: part {number} of {len(self.chunks)}: {where[:200]} ({counted})"
        )
        draft.finished = False
        text = prompt.question(
            self.bundle,
            chunk,
            number,
            len(self.chunks),
            (*self.rule_findings, *self.kept),
            self.seed,
            self.around,
        )
        last = await self._ask(text, limits)
        done = (
            draft.finished
            or not last.outcome.complete
            or _record_json(last.text, draft)
            or draft.give_up()
        )
        if not done and (left := self._limits()) is not None:
            last = await self._ask((*last.messages, user(AGAIN, origin="nudge")), left)
        draft.settle()
        replies = [message for message in last.messages if isinstance(message, AssistantMessage)]
        self.model = next((reply.model for reply in replies if reply.model), self.model)
        if last.error is not None and last.outcome is Outcome.FAILED and not draft.finished:
            self.codes = [f"provider.{getattr(last.error, 'kind', 'failed')}"]
            self.detail = str(last.error)
            return False
        if not draft.finished and not draft.give_up():
            if last.outcome not in (Outcome.BUDGET, Outcome.MAX_TURNS) or not self.shown:
                self.codes.append("channel.unfinished")
            return False
        self.shown.append(chunk)
        return True

    async def _ask(
        self,
        messages: str | Sequence[Message],
        limits: Limits,
        tools: Sequence[Any] | None = None,
    ) -> RunResult[None]:
        def listen(event: Event) -> None:
            if isinstance(event, RequestStart):
                self.draft.sent_back = 0  # the model sees the reasons with this request
            if self.on_event is not None:
                self.on_event(event)

        self.last = last = await run(
            self.asked,
            messages,
            tools=self.offered if tools is None else tools,
            limits=limits,
            request=self.request,
            on_event=listen,
        )
        self.turns += last.turns
        self.usage += last.usage
        return last

    async def second_look(
        self, judged: ReviewRun, drafted: ReviewRun, mode: SecondLookMode
    ) -> ReviewRun:
        """Let the model check its findings in `judged`; return `drafted` with those that it keeps.

        `judged` is the draft after the gate, so findings that the gate refused are left out too.
        Kept findings may be corrected or merged. Findings of rules are not checked.
        If there is no finding to check, return `drafted` unchanged.
        """
        reported = [finding for finding in judged.findings if not finding.rule]
        rest = tuple(finding for finding in judged.findings if finding.rule)
        if not reported:
            return drafted
        before = self.usage
        # The word of a commenter must not refute a finding, so the discussion is not offered.
        left_out = (*REPORTING, "read_discussion")
        reading = [tool for tool in self.offered if tool.spec.name not in left_out]
        system = prompt.system(self.bundle, self.config, self.seed, name="second-look")
        self.request = Request(system=system)

        async def ask(text: str, tools: Sequence[Any]) -> RunResult[None] | None:
            limits = self._limits()
            if limits is None:
                return None
            self.callbacks.on_progress(f"{self.provider.name}: {text.partition('.')[0].lower()}")
            return await self._ask(text, replace(limits, max_turns=secondlook.TURNS), tools)

        kept, dropped, figures = await secondlook.second_look(
            reported,
            self.bundle,
            mode=mode,
            config=self.config,
            named=self._named_code,
            reading=reading,
            ask=ask,
            seed=self.seed,
        )
        spent = self.usage.total - before.total
        cost = None if self.usage.cost is None else self.usage.cost - (before.cost or 0.0)
        return replace(
            drafted,
            findings=(*rest, *kept),
            dropped=(*judged.dropped, *dropped),
            # A summary of problems that were all refuted would be wrong, so glue writes another.
            summary=judged.summary if kept else "",
            second_look=replace(figures, tokens=spent, cost=cost),
            turns=self.turns,
            tokens_in=self.usage.input,
            tokens_out=self.usage.output,
            cost=self.usage.cost,
        )

    def _named_code(self, number: int, finding: Finding) -> list[str]:
        """Return the code that a finding names; if the review is recorded, store the code too.

        `secondlook.named_code` finds the code. The run file stores it under `number`, and a replay
        returns the code from the run file.
        """
        if self.record is not None and self.replay:
            return self.record.named.get(f"{self.index}/{number}", [])
        named = secondlook.named_code(finding, self.bundle, self.repo)
        if self.record is not None and named:
            self.record.named[f"{self.index}/{number}"] = named
        return named

    def drafted(self) -> ReviewRun:
        """Return the result of the review so far, before the gate decides what is published."""
        draft, last = self.draft, self.last
        missing = "the review stopped early" if self.codes else "budget spent"
        return ReviewRun(
            findings=(*self.rule_findings, *draft.findings),
            dropped=tuple(draft.refused),
            summary="\n\n".join(dict.fromkeys(draft.summaries)),
            coverage=coverage(self.bundle, self.shown, missing),
            finished=bool(self.shown) and not self.codes,
            provider=self.provider.name,
            model=self.model,
            outcome=str(last.outcome) if last else "",
            stop_reason=str(last.stop_reason or "") if last else "",
            codes=tuple(self.codes),
            raw=last.text[:20_000] if last else "",
            canary=prompt.token(self.seed, "canary"),
            seen=draft.seen(),
            prompt=f"review/{self.config.prompt or prompt.VERSION}",
            turns=self.turns,
            tokens_in=self.usage.input,
            tokens_out=self.usage.output,
            cost=self.usage.cost,
        )


def one_line(finding: Finding) -> str:
    """Return a finding as one line of text: its place, severity and title."""
    return f"{finding.where}: {finding.severity}: {finding.title}"


def _record_json(text: str, draft: ReviewDraft) -> bool:
    """Record the review that a model wrote as JSON in `text`; return False if `text` has no review.

    A model without tools cannot report again, so a report that would be sent back is recorded.
    """
    written = read_reply(text)
    if written is None:
        return False
    for given in written.reports[: gate.FINDINGS * 4]:
        with suppress(ToolError):
            draft.report_data(given)
    try:
        draft.finish(written.summary)
    except ToolError:
        draft.finished = True  # the report then gets a summary without the model
    return True


async def review(
    bundle: Bundle,
    *,
    providers: Sequence[Provider] = (),
    config: Config | None = None,
    repo: Repo | None = None,
    on_event: Callable[[Event], None] | None = None,
    record: RunFile | None = None,
    replay: bool = False,
    earlier: EarlierReview | None = None,
    handed_in: HandedIn | None = None,
    second_look: SecondLookMode = "never",
    callbacks: ReviewCallbacks | None = None,
) -> ReviewRun:
    """Review a bundle by analysers, rules and, if `providers` are given, a model.

    Args:
        providers: asked in order until one delivers a sound review; without any, only analysers
            and rules run.
        config: the settings; default those in the bundle.
        repo: the repository that the model may read in addition to the bundle.
        on_event: called with each event of the model's runs.
        record: the run file to fill or, with `replay`, to replay.
        earlier: a review of an earlier version of the change. The model reads only new hunks, and
            the earlier findings on other hunks are kept.
        handed_in: results of other tools.
        second_look: which findings the model checks again, each in a run of its own.
        callbacks: called while the review runs.
    """
    started = time.monotonic()
    config = config or make(bundle.config)
    callbacks = callbacks or ReviewCallbacks()
    seed = record.seed if record else secrets.token_hex(16)
    if record is not None and replay:
        rule_findings, around = record.rule_findings, record.around
    else:
        check = partial(deterministic, bundle, disable=config.disable)
        found = await finish_in_thread(check)
        rule_findings = (*found, *(handed_in.findings if handed_in else ()))
        if providers:
            around = await finish_in_thread(partial(surroundings, bundle, repo))
        else:
            around = ""
    for finding in rule_findings if providers else ():
        callbacks.on_progress(one_line(finding))

    def complete(result: ReviewRun) -> ReviewRun:
        """Return `result` with the metadata of the change, all notices, and the attempts so far."""
        alarms = rules.notices(bundle)
        blocked = [skip.path for skip in bundle.skipped if skip.kind == "blocked"][:5]
        secret = [
            f"the change edits {name}, which was not read because it may contain secrets"
            for name in blocked
        ]
        is_attack = any(finding.category == "attack" for finding in result.findings)
        return replace(
            result,
            change=bundle.change,
            skipped=bundle.skipped,
            notices=tuple(dict.fromkeys((*alarms, *secret, *result.notices))),
            tripwire=bool(alarms) or is_attack,
            tries=tuple(tries),
            seconds=round(time.monotonic() - started, 3),
        )

    tries: list[ProviderAttempt] = []
    kept = carried(bundle, earlier) if earlier is not None else ()
    unread = narrow(bundle, earlier) if earlier is not None else bundle
    is_read = bool(providers) and not chunks(unread, config.chunk_tokens)
    if is_read and earlier is not None:
        # A re-run, or a rebase without new hunks: the earlier review holds.
        result = replace(
            earlier.run,
            findings=rule_findings,
            coverage=coverage(unread, ()),
            turns=0,
            tokens_in=0,
            tokens_out=0,
            cost=0.0,
        )
    else:
        readers = analysed_files(bundle, handed_in)
        result = ReviewRun(
            findings=rule_findings,
            coverage=coverage(bundle, (), analysed=readers),
            finished=True,
            prompt="rules",
        )
    callbacks.partial_result = lambda: complete(replace(result, finished=False))
    new_attempt = partial(
        _Attempt,
        bundle=unread,
        config=config,
        repo=repo,
        on_event=on_event,
        seed=seed,
        rule_findings=rule_findings,
        kept=kept,
        around=around,
        record=record,
        replay=replay,
        callbacks=callbacks,
    )
    for index, provider in enumerate(() if is_read else providers):
        attempt = new_attempt(provider=provider, index=index)
        callbacks.partial_result = lambda attempt=attempt: complete(
            replace(attempt.drafted(), finished=False)
        )
        drafted = await attempt.run()
        judged = gate.judge(drafted, unread, language=config.language, examples=prompt.examples())
        drafted = replace(drafted, codes=judged.codes, summary=judged.summary)
        if second_look != "never" and not judged.codes:
            drafted = await attempt.second_look(judged, drafted, second_look)
        seconds = round(time.monotonic() - attempt.started, 3)
        figures: dict[str, Any] = {name: getattr(drafted, name) for name in _FIGURES}
        tries.append(
            ProviderAttempt(
                codes=judged.codes, detail=attempt.detail[:300], seconds=seconds, **figures
            )
        )
        result = _better(result, drafted)
        if not judged.codes:
            break
    if earlier is not None and not result.codes:
        result = replace(
            result,
            findings=(*result.findings, *kept),
            coverage=joined(bundle, earlier, result.coverage),
            is_increment=result.is_increment or not is_read,
        )
    result = complete(result)
    if record is not None and not replay:
        record.result, record.rule_findings, record.around = result, rule_findings, around
        record.second_look = second_look
    return result


def _better(old: ReviewRun, new: ReviewRun) -> ReviewRun:
    """Return `new`, or `old` if `new` failed and `old`, by an earlier provider, did not fail.

    If `new` was cut off after the model reported findings, it is returned without codes, as sound
    but not finished.
    """
    is_cut_off = set(new.codes) <= {"channel.unfinished", "provider.transient", "provider.timeout"}
    if new.codes and is_cut_off and any(not finding.rule for finding in new.findings):
        return replace(new, codes=(), finished=False)
    is_old_sound = old.provider and not old.codes
    return old if new.codes and is_old_sound else new
