"""Cases of an evaluation: a prompt with checks, and the function that checks a result.

A case is a line of a JSONL file, or a mapping:

    {"id": "refund", "prompt": "My parcel is lost.", "equals": "shipping"}
    {"prompt": "Weather in Oslo?", "answers": {"weather": "12 degrees"}, "contains": "12",
     "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from glue.checks import show
from glue.errors import ConfigError, StoreError
from glue.function.validation import ValidationError, check_schema
from glue.limits import Outcome
from glue.messages import (
    AssistantMessage,
    Json,
    Message,
    Part,
    UserMessage,
    messages_from_json,
    user,
)
from glue.output import Output
from glue.result import RunResult
from glue.text import cost_text, count, format_dollars, one_line

Function: TypeAlias = "Callable[[Case, RunResult[Any]], bool | str | float]"


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
    if isinstance(source, (str, Path)):
        base, where = Path(source).parent, f"{source}, line"
    cases: dict[str, Case] = {}
    for number, line in _lines(source):
        try:
            case = line if isinstance(line, Case) else _case(line, number, base, attach)
            if case.id in cases:
                raise ValueError(f"the id {case.id!r} is used twice")
        except ValidationError as error:
            raise ConfigError(f"{where} {number}: {error.lines[0]}") from None
        except (ValueError, TypeError, StoreError, ConfigError, RecursionError, re.error) as error:
            kind = {json.JSONDecodeError: "not valid JSON: ", re.error: "a wrong pattern: "}
            raise ConfigError(f"{where} {number}: {kind.get(type(error), '')}{error}") from None
        cases[case.id] = case
    if not cases:
        raise ConfigError(f"{source} has no cases" if base != Path() else "there are no cases")
    return tuple(cases.values())


def _lines(source: str | Path | Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each case of a source with its number: a line of a file, or an item of an iterable."""
    if not isinstance(source, (str, Path)):
        yield from enumerate(source, 1)
        return
    try:
        with open(source, encoding="utf-8") as file:
            yield from ((at, line) for at, line in enumerate(file, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{source} cannot be read: {reason}") from None


def _case(line: Any, number: int, base: Path, attach: Callable[[str], Part] | None) -> Case:
    if isinstance(line, str):
        line = json.loads(line)
    fields: dict[str, Json] = dict(Output(_schema()).read(line))
    checks = {name: fields.pop(name) for name in (*CHECKS, "python", "judge") if name in fields}
    if not checks:
        raise ValueError('it has no check; add one, such as "contains": "Oslo"')
    for pattern in as_list(checks.get("matches", [])):
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
    messages = _messages(fields, attach)
    return Case(
        id=str(fields.get("id", number)), messages=messages, checks=checks, folder=folder, **own
    )


@cache
def _schema() -> Mapping[str, Json]:
    schema: dict[str, Json] = json.loads(Path(__file__).with_name("case.json").read_text())
    schema["$defs"]["outcome"]["enum"] = list(Outcome)
    return schema


def _messages(
    fields: Mapping[str, Json], attach: Callable[[str], Part] | None
) -> tuple[Message, ...]:
    if ("prompt" in fields) == ("messages" in fields):
        raise ValueError('it needs a "prompt" or "messages"')
    if "messages" in fields:
        messages = messages_from_json(fields["messages"])
        if not isinstance(messages[-1], UserMessage):
            raise ValueError("the last of the messages must have the role user")
        return messages
    names = fields.get("attachments", [])
    if names and attach is None:
        raise ValueError("attachments are read by `glue eval`; in Python, pass messages")
    return (user(fields["prompt"], *(attach(name) for name in names if attach is not None)),)


# Checks ------------------------------------------------------------------------------------------


def as_list(wanted: Json) -> list[Any]:
    """Return a list as it is, and any other value as a list of one."""
    return wanted if isinstance(wanted, list) else [wanted]


def _equals(wanted: Json, result: RunResult[Any]) -> str:
    if isinstance(wanted, str):
        found: Json = result.text.strip()
        return "" if found == wanted.strip() else f"got {one_line(found, 80)!r}"
    found = _value(result)
    return "" if found == wanted else f"got {show(found)}"


def _contains(wanted: Json, result: RunResult[Any]) -> str:
    missing = [text for text in as_list(wanted) if text not in result.text]
    return f"the answer lacks {missing[0]!r}" if missing else ""


def _matches(wanted: Json, result: RunResult[Any]) -> str:
    missing = [text for text in as_list(wanted) if not re.search(text, result.text)]
    return f"the answer does not match {missing[0]!r}" if missing else ""


def _value(result: RunResult[Any]) -> Json:
    """Return the output of a run, or else the JSON in its text, or None if it has neither."""
    if result.output is not None:
        return result.output
    try:
        return Output({}).parse(result.text)
    except ValidationError:
        return None


def _json(wanted: Json, result: RunResult[Any]) -> str:
    found = _value(result)
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
    """Return the first difference, or an empty text. An object may have more fields than wanted."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            if key not in found:
                return f"{path}{key} is missing"
            if problem := _difference(value, found[key], tolerance, f"{path}{key}."):
                return problem
        return ""
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        problems = (
            _difference(one, other, tolerance, f"{path}{at}.")
            for at, (one, other) in enumerate(zip(wanted, found, strict=True))
        )
        return next(filter(None, problems), "")
    numbers = [
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in (wanted, found)
    ]
    if all(numbers) and abs(wanted - found) <= tolerance:
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
            return f"it called {_entry(entry)}"
    for entry in rules.get("any_order", ()):
        if not any(_is_call(entry, call) for call in made):
            return f"it did not call {_entry(entry)}; it called {named}"
    left = iter(made)
    for entry in rules.get("in_order", ()):
        if not any(_is_call(entry, call) for call in left):
            return f"it did not call {_entry(entry)} in this order; it called {named}"
    return ""


def _is_call(entry: Json, call: Any) -> bool:
    entry = {"name": entry} if isinstance(entry, str) else entry
    if entry["name"] != call.name:
        return False
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = {}
    return not _difference(entry.get("arguments", {}), given, 0.0)


def _entry(entry: Json) -> str:
    if isinstance(entry, str):
        return entry
    return (
        f"{entry['name']} {json.dumps(entry['arguments'])}"
        if "arguments" in entry
        else entry["name"]
    )


def _max_cost(wanted: Json, result: RunResult[Any]) -> str:
    if result.cost is not None and result.cost <= wanted:
        return ""
    return f"{cost_text(result.cost)}, at most {format_dollars(wanted)}"


def _max_turns(wanted: Json, result: RunResult[Any]) -> str:
    return "" if result.turns <= wanted else f"it took {count(result.turns, 'turn')}"


def _outcome(wanted: Json, result: RunResult[Any]) -> str:
    return "" if result.outcome in as_list(wanted) else f"it ended with {result.outcome.value}"


CHECKS: dict[str, Callable[[Json, RunResult[Any]], str]] = {
    "equals": _equals,
    "contains": _contains,
    "matches": _matches,
    "json": _json,
    "calls": _called,
    "outcome": _outcome,
    "max_cost": _max_cost,
    "max_turns": _max_turns,
}


def check(
    case: Case, result: RunResult[Any], functions: Mapping[str, Function] | None = None
) -> tuple[float, tuple[str, ...]]:
    """Return the score of a result, and the reasons if it is below 1.

    The score is the lowest of all checks. A run that did not end with an answer fails, unless the
    case names that outcome. A case that has only a judge gets 1 here.

    Args:
        case: the case.
        result: the result of its run.
        functions: the functions of "python" checks, by name.
    """
    if "outcome" not in case.checks and not result.complete:
        return 0.0, (f"it ended with {result.outcome.value}",)
    scores: list[tuple[float, str]] = []  # with the reasons
    for name, wanted in case.checks.items():
        if name in CHECKS:
            reason = CHECKS[name](wanted, result)
            scores.append((0.0 if reason else 1.0, f"{name}: {reason}"))
    scores += [
        _scored(named, (functions or {})[named], case, result)
        for named in as_list(case.checks.get("python", []))
    ]
    return (
        min((score for score, _ in scores), default=1.0),
        tuple(reason for score, reason in scores if score < 1),
    )


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
