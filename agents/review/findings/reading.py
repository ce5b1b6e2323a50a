"""Read the findings that a model reported, even if their fields have unexpected names or values.

Models rename fields, write severities in capitals or as numbers, and send JSON in a fence or under
another key. Such a report is read as it was meant; only a report without text is refused.

    read_report({"file": "shop.py", "code": "x = 1", "issue": "Wrong", "severity": "MAJOR"})
    # Finding(path="shop.py", quote="x = 1", title="Wrong", severity="high", ...)
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from glue.agents.review.records import Category, Confidence, Finding, Severity

# Field of a finding -> names that models use for it, without capitals and signs; best name first.
_NAMES: Mapping[str, tuple[str, ...]] = {
    name: tuple(names.split())
    for name, names in {
        "path": "path file filepath filename relativepath sourcefile",
        "quote": "quote code quotedcode codequote snippet codesnippet existingcode originalcode"
        " lineofcode codeline linecontent excerpt evidence",
        "title": "title headline heading name issue problem subject bug finding shortdescription"
        " summary",
        "body": "body description explanation message details detail comment text reason rationale"
        " why content analysis impact problem issue",
        "severity": "severity level priority importance risk",
        "confidence": "confidence certainty confidencescore probability likelihood",
        "category": "category type kind class label",
        "suggestion": "suggestion suggestedcode suggestedfix replacement fixedcode"
        " improvedcode fix",
        "acceptance": "acceptance acceptancecriteria verification howtoverify verify",
        "line": "line linenumber lineno newline startline linestart start lines endline position",
    }.items()
}
_LISTS = (
    "findings issues comments problems bugs results reports reviewcomments violations defects"
    " errors items vulnerabilities"
).split()
_SUMMARIES = "summary overview overall conclusion assessment overallassessment verdict".split()
_INSIDE = "review result output response data report codereview answer arguments".split()
_SEVERITIES_WORDS: Mapping[Severity, str] = {
    "critical": "critical blocker blocking fatal severe urgent showstopper p0 s0 sev0 ⛔ 🚨",
    "high": "high major error serious important p1 s1 sev1 🔴",
    "medium": "medium moderate normal warning warn p2 s2 sev2 🟠",
    "low": "low minor small p3 s3 sev3 🟡",
    "info": "info informational information note nit nitpick trivial cosmetic hint p4 p5 🔵",
}
_SEVERITIES = {
    word: severity for severity, words in _SEVERITIES_WORDS.items() for word in words.split()
}
_CONFIDENCES_WORDS: Mapping[Confidence, str] = {
    "high": "high certain sure definite definitely confirmed proven strong",
    "medium": "medium moderate likely probable probably fair",
    "low": "low unsure uncertain maybe possible possibly unlikely speculative weak",
}
_CONFIDENCES = {
    word: confidence for confidence, words in _CONFIDENCES_WORDS.items() for word in words.split()
}
_CATEGORIES_WORDS: Mapping[Category, str] = {
    "attack": "attack promptinjection",
    "security": "security vulnerability injection authentication authorization authorisation"
    " privacy secret secrets",
    "performance": "performance perf efficiency memory latency scalability",
    "tests": "tests test testing coverage",
    "types": "types typing typesafety",
    "docs": "docs doc documentation comments",
    "style": "style formatting naming readability maintainability convention lint",
    "process": "process workflow ci",
}
_CATEGORIES = {
    word: category for category, words in _CATEGORIES_WORDS.items() for word in words.split()
}
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_FRACTION = re.compile(r"\d\s*(?:/|out of)\s*(\d+)")
_SHARE = re.compile(r"\d?\.\d")
# A path with a line number: "shop.py:12", "shop.py#L12-L15" or "shop.py, line 12".
_PATH_LINE = re.compile(r"(?P<path>.+?)(?::|#L?|,? \(?lines? )(?P<line>\d+)(?:[-–:]\w+)*\)?")
_MAX_STARTS = 2_000  # brackets in a reply at which JSON may start
_MAX_PYTHON = 200_000  # characters of a reply that are parsed as a Python literal


def read_report(given: Mapping[str, Any], source: str = "") -> Finding:
    """Return a model's report as a Finding; raise ValueError if title and body are empty."""
    fields = _fields(given)
    path, line = _path(_text(fields.get("path")))
    title = " ".join(_text(fields.get("title")).split())
    body = _text(fields.get("body")).strip()
    if not title and not body:
        raise ValueError("title and body must not be empty")
    if not title:
        title = re.split(r"(?<=[.!?])\s", " ".join(body.split()))[0][:120].rstrip(".")
    return Finding(
        path=path,
        quote=_code(fields.get("quote")) or "",
        title=title,
        body=body or title,
        severity=read_severity(fields.get("severity")),
        confidence=read_confidence(fields.get("confidence")),
        category=_category(fields.get("category")),
        suggestion=_code(fields.get("suggestion")),
        acceptance=" ".join(_text(fields.get("acceptance")).split()),
        source=source,
        claimed=_line(fields.get("line")) or line,
    )


def _key(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's report with the field names of a Finding, without fields of unknown names.

    Each value is used for one field only.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        found.setdefault(_key(name), value)
    place = found.pop("location", None) or found.pop("place", None)
    if isinstance(place, Mapping):
        found = {_key(name): value for name, value in place.items()} | found
    elif isinstance(place, str):
        found.setdefault("path", place)
    fields: dict[str, Any] = {}
    for name, names in _NAMES.items():
        used = next((key for key in names if found.get(key) not in (None, "", [], {})), "")
        if used:
            fields[name] = found.pop(used)
    return fields


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "\n".join(_text(item) for item in value)
    return "" if value is None or isinstance(value, Mapping) else str(value)


def _code(value: object) -> str | None:
    """Return a field of a report as code without its Markdown fence, or None if it is not text.

    The field is a string, or an object with the string as its "code", "text" or "new".
    """
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("code", "text", "new") if name in value), None)
    if not isinstance(value, str):
        return None
    fenced = re.fullmatch(r"\s*(`{3,}|~{3,})[\w+-]*\n(.*?)\n?[ \t]*\1\s*", value, re.DOTALL)
    return fenced[2] if fenced else value


def _path(text: str) -> tuple[str, int | None]:
    """Return path and line number of a text such as "`a.py`:12"; the number is None if missing."""
    path = text.strip().strip("`").strip()
    match = _PATH_LINE.fullmatch(path)
    return (match["path"].strip("`"), int(match["line"])) if match else (path, None)


def _line(value: object) -> int | None:
    """Return the first line number in a value such as 12, "L12-15" or [12, 15], or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = value[0] if value else None
    if isinstance(value, Mapping):
        value = value.get("start") or value.get("line")
    match = _NUMBER.search(str(value))
    number = int(float(match[0])) if match else 0
    return number if 0 < number < 10_000_000 else None


def read_severity(value: object) -> Severity:
    """Return the severity that a word or a number means, or "medium" for any other value.

    Upper and lower case are the same, and the most severe of several words counts. A number up to 1
    is a share if it has a decimal point. Other numbers up to 5 are steps, and up to 10 are CVSS
    scores. In "3/4" the second number is the highest.
    """
    words = re.findall(r"[a-z]+\d?|[⛔🚨🔴🟠🟡🔵]", str(value).lower())
    known = [_SEVERITIES[word] for word in words if word in _SEVERITIES]
    if known:
        return min(known, key=get_args(Severity).index)
    number = _number(value)
    if number is None:
        return "medium"
    if fraction := _FRACTION.search(str(value)):
        most = max(int(fraction[1]), 1)
    elif number <= 1 and _SHARE.search(str(value)):
        most = 1
    else:
        most = 5 if number <= 5 else 10
    steps: tuple[tuple[float, Severity], ...] = (
        (0.9, "critical"),
        (0.7, "high"),
        (0.4, "medium"),
        (0.21, "low"),
    )
    return next((severity for least, severity in steps if number / most >= least), "info")


def read_confidence(value: object) -> Confidence:
    """Return the confidence (high, medium or low) of a word or a number, or "medium" if unclear.

    Upper and lower case are the same. True means "high", and False means "low".
    """
    if isinstance(value, bool):
        return "high" if value else "low"
    words = re.findall(r"[a-z]+", str(value).lower())
    known = [_CONFIDENCES[word] for word in words if word in _CONFIDENCES]
    if known:
        return known[0]
    number = _number(value)
    if number is None:
        return "medium"
    if "%" in str(value):
        number /= 100
    else:
        number /= next((most for most in (1, 5, 10, 100) if number <= most), number)
    return "high" if number >= 0.75 else "medium" if number >= 0.4 else "low"


def _number(value: object) -> float | None:
    match = _NUMBER.search(str(value))
    return float(match[0]) if match else None


def _category(value: object) -> Category:
    text = str(value).lower()
    words = [_key(text), *re.findall(r"[a-z]+", text)]
    return next((_CATEGORIES[word] for word in words if word in _CATEGORIES), "bug")


@dataclass(frozen=True, slots=True)
class WrittenReview:
    """A review that a model wrote as text instead of calling tools."""

    reports: tuple[Mapping[str, Any], ...]
    summary: str = ""


def read_reply(text: str) -> WrittenReview | None:
    """Return the review that a model wrote as JSON in a text, or None if the text contains none.

    An empty list counts as a review without findings only if the text is nothing but JSON.
    """
    values = _python(text) or list(_values(text))
    reports: list[Mapping[str, Any]] = []
    summary = ""
    is_review = False
    for value in values:
        found = _review_in(value)
        if found is not None:
            is_review = True
            reports += found.reports
            summary = summary or found.summary
    bare = re.sub(r"```\w*|~~~\w*", "", text).strip()
    is_whole = bare[:1] in ("[", "{") and bare[-1:] in ("]", "}")
    return WrittenReview(tuple(reports), summary) if is_review and (reports or is_whole) else None


def read_reports(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return the reports in the arguments of a call of `report_finding`.

    Usually there is one. Some models send a list, or JSON with small mistakes. Raise ValueError if
    there is no report.
    """
    reports: list[Mapping[str, Any]] = []
    for value in _python(text) or list(_values(text)):
        found = _review_in(value)
        if found is not None:
            reports += found.reports
        elif isinstance(value, Mapping):
            reports.append(value)
    if not reports:
        raise ValueError("the arguments are not a JSON object; send path, quote, title and body")
    return tuple(reports)


def _values(text: str) -> Iterator[Any]:
    """Yield each JSON object and JSON list that a text contains.

    Trailing commas and line breaks in strings are accepted. If the outer value is cut off, its
    inner values are yielded.
    """
    repaired = re.sub(r",(\s*[}\]])", r"\1", text)
    decoder = json.JSONDecoder(strict=False)
    at, count = 0, 0
    while count < _MAX_STARTS:
        start = re.compile(r"[\[{]").search(repaired, at)
        if start is None:
            break
        count += 1
        try:
            value, at = decoder.raw_decode(repaired, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        yield value


def _python(text: str) -> list[Any]:
    """Return `[value]` if the text is a Python list or dict with single quotes, or else [].

    Some models write such literals instead of JSON.
    """
    bare = re.sub(r"^\s*```\w*|```\s*$", "", text).strip()
    if not re.match(r"[\[{]+\s*'", bare) or len(bare) > _MAX_PYTHON:
        return []
    try:
        return [ast.literal_eval(bare)]
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return []


def _review_in(value: Any, depth: int = 0) -> WrittenReview | None:
    """Return the review that a JSON value contains, or None if the value contains no review.

    An empty list is a review without reports.
    """
    if isinstance(value, list):
        if value and not any(map(_is_report, value)):
            return None
        return WrittenReview(tuple(item for item in value if isinstance(item, Mapping)))
    if not isinstance(value, Mapping):
        return None
    if (call := _call_in(value)) is not None:
        return call
    if _is_report(value):
        return WrittenReview((value,))
    keys = {_key(name): item for name, item in value.items()}
    summary = next((keys[name] for name in _SUMMARIES if isinstance(keys.get(name), str)), "")
    for name in _LISTS:
        items = keys.get(name)
        if isinstance(items, Mapping):  # {"1": {...}, "2": {...}}
            items = list(items.values())
        if isinstance(items, list) and (not items or any(map(_is_report, items))):
            reports = (item for item in items if isinstance(item, Mapping))
            return WrittenReview(tuple(reports), summary)
    for name in _INSIDE if depth < 2 else ():
        inner = _review_in(keys.get(name), depth + 1)
        if inner is not None:
            return WrittenReview(inner.reports, inner.summary or summary)
    return None


def _call_in(value: Mapping[str, Any]) -> WrittenReview | None:
    """Return the review in a `report_finding` or `finish_review` call written as text, or None.

    Return None if `value` is not a call of one of these tools, or its arguments are not an object.
    """
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = inner
    name = value.get("name") or value.get("tool") or value.get("tool_name") or value.get("function")
    if name not in ("report_finding", "finish_review"):
        return None
    given: Any = next(
        (value[key] for key in ("arguments", "parameters", "input", "args") if key in value), {}
    )
    if isinstance(given, str):
        given = next(_values(given), {})
    if not isinstance(given, Mapping):
        return None
    if name == "report_finding":
        return WrittenReview((given,))
    return WrittenReview((), _text(given.get("summary")))


def _is_report(value: object) -> bool:
    """Return whether a JSON value is a report, with a path or quote and with a title or body."""
    if not isinstance(value, Mapping):
        return False
    keys = {_key(name) for name, item in value.items() if item not in (None, "")}
    has_place = keys.intersection((*_NAMES["path"], *_NAMES["quote"], "location", "place"))
    return bool(has_place and keys.intersection((*_NAMES["title"], *_NAMES["body"])))
