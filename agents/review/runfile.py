"""Run files: recordings of a review, with which it can be replayed offline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glue import Context, Provider, Text, Tool, ToolCall, ToolMessage, ToolResult
from glue.agents.review import storage
from glue.agents.review.records import Bundle, Finding, ReviewRun, SecondLookMode
from glue.codec import to_json
from glue.errors import ConfigError
from glue.messages import ToolSpec, message_from_json
from glue.testing import Cassette, Recorder, Replay

KIND = "glue-review-run"
REPORTING = ("report_finding", "finish_review")  # tools that write; the others only read


@dataclass(slots=True)
class RunFile:
    """A recorded review: the change, the replies of models, the results of tools, the result."""

    seed: str
    bundle: Bundle
    config: Mapping[str, Any] = field(default_factory=dict)
    # One for each provider, in the order in which they were asked.
    cassettes: list[Cassette] = field(default_factory=list)
    # Results of tools: "cassette/call id" -> text, and whether it is an error.
    answers: dict[str, tuple[str, bool]] = field(default_factory=dict)
    rule_findings: tuple[Finding, ...] = ()
    around: str = ""  # the part of the prompt with callers and tests
    # Code that a finding names, for the second look: "cassette/number of the finding" -> texts.
    named: dict[str, list[str]] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    second_look: SecondLookMode = "never"
    result: ReviewRun | None = None

    def record(self, provider: Provider) -> Provider:
        """Add a cassette to `cassettes`, and return a provider that records on it.

        The new provider passes each request to `provider` and records the exchange.
        """
        self.cassettes.append(Cassette(provider=provider.name))
        return Recorder(provider, self.cassettes[-1])

    def replays(self) -> Sequence[Provider]:
        """Return one provider for each cassette, which replays the replies in that cassette."""
        return [Replay(cassette) for cassette in self.cassettes]

    def save(self, path: str | Path) -> None:
        """Copy the recorded tool results to `answers`; write the recording to `path` as JSON lines.

        The tool results are those that the recorded requests contain.
        """
        names = [cassette.provider for cassette in self.cassettes]
        head = {
            "type": KIND,
            "version": 1,
            "seed": self.seed,
            "config": dict(self.config),
            "second_look": self.second_look,
            "providers": names,
        }
        rows: list[dict[str, Any]] = [head, {"type": "bundle", "bundle": to_json(self.bundle)}]
        for index, cassette in enumerate(self.cassettes):
            for exchange in cassette.exchanges:
                # The request and all events but the last one can be derived, so they are left out.
                done = [event for event in exchange["events"] if event["type"] == "done"]
                row = {**exchange, "provider": index, "events": done}
                request = row.pop("request", {})
                rows.append(row)
                self._store_results(index, request.get("messages", ()))
        rows += [
            {"type": "tool", "call": call, "text": text, "error": is_error}
            for call, (text, is_error) in self.answers.items()
        ]
        rows += [{"type": "rule", "finding": to_json(finding)} for finding in self.rule_findings]
        rows += [{"type": "around", "text": self.around}] if self.around else []
        rows += [{"type": "named", "finding": key, "texts": self.named[key]} for key in self.named]
        rows += [
            {"type": "offered", "tool": [tool.name, tool.description, dict(tool.parameters)]}
            for tool in self.tools
        ]
        if self.result is not None:
            rows.append({"type": "result", "run": to_json(self.result)})
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")

    def _store_results(self, index: int, messages: Iterable[Any]) -> None:
        """Store in `answers` the tool results that the messages of a request contain.

        `index` is the number of the provider that the request was sent to.
        """
        for message in map(message_from_json, messages):
            if isinstance(message, ToolMessage):
                self.answers[f"{index}/{message.call_id}"] = (message.text, message.is_error)


def load(path: str | Path) -> RunFile:
    """Read the run file at `path`; raise ConfigError if it cannot be read or is not a run file."""
    try:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        head = rows[0]
        if head.get("type") != KIND:
            raise ConfigError(
                f"{path} is not a run file of a review; `glue review --record` writes a run file"
            )
        if head.get("version") != 1:
            raise ConfigError(
                f"{path} has version {head.get('version')!r}; this program reads version 1:"
                " record the review again"
            )
        file = RunFile(
            head["seed"], storage.from_json(Bundle, rows[1]["bundle"], f"{path}: bundle")
        )
        file.cassettes = [Cassette(provider=name) for name in head.get("providers", ())]
        file.config = head.get("config", {})
        file.second_look = head.get("second_look", "never")
        for row in rows[2:]:
            _add(file, row, path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a run file of a review: {error}") from error
    return file


def _add(file: RunFile, row: Mapping[str, Any], path: str | Path) -> None:
    """Add the content of `row`, one line of a stored run file, to the fields of `file`.

    `path` names the stored file in error messages.
    """
    if row["type"] == "exchange":
        file.cassettes[row["provider"]].exchanges.append(row)
    elif row["type"] == "tool":
        file.answers[row["call"]] = (row["text"], row["error"])
    elif row["type"] == "rule":
        file.rule_findings += (storage.from_json(Finding, row["finding"], f"{path}: rule"),)
    elif row["type"] == "around":
        file.around = row["text"]
    elif row["type"] == "named":
        file.named[row["finding"]] = row["texts"]
    elif row["type"] == "offered":
        name, description, parameters = row["tool"]
        file.tools += (ToolSpec(name=name, description=description, parameters=parameters),)
    elif row["type"] == "result":
        file.result = storage.from_json(ReviewRun, row["run"], f"{path}: result")


@dataclass(slots=True)
class ReplayedTool:
    """A reading tool that returns recorded results, so that a replay needs no repository."""

    spec: ToolSpec
    prefix: str
    answers: Mapping[str, tuple[str, bool]]
    read: list[str]
    alone: bool = False
    advisory: bool = False

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        text, is_error = self.answers.get(
            f"{self.prefix}/{call.id}", ("the run file has no result of this call", True)
        )
        self.read.append(text)
        return ToolResult(content=(Text(text=text),), is_error=is_error)


def replay_tools(
    tools: Iterable[Tool[..., Any]], index: int, file: RunFile, read: list[str]
) -> list[Any]:
    """Return the tools of a replay. Tools in REPORTING run, the others return recorded results.

    The tools in REPORTING are taken from `tools`. The recorded texts are added to `read`.
    """
    live = {tool.spec.name: tool for tool in tools if tool.spec.name in REPORTING}
    return [
        live.get(spec.name) or ReplayedTool(spec, str(index), file.answers, read)
        for spec in file.tools
    ]


def differences(old: ReviewRun, new: ReviewRun) -> list[str]:
    """Return a line for each difference of two reviews in findings, coverage or a field in `names`.

    Findings are compared by place, severity and title.
    """
    before, after = _by_code(old), _by_code(new)
    lines = [f"- {text}" for key, text in before.items() if key not in after]
    lines += [f"+ {text}" for key, text in after.items() if key not in before]
    lines += [
        f"~ {before[key]} -> {text}" for key, text in after.items() if before.get(key, text) != text
    ]
    names = "summary codes provider model prompt finished tripwire notices"
    for name in names.split():
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            lines.append(f"~ {name}: {was!r} -> {now!r}")
    if old.coverage.percent != new.coverage.percent:
        lines.append(f"~ coverage: {old.coverage.percent:g} % -> {new.coverage.percent:g} %")
    return lines


def _by_code(run: ReviewRun) -> dict[tuple[str, str, str], str]:
    """Return a dict from path, rule and quoted code of each finding to a line of text about it.

    If a finding has no rule, its category is in the key. If findings have the same key, only the
    last of them is in the dict.
    """
    lines: dict[tuple[str, str, str], str] = {}
    for finding in run.findings:
        key = finding.path, finding.rule or finding.category, " ".join(finding.quote.split())
        lines[key] = f"{finding.severity} {finding.where} {finding.title}"
    return lines
