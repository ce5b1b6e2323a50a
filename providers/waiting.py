"""How long a server asks to wait, said in headers, in the body or in a sentence."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_ADVICE = re.compile(
    r"(?:try again|retry)(?: after| in)? (?:(?P<go>(?:\d+(?:\.\d+)?(?:h|ms|us|m|s))+)\b"
    r"|(?P<number>\d+(?:\.\d+)?) ?(?P<unit>milliseconds?|seconds?|minutes?|hours?))"
)


def advised_wait(
    headers: Mapping[str, str], delay: float | None, text: str, reset: bool, now: float | None = None
) -> float | None:
    """Return the seconds that the server asks to wait; header names are in lower case."""
    clock = time.time() if now is None else now
    milliseconds = _real(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    after = headers.get("retry-after")
    if after is not None:
        wait = _real(after)
        wait = _until_date(after, clock) if wait is None else wait
        if wait is not None:
            return wait
    if delay is not None:
        return delay
    wait = _text_wait(text)
    if wait is None and reset:
        wait = _reset_wait(headers, clock)
    return wait


def seconds(text: str) -> float | None:
    """Read a duration such as '26s', '45.8s', '20ms', '6m0s' or '114h18m0s'."""
    parts = _GO.findall(text)
    if not parts or "".join(value + unit for value, unit in parts) != text.strip():
        return None
    return sum(float(value) * _UNITS[unit] for value, unit in parts)


def _text_wait(text: str) -> float | None:
    found = _ADVICE.search(text)
    if found is None:
        return None
    if found["go"]:
        return seconds(found["go"])
    unit = found["unit"]
    scale = 0.001 if unit.startswith("milli") else 1.0 if unit.startswith("s") else 60.0 if unit[0] == "m" else 3600.0
    return float(found["number"]) * scale


def _reset_wait(headers: Mapping[str, str], now: float) -> float | None:
    waits = []
    for name, value in headers.items():
        if "-reset" not in name or not name.startswith(("x-ratelimit-", "anthropic-ratelimit-")):
            continue
        if headers.get(name.replace("-reset", "-remaining"), "0") != "0":
            continue  # this limit is not the one that was hit
        wait = seconds(value)
        if wait is None:
            wait = _until_stamp(value, now)
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _until_stamp(value: str, now: float) -> float | None:
    stamp = _real(value)
    if stamp is not None:
        if stamp > 1e11:
            stamp /= 1000  # milliseconds since 1970
        return max(0.0, stamp - now) if stamp > 1e9 else stamp
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - now) if moment.tzinfo else None


def _until_date(value: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _real(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None
