"""Credentials and region for Amazon Web Services.

Keys in variables and in the files of the AWS tools are read here. Every other login (SSO, assumed
roles, web identity, containers, instances) is left to botocore, if the extra `[aws]` is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from glue.errors import ConfigError, MissingKey, ProviderError
from glue.text import one_line

REGION = "us-east-1"  # the default
VARIABLES = ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID")
# Keys of a profile, or variables, that ask for a login which only botocore can do.
_PROFILE_LOGINS = (
    "role_arn",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
    "credential_process",
)
_VARIABLE_LOGINS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)


class Credentials(NamedTuple):
    """An access key pair, with a session token if it is temporary."""

    access_key: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key[:4]}..., secret_key=***)"


def find_credentials(environ: Mapping[str, str]) -> Credentials | None:
    """Return the access key pair of the environment or of the files in ~/.aws, or None.

    The order is: environment variables, ~/.aws/credentials, ~/.aws/config. If the profile assumes
    a role, the files are ignored, because their keys are only for assuming the role.
    """
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return Credentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    sections = _section(environ, "credentials"), _section(environ, "config")
    if any("role_arn" in section for section in sections):
        return None
    for section in sections:
        if "aws_access_key_id" in section and "aws_secret_access_key" in section:
            token = section.get("aws_session_token", "")
            return Credentials(
                section["aws_access_key_id"], section["aws_secret_access_key"], token
            )
    return None


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Return whether a bearer token, an access key pair or another login is configured.

    No request is sent, so the role of an instance is not found.
    """
    if environ.get("AWS_BEARER_TOKEN_BEDROCK") or find_credentials(environ) is not None:
        return True
    return bool(_asked_for(environ))


def _asked_for(environ: Mapping[str, str]) -> str:
    """Return the name of a setting that requires a login by botocore, or "" if none is set.

    The setting is an environment variable, or a key of the profile in an AWS configuration file.
    """
    for name in _VARIABLE_LOGINS:
        if environ.get(name):
            return name
    for file in ("credentials", "config"):
        section = _section(environ, file)
        for key in _PROFILE_LOGINS:
            if key in section:
                return f"{key} of the profile {environ.get('AWS_PROFILE') or 'default'!r}"
    return ""


class AwsLogin:
    """A source of AWS credentials. botocore logs in, and renews them before they expire."""

    def __init__(self) -> None:
        self._found: Any = None  # botocore's credentials, once they are loaded

    def get(self) -> Credentials:
        """Log in to AWS through botocore if necessary, and return the credentials.

        This method may send requests and block, so call it in a thread. It raises an error that
        names the step of the login that failed.
        """
        try:
            session = import_module("botocore.session")
        except ImportError:
            if asked := _asked_for(os.environ):
                raise ConfigError(
                    f"bedrock: {asked} needs botocore; pip install 'glue-agents[aws]'"
                ) from None
            raise MissingKey("bedrock", VARIABLES) from None
        if self._found is None:
            self._found = self._load(session)
        try:
            frozen = self._found.get_frozen_credentials()
        except Exception as error:  # botocore has many classes for errors of a login
            raise _failed(self._found.method, error) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def _load(self, session: Any) -> Any:
        profile = os.environ.get("AWS_PROFILE")
        try:
            opened = session.Session(profile=profile)
            # botocore itself does not read AWS_REGION, and some steps need a region.
            opened.set_config_variable("region", find_region(os.environ) or REGION)
            steps = opened.get_component("credential_provider").providers
        except Exception as error:
            raise _failed("profile", error) from error
        for step in steps:
            try:
                found = step.load()
            except Exception as error:
                raise _failed(step.METHOD, error) from error
            if found is not None:
                return found
        raise MissingKey("bedrock", VARIABLES)


def _failed(step: str, error: Exception) -> ProviderError:
    profile = os.environ.get("AWS_PROFILE")
    where = f" of the profile {profile!r}" if profile else ""
    return ProviderError(
        f"the login{where} failed at the step {step!r}: {one_line(str(error), 300)}",
        kind="auth",
        provider="bedrock",
    )


def find_region(environ: Mapping[str, str]) -> str:
    """Return the region from AWS_REGION, AWS_DEFAULT_REGION or ~/.aws/config, or "" if unset."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return region or _section(environ, "config").get("region", "")


def _section(environ: Mapping[str, str], file: str) -> Mapping[str, str]:
    """Return the section of the current profile in an AWS file, or {} if there is none.

    The result is also {} if the file does not exist or cannot be read.

    `file` is "config" or "credentials". In the config file, the section of every profile but
    "default" is named "profile NAME".
    """
    home = environ.get("HOME", "")
    variable = "AWS_CONFIG_FILE" if file == "config" else "AWS_SHARED_CREDENTIALS_FILE"
    path = environ.get(variable) or (f"{home}/.aws/{file}" if home else "")
    profile = environ.get("AWS_PROFILE") or "default"
    section = profile if profile == "default" or file == "credentials" else f"profile {profile}"
    parser = RawConfigParser(default_section="")
    try:
        # An empty path is the current folder, which is an OSError too.
        parser.read_string(Path(path).read_text(encoding="utf-8"))
        return dict(parser[section]) if parser.has_section(section) else {}
    except (OSError, UnicodeDecodeError, Error):
        return {}
