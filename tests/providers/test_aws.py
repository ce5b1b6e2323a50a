"""AWS credentials and the region: in variables and files, and from logins through botocore."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glue.errors import ConfigError, MissingKey, ProviderError
from glue.providers import aws
from glue.providers.aws import Credentials, find_credentials, find_region


def test_credentials_in_variables_win_over_files(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = file\naws_secret_access_key = x\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}

    variables = find_credentials(
        {**files, "AWS_ACCESS_KEY_ID": "variable", "AWS_SECRET_ACCESS_KEY": "y"}
    )
    file = find_credentials(files)

    assert variables == Credentials("variable", "y")
    assert file == Credentials("file", "x")


def test_credentials_are_not_shown() -> None:
    shown = repr(Credentials("AKIAXYZ", "secret", "token"))

    assert shown == "Credentials(access_key=AKIA..., secret_key=***)"


def test_an_access_key_without_its_secret_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = file\naws_secret_access_key = x\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert find_credentials({**files, name: "variable"}) == Credentials("file", "x")


def test_variables_name_other_files_for_credentials_and_settings(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(
        "[work]\naws_access_key_id = a\naws_secret_access_key = b\nregion = not-read\n"
    )
    (tmp_path / "settings").write_text("[profile work]\nregion = eu-west-1\n")
    environ = {
        "AWS_PROFILE": "work",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
        "AWS_CONFIG_FILE": str(tmp_path / "settings"),
    }

    assert find_credentials(environ) == Credentials("a", "b")
    assert find_region(environ) == "eu-west-1"


def test_credentials_in_the_config_file_are_used_if_the_other_file_has_none(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id = incomplete\n")
    (tmp_path / ".aws/config").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )

    assert find_credentials({"HOME": str(tmp_path)}) == Credentials("a", "b")


def test_aws_profile_selects_the_section_of_the_file(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[work]\naws_access_key_id = a\naws_secret_access_key = b%c\naws_session_token = d\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[profile work]\nregion = eu-west-1\n[default]\nregion = us-west-2\n"
    )
    environ = {"HOME": str(tmp_path), "AWS_PROFILE": "work"}

    assert find_credentials(environ) == Credentials("a", "b%c", "d")
    assert find_region(environ) == "eu-west-1"
    assert find_region({"HOME": str(tmp_path)}) == "us-west-2"
    assert find_region({**environ, "AWS_DEFAULT_REGION": "ap-south-1"}) == "ap-south-1"


def test_no_variable_and_no_file_means_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\xff[[not a config")

    assert find_credentials({}) is None
    assert find_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "broken")}) is None
    assert find_credentials({"HOME": str(tmp_path), "AWS_PROFILE": "none"}) is None
    (tmp_path / "other").write_text("[other]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert find_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "other")}) is None
    assert find_region({}) == ""


# Logins through botocore, each against a token server on the loopback


SOON = "2099-01-01T00:00:00Z"
KEYS = {"AccessKeyId": "AKIA", "SecretAccessKey": "hush", "Token": "t", "Expiration": SOON}
ASSUMED = (
    "<{0}Response xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><{0}Result><Credentials>"
    "<AccessKeyId>AKIA</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>"
    f"<SessionToken>t</SessionToken><Expiration>{SOON}</Expiration></Credentials>"
    "</{0}Result></{0}Response>"
)


def response(body: object, status: str = "200 OK") -> bytes:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    return head.encode() + data


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without AWS files, and an environment without AWS variables."""
    pytest.importorskip("botocore", reason="the extra [aws] is not installed")
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def test_the_role_of_an_instance_is_used(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response("token"), response("my-role"), response({**KEYS, "Code": "Success"}))
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)

    assert aws.AwsLogin().get() == Credentials("AKIA", "hush", "t")
    assert server.seen[2].line.endswith("/security-credentials/my-role HTTP/1.1")


def test_the_role_of_a_container_is_used(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response(KEYS))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/role")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret")

    assert aws.has_credentials(os.environ)
    assert aws.AwsLogin().get() == Credentials("AKIA", "hush", "t")
    assert server.seen[0].headers["authorization"] == "secret"


def test_a_web_identity_is_exchanged_for_a_role(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response(ASSUMED.format("AssumeRoleWithWebIdentity")))
    (home / "identity").write_text("identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)

    assert aws.has_credentials(os.environ)
    assert aws.AwsLogin().get() == Credentials("AKIA", "hush", "t")
    assert b"WebIdentityToken=identity" in server.seen[0].body


ROLE = """
[profile base]
aws_access_key_id = a
aws_secret_access_key = b
[profile work]
role_arn = arn:aws:iam::123456789012:role/r
source_profile = base
"""


def test_a_profile_assumes_its_role(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response(ASSUMED.format("AssumeRole")))
    (home / ".aws/config").write_text(ROLE)
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)

    assert find_credentials(os.environ) is None
    assert aws.AwsLogin().get() == Credentials("AKIA", "hush", "t")
    assert "/eu-west-1/sts/aws4_request" in server.seen[0].headers["authorization"]


def test_the_error_of_a_login_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(profile: str | None) -> None:
        raise ValueError("no\n login " + "x" * 999)

    monkeypatch.setitem(sys.modules, "botocore.session", SimpleNamespace(Session=refuse))
    monkeypatch.delenv("AWS_PROFILE", raising=False)

    with pytest.raises(ProviderError) as caught:
        aws.AwsLogin().get()

    start = "bedrock: the login failed at the step 'profile': "
    assert str(caught.value).startswith(start + "no login x")
    assert len(str(caught.value)) == len(start) + 300
    assert caught.value.kind == "auth"


SSO = """
[profile work]
sso_start_url = https://acme.awsapps.com/start
sso_region = us-east-1
sso_account_id = 123456789012
sso_role_name = reader
"""


def test_a_cached_sso_login_is_exchanged_for_a_role(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"accessKeyId": "AKIA", "secretAccessKey": "hush", "sessionToken": "t"}
    server = loopback(response({"roleCredentials": {**keys, "expiration": 4_070_908_800_000}}))
    (home / ".aws/config").write_text(SSO)
    cache = home / ".aws/sso/cache"
    cache.mkdir(parents=True)
    # botocore reads the home when it is loaded.
    sso = import_module("botocore.credentials").SSOProvider
    monkeypatch.setattr(sso, "_SSO_TOKEN_CACHE_DIR", str(cache))
    name = hashlib.sha1(b"https://acme.awsapps.com/start").hexdigest()
    token = {"startUrl": "https://acme.awsapps.com/start", "accessToken": "sso", "expiresAt": SOON}
    (cache / f"{name}.json").write_text(json.dumps(token))
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", server.url)

    assert aws.AwsLogin().get() == Credentials("AKIA", "hush", "t")
    assert server.seen[0].headers["x-amz-sso_bearer_token"] == "sso"


def test_a_failed_login_names_the_profile_and_the_step(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    server = loopback(response(f"{denied}</ErrorResponse>", "403 Forbidden"))
    (home / ".aws/config").write_text(ROLE + SSO.replace("work", "sso"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)

    monkeypatch.setenv("AWS_PROFILE", "work")
    with pytest.raises(ProviderError, match=r"'work' failed at the step 'assume-role': .*Denied"):
        aws.AwsLogin().get()
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(ProviderError, match=r"'sso' failed at the step 'sso': .*does not exist"):
        aws.AwsLogin().get()
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(ProviderError, match=r"'missing' failed at the step 'profile'"):
        aws.AwsLogin().get()


def test_credentials_are_loaded_once(
    home: Path, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(response(KEYS))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/role")
    login = aws.AwsLogin()

    assert login.get() == login.get()
    assert len(server.seen) == 1


def test_no_login_at_all_names_the_variables(home: Path) -> None:
    assert not aws.has_credentials(os.environ)
    with pytest.raises(MissingKey, match="AWS_BEARER_TOKEN_BEDROCK"):
        aws.AwsLogin().get()


def test_a_profile_that_needs_botocore_says_so_without_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".aws/config").write_text(SSO)
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setitem(sys.modules, "botocore.session", None)

    with pytest.raises(ConfigError, match=r"sso_start_url of the profile 'work' needs botocore"):
        aws.AwsLogin().get()
