"""AWS Signature Version 4 for a JSON body, and where AWS credentials are found."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key[:4]}..., secret_key=***)"


def sign(
    body: bytes, *, host: str, path: str, region: str, credentials: Credentials, now: str, service: str = "bedrock"
) -> dict[str, str]:
    """Give the headers that sign a POST of JSON; `path` as it is sent, `now` like 20260102T030405Z."""
    headers = {"content-type": "application/json", "host": host, "x-amz-date": now}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    scope = f"{now[:8]}/{region}/{service}/aws4_request"
    # Every service but S3 signs the path encoded once more than it is sent: %3A becomes %253A.
    lines = ["POST", quote(path, safe="/~"), "", *(f"{name}:{value}" for name, value in headers.items())]
    request = "\n".join([*lines, "", names, hashlib.sha256(body).hexdigest()])
    text = "\n".join([_ALGORITHM, now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = _signing_key(credentials.secret_key, now[:8], region, service)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    del headers["host"]  # the HTTP client sends it itself
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _signing_key(secret: str, *steps: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for step in (*steps, "aws4_request"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key


def timestamp() -> str:
    """Say the present time as the signature wants it."""
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def find_credentials(environ: Mapping[str, str]) -> Credentials | None:
    """Look in the variables first, then in the shared credentials file; None where there are none."""
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return Credentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    section = _section(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials", _profile(environ))
    if "aws_access_key_id" not in section or "aws_secret_access_key" not in section:
        return None
    return Credentials(
        section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
    )


def find_region(environ: Mapping[str, str]) -> str:
    """Look in the variables first, then in the config file; empty where none is set."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if region:
        return region
    profile = _profile(environ)
    name = profile if profile == "default" else f"profile {profile}"
    return _section(environ, "AWS_CONFIG_FILE", "config", name).get("region", "")


def _profile(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_PROFILE") or "default"


def _section(environ: Mapping[str, str], variable: str, file: str, section: str) -> Mapping[str, str]:
    from configparser import Error, RawConfigParser
    from pathlib import Path

    home = environ.get("HOME", "")
    path = environ.get(variable) or (f"{home}/.aws/{file}" if home else "")
    parser = RawConfigParser(default_section="")
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8") if path else "")
        return dict(parser[section]) if parser.has_section(section) else {}
    except (OSError, UnicodeDecodeError, Error):
        return {}
