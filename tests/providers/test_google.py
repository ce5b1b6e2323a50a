"""Access tokens for Google Cloud, from variables and files of credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glue.errors import ConfigError, ProviderError
from glue.providers.google import Tokens


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
