"""Access tokens for Azure OpenAI from Entra, through azure-identity."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from glue import providers
from glue.errors import MissingKey, ProviderError
from glue.messages import Request, user
from glue.provider import ask
from glue.providers import azure

TENANT = "11111111-2222-3333-4444-555555555555"


def response(body: object, status: str = "200 OK") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with the credentials of a client, and without a key."""
    pytest.importorskip("azure.identity", reason="the extra [azure] is not installed")
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", "66666666-7777-8888-9999-000000000000")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "hush")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("entra")
    options = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(["openssl", *options.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def entra(client: None, loopback: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a token server on the loopback that Entra's library trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate / "cert.pem"))

    def start(token: bytes) -> Any:
        where = f"/{TENANT}/oauth2/v2.0"

        def answer(connection: Any) -> bool:
            line = server.seen[-1].line
            url = server.url + where
            known = {
                "token_endpoint": f"{url}/token",
                "authorization_endpoint": f"{url}/authorize",
                "issuer": f"{server.url}/{TENANT}/v2.0",
            }
            connection.sendall(response(known) if "openid-configuration" in line else token)
            return False

        server = loopback(answer, context=context)
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", server.url)
        return server

    return start


async def test_client_credentials_are_exchanged_for_a_token(
    entra: Any, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = entra(response({"access_token": "from-entra", "expires_in": 3600}))
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    model = loopback(head % len(body) + body)
    provider = providers.new("azure:gpt-4o", base_url=model.url)

    for _ in range(2):
        reply = await ask(provider, Request(messages=(user("hi"),)))
    await provider.aclose()  # type: ignore[attr-defined]

    assert providers.key_available("azure")
    assert reply is not None
    assert reply.text == "ok"
    assert [seen.headers["authorization"] for seen in model.seen] == ["Bearer from-entra"] * 2
    tokens = [seen for seen in server.seen if "/token" in seen.line]
    assert len(tokens) == 1
    assert b"cognitiveservices.azure.com" in tokens[0].body


async def test_a_refused_login_is_an_auth_error_that_names_what_was_tried(entra: Any) -> None:
    refused = {"error": "invalid_client", "error_description": "AADSTS7000215: wrong secret"}
    entra(response(refused, "401 Unauthorized"))

    with pytest.raises(ProviderError, match=r"EnvironmentCredential.*AADSTS7000215") as caught:
        await azure.Login().headers()

    assert caught.value.kind == "auth"


class Credential:
    """A stand-in for azure-identity: each token ends an hour after the time of the request."""

    def __init__(self, *, disable_instance_discovery: bool) -> None:
        Credential.private = disable_instance_discovery
        Credential.made += 1

    private, made, failure = False, 0, ""
    scopes: ClassVar[list[str]] = []

    def get_token(self, scope: str) -> Any:
        if self.failure:
            raise ValueError(self.failure)
        self.scopes.append(scope)
        return SimpleNamespace(
            token=f"token-{len(self.scopes)}", expires_on=int(time.time()) + 3600
        )


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace azure-identity, and stop the clock."""
    module = SimpleNamespace(DefaultAzureCredential=Credential)
    monkeypatch.setitem(sys.modules, "azure", SimpleNamespace(identity=module))
    monkeypatch.setitem(sys.modules, "azure.identity", module)
    monkeypatch.delenv("AZURE_AUTHORITY_HOST", raising=False)
    for name, value in (("made", 0), ("scopes", []), ("failure", "")):
        monkeypatch.setattr(Credential, name, value)
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)


@pytest.mark.parametrize(("after", "used"), [(0, 1), (3539, 1), (3540, 1), (3541, 2), (9999, 2)])
async def test_a_token_is_reused_until_a_minute_before_it_expires(
    identity: None, monkeypatch: pytest.MonkeyPatch, after: int, used: int
) -> None:
    login = azure.Login()

    assert await login.headers() == {"authorization": "Bearer token-1"}
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0 + after)
    assert await login.headers() == {"authorization": f"Bearer token-{used}"}

    assert Credential.made == 1
    assert Credential.scopes == ["https://cognitiveservices.azure.com/.default"] * used


@pytest.mark.parametrize(("host", "private"), [("", False), ("https://login.example", True)])
async def test_a_private_cloud_is_not_looked_up_at_microsoft(
    identity: None, monkeypatch: pytest.MonkeyPatch, host: str, private: bool
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", host)

    await azure.Login().headers()

    assert Credential.private == private


async def test_the_error_of_a_login_is_one_short_line(
    identity: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Credential, "failure", "no\n login " + "x" * 999)

    with pytest.raises(ProviderError) as caught:
        await azure.Login().headers()

    start = "azure: AZURE_OPENAI_API_KEY is not set, and the Entra login failed: no login "
    assert str(caught.value).startswith(start + "x")
    assert len(str(caught.value)) == len(start) - len("no login ") + 600
    assert caught.value.kind == "auth"


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (("TENANT_ID", "CLIENT_ID"), False),
        (("CLIENT_SECRET",), False),
        (("TENANT_ID", "CLIENT_SECRET"), False),
        (("CLIENT_ID", "CLIENT_SECRET"), False),
        (("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"), True),
        (("TENANT_ID", "CLIENT_ID", "CLIENT_CERTIFICATE_PATH"), True),
        (("TENANT_ID", "CLIENT_ID", "FEDERATED_TOKEN_FILE"), True),
    ],
)
def test_an_identity_is_configured_by_three_variables(
    client: None, names: tuple[str, ...], known: bool
) -> None:
    assert azure.has_credentials({f"AZURE_{name}": "x" for name in names}) == known


def test_the_package_is_not_installed_if_its_namespace_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "azure.identity", raising=False)
    monkeypatch.setitem(sys.modules, "azure", None)

    assert not azure.is_installed()


def test_without_the_package_the_key_is_required(
    client: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure, "is_installed", lambda: False)

    assert not providers.key_available("azure")
    with pytest.raises(MissingKey, match="AZURE_OPENAI_API_KEY"):
        providers.new("azure:gpt-4o", base_url="https://acme.example")
