"""Secrets in text: the names of variables that hold one, the shapes of well-known keys, and a mask over both."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from glue.codec import Json

MASK = "***"
SHORTEST = 8  # of an environment value that counts as a secret

_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|COOKIE|WEBHOOK|BEARER|JWT|KEY$|PASS$"
    r"|(?:^|[_.-])(?:PASS|PWD|PW|KEYS?|AUTH|AUTHORIZATION|SESSION|DSN|SIGNATURE|SALT|CERT|CREDS|PAT)(?:$|[_.\d-])"
    r"|(?:DATABASE|DB|MONGO|MONGODB|REDIS|AMQP|POSTGRES|MYSQL|CONNECTION)_?(?:URL|URI|STRING)",
    re.IGNORECASE,
)
_HARMLESS = (
    "PWD OLDPWD SSH_AUTH_SOCK XAUTHORITY GPG_KEY_ID DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID XDG_SESSION_TYPE"
    " XDG_SESSION_CLASS XDG_SESSION_DESKTOP DESKTOP_SESSION SESSION_MANAGER GIT_ASKPASS SSH_ASKPASS TERM_SESSION_ID"
    " SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"
)
_NOT_SECRET = frozenset(_HARMLESS.split())


class _Shape(NamedTuple):
    """A row of `secrets.txt`, which says what the columns mean."""

    name: str
    report: str
    pattern: str


def _joined(shapes: Sequence[_Shape]) -> re.Pattern[str]:
    """One expression for all: where rows begin at a word's start, that is looked for once, which is much quicker."""
    words = "|".join(shape.pattern[2:] for shape in shapes if shape.pattern.startswith(r"\b"))
    return re.compile("|".join([rf"\b(?:{words})", *(s.pattern for s in shapes if not s.pattern.startswith(r"\b"))]))


_LINES = Path(__file__).with_name("secrets.txt").read_text(encoding="utf-8").splitlines()
_TABLE = [_Shape(*line.split("  ")) for line in _LINES if not line.startswith("#")]
_SHAPES = _joined(_TABLE)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable's name says that its value is secret."""
    return name not in _NOT_SECRET and _NAME.search(name) is not None


def find_secrets(text: str) -> list[tuple[int, int]]:
    """Find what has the shape of a well-known key: where each begins and ends."""
    return [match.span() for match in _SHAPES.finditer(text)]


def name_secrets(text: str) -> list[str]:
    """Name the well-known keys that a text holds beyond doubt ("a GitHub token"): what may be told to others."""
    shapes, pattern = _reportable()
    names: list[str] = []
    for key in pattern.findall(text):
        shape = next(shape for shape in shapes if re.fullmatch(shape.pattern, key))
        if shape.report == "always" or re.fullmatch(shape.report, key):
            names.append(shape.name)
    return names


@cache
def _reportable() -> tuple[list[_Shape], re.Pattern[str]]:
    """The shapes that are ever reported: one that is not (`Bearer`) must not hide the key behind it."""
    shapes = [shape for shape in _TABLE if shape.report != "never"]
    return shapes, _joined(shapes)


def mask_secrets(value: Json) -> Json:
    """Hide secrets in all texts of a JSON value: those of the environment, and what looks like a well-known key."""
    named = {item for name, item in os.environ.items() if len(item) >= SHORTEST and is_secret_name(name)}
    for _ in range(2):  # as they stand in JSON, and in JSON that is a text in JSON: a call's arguments in a request
        named |= {json.dumps(item, ensure_ascii=plain)[1:-1] for item in named for plain in (True, False)}
    secrets = sorted(named, key=len, reverse=True)

    def hide(value: Json) -> Json:
        if isinstance(value, str):
            for secret in secrets:
                value = value.replace(secret, MASK)
            return _SHAPES.sub(MASK, value)
        if isinstance(value, Mapping):
            return {key: hide(item) for key, item in value.items()}
        return [hide(item) for item in value] if isinstance(value, (list, tuple)) else value

    return hide(value)
