"""A review as one file: what was shown, what was answered, what came of it. Played again, it comes to the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import glue
from glue.agents.review import records
from glue.agents.review.delivery import clean
from glue.agents.review.records import Bundle, Finding, ReviewRun
from glue.context import AnyTool, Context, ToolResult
from glue.errors import ConfigError, ProviderError, ReplayError
from glue.messages import (
    AssistantMessage,
    Json,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    message_from_json,
    message_to_json,
)
from glue.provider import Done, Provider, ProviderEvent

KIND = "glue-review-run"


@dataclass(slots=True)
class Record:
    """What a review leaves behind, one entry a line."""

    seed: str
    bundle: Bundle
    config: Mapping[str, Json] = field(default_factory=dict)
    providers: list[str] = field(default_factory=list)
    entries: list[dict[str, Json]] = field(default_factory=list)
    answers: dict[str, tuple[str, bool]] = field(default_factory=dict)  # of tools, by call id
    ruled: tuple[Finding, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    result: ReviewRun | None = None

    def save(self, path: str | Path) -> None:
        head = {"type": KIND, "version": 1, "seed": self.seed, "config": dict(self.config), "providers": self.providers}
        rows = [head, {"type": "bundle", "bundle": glue.to_json(self.bundle)}, *self.entries]
        rows += [
            {"type": "tool", "call": call, "text": text, "error": bad} for call, (text, bad) in self.answers.items()
        ]
        rows += [{"type": "rule", "finding": glue.to_json(finding)} for finding in self.ruled]
        rows += [{"type": "offered", "tool": [t.name, t.description, dict(t.parameters)]} for t in self.tools]
        if self.result is not None:
            rows.append({"type": "result", "run": glue.to_json(self.result)})
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def load(path: str | Path) -> Record:
    """Read a run file."""
    try:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        head = rows[0]
        if head.get("type") != KIND or head.get("version") != 1:
            raise ConfigError(f"{path} is no run file of a review (version 1)")
        record = Record(head["seed"], records.from_json(Bundle, rows[1]["bundle"], f"{path}: bundle"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} is no run file of a review: {error}") from error
    record.config, record.providers = head.get("config", {}), list(head.get("providers", ()))
    for row in rows[2:]:
        if row["type"] == "tool":
            record.answers[row["call"]] = (row["text"], row["error"])
        elif row["type"] == "rule":
            record.ruled += (records.from_json(Finding, row["finding"], f"{path}: rule"),)
        elif row["type"] == "offered":
            name, description, parameters = row["tool"]
            record.tools += (ToolSpec(name=name, description=description, parameters=parameters),)
        elif row["type"] == "result":
            record.result = records.from_json(ReviewRun, row["run"], f"{path}: result")
        else:
            record.entries.append(row)
    return record


class Recorder:
    """A provider that notes what it is asked and what it answers."""

    def __init__(self, provider: Provider, index: int, record: Record) -> None:
        self.provider, self.index, self.record = provider, index, record
        self.name = provider.name

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        for message in request.messages:
            if isinstance(message, ToolMessage):
                self.record.answers[f"{self.index}/{message.call_id}"] = (message.text, message.is_error)
        entry: dict[str, Json] = {"provider": self.index, "request": digest(request)}
        try:
            async with aclosing(cast(Any, self.provider.stream(request))) as events:
                async for event in events:
                    if isinstance(event, Done):
                        entry |= {"type": "reply", "message": message_to_json(event.message)}
                        self.record.entries.append(entry)
                    yield event
        except ProviderError as error:
            entry |= {"type": "error", "kind": error.kind, "detail": str(error)}
            self.record.entries.append(entry)
            raise


class Tape:
    """A provider that plays what a recorder noted, and insists on being asked the same."""

    def __init__(self, name: str, index: int, record: Record) -> None:
        self.name = name
        self._entries = [entry for entry in record.entries if entry["provider"] == index]

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        if not self._entries:
            raise ReplayError(f"{self.name} is asked once more than in the recording")
        entry = self._entries.pop(0)
        if entry["request"] != digest(request):
            raise ReplayError(f"{self.name} is asked something else than in the recording")
        if entry["type"] == "error":
            raise ProviderError(entry["detail"], kind=entry["kind"], provider="")
        yield Done(message=cast(AssistantMessage, message_from_json(entry["message"])))


@dataclass(slots=True)
class Canned:
    """A reading tool that gives the recorded answer: no repository is needed to play a review again."""

    spec: ToolSpec
    prefix: str
    answers: Mapping[str, tuple[str, bool]]
    alone: bool = False
    advisory: bool = False

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        text, is_error = self.answers.get(f"{self.prefix}/{call.id}", ("not in the recording", True))
        return ToolResult(content=(Text(text=text),), is_error=is_error)


def canned(tools: Iterable[AnyTool], index: int, record: Record) -> list[AnyTool]:
    """Put recorded answers in the place of the reading tools, whether or not these could be made here."""
    live = {tool.spec.name: tool for tool in tools if tool.spec.name in ("report_finding", "finish_review")}
    return [live.get(spec.name) or Canned(spec, str(index), record.answers) for spec in record.tools]


def digest(request: Request) -> str:
    """Name a request by what the model is shown; ids that are drawn anew each time take no part."""
    messages = [{key: value for key, value in message_to_json(one).items() if key != "id"} for one in request.messages]
    tools = [[tool.name, tool.description, dict(tool.parameters)] for tool in request.tools]
    shown = json.dumps([request.system, messages, tools], sort_keys=True)
    return hashlib.sha256(shown.encode()).hexdigest()


def differences(old: ReviewRun, new: ReviewRun) -> list[str]:
    """Say in lines how two reviews differ: findings by what they are about, then the rest."""

    def key(finding: Any) -> tuple[str, str, str]:
        return finding.path, finding.rule or finding.category, " ".join(finding.quote.split())

    before, after = {key(one): one for one in old.findings}, {key(one): one for one in new.findings}
    lines = [f"- {_say(one)}" for name, one in before.items() if name not in after]
    lines += [f"+ {_say(one)}" for name, one in after.items() if name not in before]
    lines += [
        f"~ {_say(before[name])} -> {_say(one)}"
        for name, one in after.items()
        if name in before and _say(before[name]) != _say(one)
    ]
    for name in ("summary", "codes", "provider", "model", "prompt", "finished", "tripwire", "notices"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            lines.append(f"~ {name}: {was!r} -> {now!r}")
    if old.coverage.percent != new.coverage.percent:
        lines.append(f"~ coverage: {old.coverage.percent:g} % -> {new.coverage.percent:g} %")
    return [clean.line(line, 300) for line in lines]


def _say(finding: Any) -> str:
    where = f"{finding.path}:{finding.line}" if finding.line else finding.path
    return f"{finding.severity} {where} {finding.title}"


def tapes(record: Record) -> Sequence[Provider]:
    return [Tape(name, index, record) for index, name in enumerate(record.providers)]
