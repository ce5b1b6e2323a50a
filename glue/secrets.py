"""Secrets in text: the names of variables that hold one, the shapes of well-known keys, and a mask over both."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

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
_SHAPES = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)",
            r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[0-9A-Z]{12,}\b",
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bgl(?:pat|cbt|dt|rt|soat|ptt|ft|imt|agent)-[\w.-]{16,}",
            r"\bxox[abeoprs]-[\w-]{10,}",
            r"\bxapp-[\w-]{10,}",
            r"\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}",
            r"\b(?:sk|pk|rk)-(?=[\w-]*\d)[\w-]{16,}",
            r"\bAIza[\w-]{30,}",
            r"\bya29\.[\w-]{20,}",
            r"\bGOCSPX-[\w-]{20,}",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",
            r"\bnpm_[A-Za-z0-9]{30,}",
            r"\bpypi-[\w-]{30,}",
            r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
            r"\b(?:hf|gsk|xai|nvapi|dop_v1|doo_v1|shpat|shpss|shpca|figd|lin_api|ntn|r8|pplx|tfp|dckr_pat)[_-](?=[\w-]*\d)[\w-]{20,}",
            r"\bAC[a-f0-9]{32}\b|\bSK[a-f0-9]{32}\b",
            r"hooks\.slack\.com/services/[\w/]{20,}",
            r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
            r"\bbot\d{8,10}:[\w-]{30,}|\b\d{8,10}:AA[\w-]{30,}",
            r"(?<=://)[^\s/:@]{1,80}:[^\s/@]{3,200}(?=@)",
            r"(?i:(?<=AccountKey=)[\w+/=]{20,})",
            r"(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{20,}=*",
        )
    )
)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable's name says that its value is secret."""
    return name not in _NOT_SECRET and _NAME.search(name) is not None


def find_secrets(text: str) -> list[tuple[int, int]]:
    """Find what has the shape of a well-known key: where each begins and ends."""
    return [match.span() for match in _SHAPES.finditer(text)]


def mask_secrets(value: Json) -> Json:
    """Hide secrets in all texts of a JSON value: those of the environment, and what looks like a well-known key."""
    named = {item for name, item in os.environ.items() if len(item) >= SHORTEST and is_secret_name(name)}
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
