"""Access tokens for Google Cloud: from a variable, a user's login, or a service account.

Every other login (the metadata server of a machine, workload identity, impersonation) is left to
google-auth, if the extra `[google]` is installed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import urlencode, urlsplit

from glue import providers
from glue.errors import ConfigError, ProviderError
from glue.messages import Json
from glue.providers.encoding import BAD_SHAPE, base64_text, loads
from glue.text import one_line

VARIABLES = ("VERTEX_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_URI = "https://oauth2.googleapis.com/token"
_OWN = ("authorized_user", "service_account")  # types of logins that need no google-auth
_EARLY = 60.0  # seconds before its end at which a token is renewed

# Sends a form to a URL and returns the body of the response.
Post: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]


class Tokens:
    """A source of access tokens that reuses a token until shortly before it expires."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] = os.environ,
        post: Post | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._environ = environ
        self._post = post or _send
        self._clock = clock
        self._token = ""
        self._end = 0.0
        self._delegated: Any = None  # google-auth's credentials, once they are loaded

    async def get(self) -> str:
        """Return the token of an environment variable, or a token of the login if none is set.

        A token of the login is requested if needed, and reused until a minute before it expires.
        """
        given = next((self._environ[name] for name in VARIABLES if self._environ.get(name)), "")
        if given:
            return given.strip()
        if self._token and self._clock() < self._end - _EARLY:
            return self._token
        login = self._login()
        if login is None:
            # Start-up: listing the providers loads this module, and needs no event loop.
            from glue.tasks import finish_in_thread

            await finish_in_thread(self._delegate)
            return self._token
        address = login.get("token_uri") or _TOKEN_URI
        if urlsplit(address).scheme != "https":
            raise ConfigError(f"vertex: token_uri must be an https address, not {address!r}")
        answer = await self._post(address, urlencode(_form(login, self._clock())).encode())
        try:
            reply = loads(answer)
            self._token = str(reply["access_token"])
            self._end = self._clock() + float(reply.get("expires_in") or 3600)
        except BAD_SHAPE:
            text = "the response of the token server does not contain access_token"
            raise ProviderError(text, kind="auth", provider="vertex") from None
        return self._token

    def _login(self) -> dict[str, Json] | None:
        """Return the login with which this module gets a token, or None if google-auth gets it."""
        try:
            login = find_login(self._environ)
        except ConfigError:
            # Without a file, the machine itself may have a login: its metadata server knows.
            if self._environ.get("GOOGLE_APPLICATION_CREDENTIALS") or not self._can_delegate():
                raise
            return None
        return login if login.get("type") in _OWN or not self._can_delegate() else None

    def _can_delegate(self) -> bool:
        # google-auth reads the variables of the process only.
        return self._environ is os.environ and _google_auth()

    def _delegate(self) -> None:
        """Get a token through google-auth and store it. This may send requests and block."""
        auth = import_module("google.auth")
        transport = import_module("google.auth.transport.requests")
        try:
            if self._delegated is None:
                self._delegated, _ = auth.default(scopes=[_SCOPE])
        except Exception as error:
            find_login(self._environ)  # raises a ConfigError with advice if there is no file
            raise _failed("default", error) from error
        try:
            self._delegated.refresh(transport.Request())
        except Exception as error:  # google-auth has several classes for errors of a login
            raise _failed(type(self._delegated).__module__, error) from error
        self._token = str(self._delegated.token)
        expiry = self._delegated.expiry
        self._end = expiry.replace(tzinfo=UTC).timestamp() if expiry else self._clock() + 3600


def _failed(step: str, error: Exception) -> ProviderError:
    text = f"the login failed at the step {step!r}: {one_line(str(error), 300)}"
    return ProviderError(text, kind="auth", provider="vertex")


def _google_auth() -> bool:
    """Return whether google-auth and its HTTP client, requests, are installed."""
    return find_spec("google") is not None and all(
        find_spec(name) is not None for name in ("google.auth", "requests")
    )


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Return True if a variable in VARIABLES holds a token, or if a login file can be read."""
    if any(environ.get(name) for name in VARIABLES):
        return True
    try:
        return bool(find_login(environ))
    except ConfigError:
        return False


def find_login(environ: Mapping[str, str]) -> dict[str, Json]:
    """Return the login in a credentials file; raise ConfigError if the file cannot be read.

    The file is the one that GOOGLE_APPLICATION_CREDENTIALS names. If the variable is not set, the
    file is application_default_credentials.json in the folder of gcloud.
    """
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    folder = environ.get("CLOUDSDK_CONFIG") or os.path.join(
        environ.get("HOME", ""), ".config", "gcloud"
    )
    path = named or os.path.join(folder, "application_default_credentials.json")
    try:
        with open(path, encoding="utf-8") as file:
            login = json.load(file)
    except FileNotFoundError:
        if named:
            raise ConfigError(
                f"GOOGLE_APPLICATION_CREDENTIALS names {named!r}, which does not exist"
            ) from None
        raise ConfigError(
            f"vertex: no credentials; set {VARIABLES[0]} or GOOGLE_APPLICATION_CREDENTIALS, "
            "or run gcloud auth application-default login"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"vertex: {path!r} cannot be read as credentials: {type(error).__name__}"
        ) from None
    if not isinstance(login, dict):
        raise ConfigError(f"vertex: {path!r} must contain credentials as a JSON object")
    return login


def _form(login: Mapping[str, Json], now: float) -> dict[str, str]:
    kind = login.get("type")
    try:
        if kind == "authorized_user":
            form = {
                name: str(login[name]) for name in ("client_id", "client_secret", "refresh_token")
            }
            return {"grant_type": "refresh_token", **form}
        if kind == "service_account":
            return {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": _assertion(login, now),
            }
    except KeyError as missing:
        raise ConfigError(f"vertex: the credentials do not contain {missing}") from None
    raise ConfigError(
        f"vertex: credentials of type {kind!r} need google-auth; pip install 'glue-agents[google]'"
    )


def _assertion(login: Mapping[str, Json], now: float) -> str:
    """Return the signed JWT with which a service account asks for a token."""
    try:
        hashes, serialization, padding = (
            import_module(f"cryptography.hazmat.primitives.{name}")
            for name in ("hashes", "serialization", "asymmetric.padding")
        )
    except ImportError:
        raise ConfigError(
            "vertex: a service account needs the package cryptography; install it, "
            f"or set {VARIABLES[0]} to a token (gcloud auth print-access-token)"
        ) from None

    address = login.get("token_uri") or _TOKEN_URI
    claim = {
        "iss": login["client_email"],
        "scope": _SCOPE,
        "aud": address,
        "iat": int(now),
        "exp": int(now) + 3600,
    }
    header = {"alg": "RS256", "typ": "JWT", "kid": login.get("private_key_id", "")}
    signed = ".".join(
        _url_safe(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claim)
    )
    try:
        key: Any = serialization.load_pem_private_key(
            str(login["private_key"]).encode(), password=None
        )
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (ValueError, TypeError, AttributeError):
        raise ConfigError("vertex: the private_key of the service account cannot be read") from None
    return f"{signed}.{_url_safe(signature)}"


def _url_safe(data: bytes) -> str:
    return base64_text(data).rstrip("=").replace("+", "-").replace("/", "_")


async def _send(address: str, form: bytes) -> bytes:
    parts = urlsplit(address)
    fields = form.decode().split("&")[1:]  # without the type of grant, which is not a secret
    secrets = [field.partition("=")[2] for field in fields]
    # `providers.HTTP` loads the HTTP client here, at its first use: listing the providers looks
    # for credentials without sending anything.
    http = providers.HTTP(f"{parts.scheme}://{parts.netloc}", provider="vertex", secrets=secrets)
    try:
        async with http.post(
            parts.path, form, {"content-type": "application/x-www-form-urlencoded"}
        ) as blocks:
            return b"".join([block async for block in blocks])
    finally:
        await http.aclose()
