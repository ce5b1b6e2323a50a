"""Credentials and region for Amazon Web Services, from variables and the files of the AWS tools."""

from __future__ import annotations

from collections.abc import Mapping
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import NamedTuple


class Credentials(NamedTuple):
    """An access key pair, with a session token if it is temporary."""

    access_key: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key[:4]}..., secret_key=***)"


def find_credentials(environ: Mapping[str, str]) -> Credentials | None:
    """Return credentials from variables, ~/.aws/credentials or ~/.aws/config, in this order.

    Returns None if no credentials are found.
    """
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return Credentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    for section in (_section(environ, "credentials"), _section(environ, "config")):
        if "aws_access_key_id" in section and "aws_secret_access_key" in section:
            token = section.get("aws_session_token", "")
            return Credentials(
                section["aws_access_key_id"], section["aws_secret_access_key"], token
            )
    return None


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Return whether a bearer token or an access key pair can be found."""
    return bool(environ.get("AWS_BEARER_TOKEN_BEDROCK")) or find_credentials(environ) is not None


def find_region(environ: Mapping[str, str]) -> str:
    """Return the region from the variables or ~/.aws/config, or "" if none is set."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return region or _section(environ, "config").get("region", "")


def _section(environ: Mapping[str, str], file: str) -> Mapping[str, str]:
    """Return the profile's section in ~/.aws/config or ~/.aws/credentials, or {} if missing.

    In the config file the section of every profile but "default" is named "profile NAME".
    """
    home = environ.get("HOME", "")
    variable = "AWS_CONFIG_FILE" if file == "config" else "AWS_SHARED_CREDENTIALS_FILE"
    path = environ.get(variable) or (f"{home}/.aws/{file}" if home else "")
    profile = environ.get("AWS_PROFILE") or "default"
    section = profile if profile == "default" or file == "credentials" else f"profile {profile}"
    parser = RawConfigParser(default_section="")
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8") if path else "")
        return dict(parser[section]) if parser.has_section(section) else {}
    except (OSError, UnicodeDecodeError, Error):
        return {}
