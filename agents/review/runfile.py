"""Run files of reviews: the change, what models and tools answered, the result; a replay comes to the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import glue
from glue import Context, Provider, Text, Tool, ToolCall, ToolMessage, ToolResult, ToolSpec, message_from_json
from glue.agents.review import records
from glue.agents.review.records import Bundle, Finding, ReviewRun
from glue.errors import ConfigError
from glue.testing import Cassette, Recorder, Replay

KIND = "glue-review-run"


@dataclass(slots=True)
class RunFile:
    """What a review leaves behind, one entry a line."""

    seed: str
    bundle: Bundle
    config: Mapping[str, Any] = field(default_factory=dict)
    cassettes: list[Cassette] = field(default_factory=list)  # one a provider, in the order they were asked
    answers: dict[str, tuple[str, bool]] = field(default_factory=dict)  # of tools, by cassette and call id
    rule_findings: tuple[Finding, ...] = ()
    callers: str = ""  # what the question says of the code around the change
    tools: tuple[ToolSpec, ...] = ()
    result: ReviewRun | None = None

    def record(self, provider: Provider) -> Provider:
        """Let a provider's exchanges go to a cassette of their own."""
        self.cassettes.append(Cassette(provider=provider.name))
        return Recorder(provider, self.cassettes[-1])

    def replays(self) -> Sequence[Provider]:
        """Give providers that answer as the recorded ones did, and insist on being asked the same."""
        return [Replay(cassette) for cassette in self.cassettes]

    def save(self, path: str | Path) -> None:
        names = [cassette.provider for cassette in self.cassettes]
        head = {"type": KIND, "version": 1, "seed": self.seed, "config": dict(self.config), "providers": names}
        rows: list[dict[str, Any]] = [head, {"type": "bundle", "bundle": glue.to_json(self.bundle)}]
        for index, cassette in enumerate(self.cassettes):
            for exchange in cassette.exchanges:
                # What the bundle and the last event say already is left out.
                done = [event for event in exchange["events"] if event["type"] == "done"]
                rows.append({**exchange, "provider": index, "events": done})
                for message in map(message_from_json, rows[-1].pop("request", {}).get("messages", ())):
                    if isinstance(message, ToolMessage):
                        self.answers[f"{index}/{message.call_id}"] = (message.text, message.is_error)
        rows += [
            {"type": "tool", "call": call, "text": text, "error": bad} for call, (text, bad) in self.answers.items()
        ]
        rows += [{"type": "rule", "finding": glue.to_json(finding)} for finding in self.rule_findings]
        rows += [{"type": "callers", "text": self.callers}] if self.callers else []
        rows += [{"type": "offered", "tool": [t.name, t.description, dict(t.parameters)]} for t in self.tools]
        if self.result is not None:
            rows.append({"type": "result", "run": glue.to_json(self.result)})
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def load(path: str | Path) -> RunFile:
    """Read a run file."""
    try:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        head = rows[0]
        if head.get("type") != KIND or head.get("version") != 1:
            raise ConfigError(f"{path} is no run file of a review (version 1)")
        file = RunFile(head["seed"], records.from_json(Bundle, rows[1]["bundle"], f"{path}: bundle"))
        file.cassettes = [Cassette(provider=name) for name in head.get("providers", ())]
        file.config = head.get("config", {})
        for row in rows[2:]:
            _add(file, row, path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is no run file of a review: {error}") from error
    return file


def _add(file: RunFile, row: Mapping[str, Any], path: str | Path) -> None:
    if row["type"] == "exchange":
        file.cassettes[row["provider"]].exchanges.append(row)
    elif row["type"] == "tool":
        file.answers[row["call"]] = (row["text"], row["error"])
    elif row["type"] == "rule":
        file.rule_findings += (records.from_json(Finding, row["finding"], f"{path}: rule"),)
    elif row["type"] == "callers":
        file.callers = row["text"]
    elif row["type"] == "offered":
        name, description, parameters = row["tool"]
        file.tools += (ToolSpec(name=name, description=description, parameters=parameters),)
    elif row["type"] == "result":
        file.result = records.from_json(ReviewRun, row["run"], f"{path}: result")


@dataclass(slots=True)
class ReplayedTool:
    """A reading tool that gives the recorded answer: no repository is needed to replay a review."""

    spec: ToolSpec
    prefix: str
    answers: Mapping[str, tuple[str, bool]]
    read: list[str]
    alone: bool = False
    advisory: bool = False

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        text, is_error = self.answers.get(f"{self.prefix}/{call.id}", ("not in the run file", True))
        self.read.append(text)
        return ToolResult(content=(Text(text=text),), is_error=is_error)


def replay_tools(tools: Iterable[Tool[..., Any]], index: int, file: RunFile, read: list[str]) -> list[Any]:
    """Put recorded answers in the place of the reading tools, whether or not these could be made here."""
    live = {tool.spec.name: tool for tool in tools if tool.spec.name in ("report_finding", "finish_review")}
    return [live.get(spec.name) or ReplayedTool(spec, str(index), file.answers, read) for spec in file.tools]


def differences(old: ReviewRun, new: ReviewRun) -> list[str]:
    """Say in lines how two reviews differ: findings by what they are about, then the rest."""
    before, after = _spoken(old), _spoken(new)
    lines = [f"- {said}" for key, said in before.items() if key not in after]
    lines += [f"+ {said}" for key, said in after.items() if key not in before]
    lines += [f"~ {before[key]} -> {said}" for key, said in after.items() if before.get(key, said) != said]
    for name in ("summary", "codes", "provider", "model", "prompt", "finished", "tripwire", "notices"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            lines.append(f"~ {name}: {was!r} -> {now!r}")
    if old.coverage.percent != new.coverage.percent:
        lines.append(f"~ coverage: {old.coverage.percent:g} % -> {new.coverage.percent:g} %")
    return lines


def _spoken(run: ReviewRun) -> dict[tuple[str, str, str], str]:
    """The findings of a review by what they are about."""
    return {
        (one.path, one.rule or one.category, " ".join(one.quote.split())): f"{one.severity} {one.where} {one.title}"
        for one in run.findings
    }
