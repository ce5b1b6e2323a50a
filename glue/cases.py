"""Cases of an evaluation: a prompt with checks, and the function that checks a result.

A case is a line of a JSONL file, or a mapping:

    {"id": "refund", "prompt": "My parcel is lost.", "equals": "shipping"}
    {"prompt": "Weather in Oslo?", "answers": {"weather": "12 degrees"}, "contains": "12",
     "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from glue.checks import show
from glue.durable.rows import InputLine, Reader, input_lines, numbered, parse_row
from glue.errors import ConfigError
from glue.function.validation import ValidationError, check_schema
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, Message, Part, ToolCall, UserMessage
from glue.output import Output
from glue.result import RunResult
from glue.text import cost_text, count, format_dollars

Function: TypeAlias = "Callable[[Case, RunResult[Any]], bool | str | float]"
CHECKS = "equals contains matches json calls outcome max_cost max_turns python judge".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task for an agent, and the checks of its result."""

    id: str
    messages: tuple[Message, ...]  # the prompt, perhaps after an earlier conversation
    checks: Mapping[str, Json]  # by name, such as {"contains": "12 degrees"}
    answers: Mapping[str, Json] = field(default_factory=dict)  # results of tools, by tool
    folder: Path | None = None  # each trial works in a copy; in a check, it is that copy
    files: Mapping[str, str] = field(default_factory=dict)  # written into that copy
    data: Mapping[str, Json] = field(default_factory=dict)  # anything that your checks need

    @property
    def prompt(self) -> str:
        """The text of the prompt."""
        return self.messages[-1].text

    @property
    def has_folder(self) -> bool:
        """Whether each trial needs a working folder."""
        return self.folder is not None or bool(self.files)

    def listed(self, check: str) -> list[str]:
        """Return the wanted values of a check as a list, or [] if the case lacks the check."""
        return _as_list(self.checks.get(check, []))


def read_cases(
    source: str | Path | Iterable[Case | Mapping[str, Json]],
    *,
    attach: Callable[[str], Part] | None = None,
) -> tuple[Case, ...]:
    """Read the cases of a JSONL file, or of mappings. Raise ConfigError for the first mistake.

    Args:
        source: the file, or mappings with the fields of its lines.
        attach: reads an attachment by its name.
    """
    base, where = Path(), "case"
    items: Iterable[Any] = () if isinstance(source, (str, Path)) else source
    if isinstance(source, (str, Path)):
        base, where, items = Path(source).parent, f"{source}, line", input_lines(str(source))
    cases: dict[str, Case] = {}
    for at, item in enumerate(items, 1):
        number = item.number if isinstance(item, InputLine) else at  # blank lines count too
        try:
            case = item if isinstance(item, Case) else _case(numbered(number, item), base, attach)
            if case.id in cases:
                raise ValueError(f"the id {case.id!r} is used twice")
        except re.error as error:
            raise ConfigError(
                f"{where} {number}: a pattern is not a valid regular expression: {error}"
            ) from None
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where} {number}: {str(error).splitlines()[0]}") from None
        cases[case.id] = case
    if not cases:
        raise ConfigError("there are no cases" if where == "case" else f"{source} has no cases")
    return tuple(cases.values())


def _case(line: InputLine, base: Path, attach: Callable[[str], Part] | None) -> Case:
    fields = parse_row(line.text)
    Output(_schema()).read(fields)
    checks = {name: fields[name] for name in CHECKS if name in fields}
    if not checks:
        raise ValueError('the case has no check; add one, such as "contains": "Oslo"')
    if ("prompt" in fields) == ("messages" in fields):
        raise ValueError('the case needs either a "prompt" or "messages"')
    _, messages = Reader(attach=attach).read(line)
    if not isinstance(messages[-1], UserMessage):
        raise ValueError("the last of the messages must have the role user")
    for pattern in _as_list(checks.get("matches", [])):
        re.compile(pattern)
    if "schema" in checks.get("json", {}):
        check_schema(checks["json"]["schema"])
    folder = base / fields["folder"] if "folder" in fields else None
    if folder is not None and not folder.is_dir():
        raise ValueError(f"the folder {folder} does not exist")
    for path in fields.get("files", {}):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"the file {path!r} is outside the working folder")
    own = {name: fields[name] for name in ("answers", "files", "data") if name in fields}
    name = str(fields.get("id", line.number))
    return Case(id=name, messages=messages, checks=checks, folder=folder, **own)


@cache
def _schema() -> Mapping[str, Json]:
    schema: dict[str, Json] = json.loads(Path(__file__).with_name("case.json").read_text())
    schema["$defs"]["outcome"]["enum"] = list(Outcome)
    return schema


# Checks ------------------------------------------------------------------------------------------


def _as_list(wanted: Json) -> list[Any]:
    """Return `wanted` if it is a list, or else a list that contains only `wanted`."""
    return wanted if isinstance(wanted, list) else [wanted]


def _problem(check: str, wanted: Json, result: RunResult[Any]) -> str:
    """Return why a result fails a check, or "" if it passes. "python" and "judge" always pass."""
    text, listed = result.text, _as_list(wanted)
    match check:
        case "equals":
            is_text = isinstance(wanted, str)
            found = text.strip() if is_text else _value(result)
            same = found == (wanted.strip() if is_text else wanted)
            return "" if same else f"got {show(found)}"
        case "contains":
            missing = [each for each in listed if each not in text]
            return f"the answer lacks {missing[0]!r}" if missing else ""
        case "matches":
            missing = [each for each in listed if not re.search(each, text)]
            return f"the answer does not match {missing[0]!r}" if missing else ""
        case "json":
            return _json(wanted, _value(result))
        case "calls":
            return _called(wanted, result)
        case "outcome" if result.outcome not in listed:
            return f"the run ended with {result.outcome.value}"
        case "max_cost" if result.cost is None or result.cost > wanted:
            return f"{cost_text(result.cost)}, at most {format_dollars(wanted)}"
        case "max_turns" if result.turns > wanted:
            return f"it took {count(result.turns, 'turn')}"
    return ""


def _value(result: RunResult[Any]) -> Json:
    """Return the output of a run, or the JSON parsed from its text, or None if it has neither."""
    if result.output is not None:
        return result.output
    try:
        return Output({}).parse(result.text)
    except ValidationError:
        return None


def _json(wanted: Json, found: Json) -> str:
    if found is None:
        return "the answer contains no JSON"
    if "schema" in wanted:
        try:
            Output(wanted["schema"]).read(found)
        except ValidationError as error:
            return error.lines[0]
    if "fields" not in wanted:
        return ""
    return _difference(wanted["fields"], found, float(wanted.get("tolerance", 0.0)))


def _difference(wanted: Json, found: Json, tolerance: float, path: str = "") -> str:
    """Return how `found` first differs from `wanted`, as text, or "" if `found` contains `wanted`.

    An object in `found` may have more fields than the object in `wanted`.
    """
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        wanted, found = dict(enumerate(wanted)), dict(enumerate(found))
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            if key not in found:
                return f"{path}{key} is missing"
            if problem := _difference(value, found[key], tolerance, f"{path}{key}."):
                return problem
        return ""
    numbers = type(wanted) in (int, float) and type(found) in (int, float)
    if numbers and abs(wanted - found) <= tolerance:
        return ""
    same = wanted == found and type(wanted) is type(found)
    return "" if same else f"{path.rstrip('.') or 'the JSON'} is {show(found)}"


def _called(wanted: Json, result: RunResult[Any]) -> str:
    made = [
        call
        for message in result.new_messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    named = ", ".join(call.name for call in made) or "nothing"
    rules = {"in_order": wanted} if isinstance(wanted, list) else wanted
    for entry in rules.get("never", ()):
        if any(_is_call(entry, call) for call in made):
            return f"the run called {_entry(entry)}"
    for entry in rules.get("any_order", ()):
        if not any(_is_call(entry, call) for call in made):
            return f"the run did not call {_entry(entry)}; it called {named}"
    left = iter(made)
    for entry in rules.get("in_order", ()):
        if not any(_is_call(entry, call) for call in left):
            return f"the run did not call {_entry(entry)} in the given order; it called {named}"
    return ""


def _is_call(entry: Json, call: ToolCall) -> bool:
    if isinstance(entry, str) or entry["name"] != call.name:
        return bool(entry == call.name)
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = {}
    return not _difference(entry.get("arguments", {}), given, 0.0)


def _entry(entry: Json) -> str:
    if isinstance(entry, str):
        return entry
    arguments = f" {json.dumps(entry['arguments'])}" if "arguments" in entry else ""
    return f"{entry['name']}{arguments}"


def check(
    case: Case, result: RunResult[Any], functions: Mapping[str, Function] | None = None
) -> tuple[float, tuple[str, ...]]:
    """Return the score of a result from 0 to 1, and the reasons for a score below 1.

    The score is the lowest of all checks. A run that did not end with an answer fails, unless the
    case names that outcome. A case that has only a judge gets 1 here.

    Args:
        case: the case.
        result: the result of its run.
        functions: the functions of "python" checks, by name.
    """
    if "outcome" not in case.checks and not result.complete:
        return 0.0, (f"the run ended with {result.outcome.value}",)
    problems = {name: _problem(name, wanted, result) for name, wanted in case.checks.items()}
    scores = [(0.0, f"{name}: {problem}") for name, problem in problems.items() if problem]
    named = {name: (functions or {})[name] for name in case.listed("python")}
    scores += [_scored(name, function, case, result) for name, function in named.items()]
    reasons = tuple(reason for score, reason in scores if score < 1)
    return min((score for score, _ in scores), default=1.0), reasons


def _scored(name: str, function: Function, case: Case, result: RunResult[Any]) -> tuple[float, str]:
    try:
        value = function(case, result)
    except AssertionError as error:
        return 0.0, f"{name}: {error or 'an assertion failed'}"
    except Exception as error:  # often because of the answer, such as a file that is missing
        return 0.0, f"{name} raised {type(error).__name__}: {error}"
    if isinstance(value, str):  # the reason of a failure
        return (0.0 if value else 1.0), f"{name}: {value}"
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1:
        return float(value), f"{name}: {value}"
    raise ConfigError(
        f"{name} must return True, False, a reason or a score from 0 to 1, not {show(value)}"
    )
