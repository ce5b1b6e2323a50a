"""Access tokens for Google Cloud: variables, files of credentials, logins through google-auth."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs

import pytest

from glue.errors import ConfigError, ProviderError
from glue.providers.google import Tokens, _send, has_credentials


def login(folder: Path, **fields: str) -> dict[str, str]:
    file = folder / "login.json"
    file.write_text(json.dumps(fields))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}


USER = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}


async def test_a_token_in_a_variable_needs_no_login() -> None:
    assert await Tokens(environ={"GOOGLE_OAUTH_ACCESS_TOKEN": " t \n"}).get() == "t"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"type": "external_account"}, "credentials of type 'external_account' need google-auth"),
        ({"type": "authorized_user"}, "the credentials do not contain 'client_id'"),
        ({**USER, "token_uri": "http://x.example"}, "token_uri must be an https address"),
    ],
)
async def test_unusable_credentials_are_a_one_line_error(
    fields: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        await Tokens(environ=login(tmp_path, **fields)).get()


def test_credentials_are_a_token_or_a_file_with_a_login(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}

    assert not has_credentials(home)
    assert has_credentials({**home, "CLOUDSDK_AUTH_ACCESS_TOKEN": "t"})
    assert has_credentials({**home, **login(tmp_path, **USER)})


async def test_the_connection_to_the_token_server_is_not_kept(loopback: Any) -> None:
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    for _ in range(2):
        assert await _send(f"{server.url}/token", b"grant_type=x&secret=y") == b"{}"

    assert server.connections == 2
    assert server.seen[0].headers["content-type"] == "application/x-www-form-urlencoded"


async def test_missing_credentials_name_the_variables_to_set(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="set VERTEX_ACCESS_TOKEN or GOOGLE_APPLICATION_CREDENTIALS"
    ):
        await Tokens(environ={"HOME": str(tmp_path)}).get()
    with pytest.raises(ConfigError, match="which does not exist"):
        await Tokens(environ={"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "no")}).get()
    (tmp_path / "bad").write_text("[")
    with pytest.raises(ConfigError, match="cannot be read as credentials"):
        await Tokens(environ={"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "bad")}).get()


async def test_a_service_account_signs_or_names_the_missing_package(tmp_path: Path) -> None:
    account = {"type": "service_account", "client_email": "a@b.example", "private_key": "none"}

    with pytest.raises(
        ConfigError, match=r"needs the package cryptography|private_key of the service account"
    ):
        await Tokens(environ=login(tmp_path, **account)).get()


async def test_a_token_response_without_a_token_is_an_auth_error(tmp_path: Path) -> None:
    async def post(address: str, form: bytes) -> bytes:
        return b'{"error": "invalid_grant"}'

    with pytest.raises(ProviderError, match="does not contain access_token") as caught:
        await Tokens(environ=login(tmp_path, **USER), post=post).get()
    assert caught.value.kind == "auth"


@pytest.mark.parametrize(
    ("fields", "moments", "used"),
    [
        ({}, (0.0, 3539.0, 3540.0), ["t1", "t1", "t2"]),
        ({"expires_in": 100}, (0.0, 39.0, 40.0), ["t1", "t1", "t2"]),
    ],
)
async def test_a_requested_token_is_reused_until_a_minute_before_it_expires(
    tmp_path: Path, fields: dict[str, int], moments: tuple[float, ...], used: list[str]
) -> None:
    sent: list[bytes] = []
    now = [0.0]

    async def post(address: str, form: bytes) -> bytes:
        sent.append(form)
        return json.dumps({"access_token": f"t{len(sent)}", **fields}).encode()

    tokens = Tokens(environ=login(tmp_path, **USER), post=post, clock=lambda: now[0])

    found = []
    for now[0] in moments:
        found.append(await tokens.get())

    assert found == used


async def test_a_service_account_asks_for_a_token_of_an_hour(tmp_path: Path) -> None:
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = rsa.generate_private_key(65537, 1024).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "client_email": "a@b.example",
        "private_key": key.decode(),
        "private_key_id": "k",
    }
    sent: list[tuple[str, bytes]] = []

    async def post(address: str, form: bytes) -> bytes:
        sent.append((address, form))
        return b'{"access_token": "t"}'

    tokens = Tokens(environ=login(tmp_path, **account), post=post, clock=lambda: 1000.5)
    assert await tokens.get() == "t"

    [(address, form)] = sent
    [assertion] = parse_qs(form.decode())["assertion"]
    header, claim = (
        json.loads(base64.urlsafe_b64decode(part + "==")) for part in assertion.split(".")[:2]
    )
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "k"}
    assert claim == {
        "iss": "a@b.example",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "aud": address,
        "iat": 1000,
        "exp": 4600,
    }


# Logins through google-auth, each against a token server on the loopback


def response(body: object, status: str = "200 OK") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\nmetadata-flavor: Google\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data


TOKEN = response({"access_token": "from-server", "expires_in": 3600, "token_type": "Bearer"})


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a login, and an environment without the variables of Google's tools."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "CLOUDSDK_", "VERTEX_", "GCE_")) or "_proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    return tmp_path


@pytest.fixture
def home(empty_home: Path) -> Path:
    """An empty home; the test is skipped if google-auth is not installed."""
    pytest.importorskip("google.auth", reason="the extra [google] is not installed")
    return empty_home


def test_the_metadata_server_of_a_machine_is_asked(home: Path, loopback: Any) -> None:
    server = loopback(
        response({}), response("project"), response({"email": "me", "scopes": []}), TOKEN
    )
    program = """
import anyio
from glue.providers.google import Tokens

async def main():
    tokens = Tokens()
    print(await tokens.get(), await tokens.get())

anyio.run(main)
"""
    # A new process, because the library reads its variables when it is imported.
    names = ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT")
    env = {**os.environ, **dict.fromkeys(names, f"127.0.0.1:{server.port}")}
    del env["NO_GCE_CHECK"]

    ran = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )

    assert ran.stdout == "from-server from-server\n", ran.stderr
    tokens = [request for request in server.seen if "/token" in request.line]
    assert len(tokens) == 1  # the token is reused


def external_account(home: Path, url: str) -> None:
    (home / "subject").write_text("jwt")
    account = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/token",
        "credential_source": {"file": str(home / "subject")},
    }
    (home / "login.json").write_text(json.dumps(account))


async def test_a_workload_identity_is_exchanged_for_a_token(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(TOKEN)
    external_account(home, server.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "login.json"))

    assert await Tokens().get() == "from-server"
    assert b"subject_token=jwt" in server.seen[0].body


async def test_a_failed_login_names_the_step(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response({"error": "invalid_grant"}, "400 Bad Request"))
    external_account(home, server.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "login.json"))

    with pytest.raises(ProviderError, match=r"step 'google.auth.identity_pool': .*invalid_grant"):
        await Tokens().get()


class Delegated:
    """A login of google-auth that the fake package below returns."""

    token, expiry = "", datetime(2030, 1, 1, 12)
    failure = ""

    def refresh(self, request: object) -> None:
        if self.failure:
            raise ValueError(self.failure)
        self.token += "t"


@pytest.fixture
def google_auth(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Delegated:
    """Replace google-auth by a fake; no file contains a login."""
    found = Delegated()
    auth: Any = ModuleType("google.auth")
    auth.default = lambda scopes: (found, "project")
    transport: Any = ModuleType("google.auth.transport.requests")
    transport.Request = object
    modules = {"google.auth": auth, "google.auth.transport.requests": transport}
    for name in ("google", "google.auth.transport", "requests"):
        modules[name] = ModuleType(name)
    for name, module in modules.items():
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    return found


async def test_a_token_of_google_auth_is_renewed_a_minute_before_it_expires(
    google_auth: Delegated,
) -> None:
    end = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()
    now = [end - 3600]
    tokens = Tokens(clock=lambda: now[0])

    found = []
    for moment in (end - 3600, end - 61, end - 60, end):
        now[0] = moment
        found.append(await tokens.get())

    assert found == ["t", "t", "tt", "ttt"]


async def test_a_token_of_google_auth_without_an_end_is_used_for_an_hour(
    google_auth: Delegated,
) -> None:
    google_auth.expiry = None  # type: ignore[assignment]
    now = [0.0]
    tokens = Tokens(clock=lambda: now[0])

    found = []
    for moment in (0.0, 3539.0, 3540.0):
        now[0] = moment
        found.append(await tokens.get())

    assert found == ["t", "t", "tt"]


async def test_a_named_file_that_does_not_exist_is_an_error_although_the_machine_has_a_login(
    google_auth: Delegated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/login.json")

    with pytest.raises(ConfigError, match="which does not exist"):
        await Tokens().get()


async def test_google_auth_is_not_used_without_its_http_client(
    google_auth: Delegated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)

    with pytest.raises(ConfigError, match="set VERTEX_ACCESS_TOKEN"):
        await Tokens().get()


async def test_the_error_of_google_auth_is_one_short_line(google_auth: Delegated) -> None:
    google_auth.failure = "no\n login " + "x" * 999

    with pytest.raises(ProviderError) as caught:
        await Tokens().get()

    start = f"vertex: the login failed at the step {Delegated.__module__!r}: "
    assert str(caught.value).startswith(start + "no login x")
    assert len(str(caught.value)) == len(start) + 300
    assert caught.value.kind == "auth"


async def test_no_login_at_all_names_the_variables(home: Path) -> None:
    with pytest.raises(ConfigError, match="set VERTEX_ACCESS_TOKEN"):
        await Tokens().get()
