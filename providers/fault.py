"""The error bodies of all vendors, read into one form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from glue.providers.waiting import seconds
from glue.types import Json


@dataclass(slots=True)
class Fault:
    """What an error body says, whatever its shape."""

    message: str = ""
    names: frozenset[str] = frozenset()  # codes, types and statuses, in lower case
    status: int | None = None
    text: str = ""  # all that may be searched, in lower case
    delay: float | None = None
    daily: bool = False  # a quota of the day, which no short wait mends
    flagged: bool = False
    request_id: str | None = None


def read_fault(text: str) -> Fault:
    """Find message, codes and advice in an error body of any vendor's shape."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _plain(text)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return _plain(value if isinstance(value, str) else text)

    outer = value
    inner = value.get("error", value)
    if isinstance(inner, str):
        inner = {**outer, "message": inner}
    if not isinstance(inner, dict):
        inner = outer
    names, status = _names(outer, inner)
    found = inner.get("metadata")
    metadata: dict[str, Json] = found if isinstance(found, dict) else {}
    raw = metadata["raw"] if isinstance(metadata.get("raw"), str) else ""
    message = _message(inner) or _message(outer)
    fault = Fault(
        message=_line(f"{message}: {raw}" if raw and raw not in message else message), names=names, status=status
    )
    fault.text = f"{fault.message} {' '.join(names)} {raw} {message}".lower()
    fault.flagged = "flagged_input" in metadata or metadata.get("error_type") == "moderation"
    identity = outer.get("request_id") or inner.get("request_id")
    fault.request_id = identity if isinstance(identity, str) else None
    details = inner.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            _google_detail(fault, detail)
    return fault


def _plain(text: str) -> Fault:
    start = text.lstrip()[:15].lower()
    if start.startswith(("<!doctype", "<html")):
        return Fault(message="an HTML page instead of JSON", text=text[:4000].lower())
    return Fault(message=_line(text), text=text[:4000].lower())


def _names(outer: Mapping[str, Json], inner: Mapping[str, Json]) -> tuple[frozenset[str], int | None]:
    names: set[str] = set()
    status = None
    for place in (inner, outer):
        for key in ("code", "type", "status", "error_type", "__type", "status_code"):
            value = place.get(key)
            if isinstance(value, str) and value:
                names.add(value.rsplit("#", 1)[-1].lower())
                value = int(value) if value.isascii() and value.isdigit() and len(value) == 3 else None
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 and status is None:
                status = value
    nested = inner.get("innererror")
    if isinstance(nested, dict) and isinstance(nested.get("code"), str):
        names.add(nested["code"].lower())
    return frozenset(names - {"error"}), status


def _message(place: Mapping[str, Json]) -> str:
    for key in ("message", "Message", "detail", "error_description", "title"):
        value = place.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, (list, dict)) and value:
            return json.dumps(value, ensure_ascii=False)
    return ""


def _google_detail(fault: Fault, detail: Mapping[str, Json]) -> None:
    delay = detail.get("retryDelay")
    if isinstance(delay, str):
        fault.delay = seconds(delay)
    reason = detail.get("reason")
    if isinstance(reason, str):
        fault.names |= {reason.lower()}
    # The text of a 429 always speaks of quota and billing; the class is in the id.
    violations = detail.get("violations")
    for violation in violations if isinstance(violations, list) else ():
        if isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId", "")):
            fault.daily = True


def _line(text: str) -> str:
    text = " ".join("".join(char if char.isprintable() else " " for char in text[:4000]).split())
    return text if len(text) <= 300 else text[:297] + "..."
