"""Signatures against known answers of botocore, and where credentials come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from glue.providers.aws import Credentials, find_credentials, find_region, sign

BODY = b'{"messages":[{"role":"user","content":[{"text":"hi"}]}]}'
WHO = Credentials("EXAMPLEACCESSKEYID", "EXAMPLE-secret-not-real")
HOST = "bedrock-runtime.us-east-1.amazonaws.com"


def signed(path: str, who: Credentials = WHO) -> dict[str, str]:
    return sign(BODY, host=HOST, path=path, region="us-east-1", credentials=who, now="20260102T030405Z")


@pytest.mark.parametrize(
    ("path", "signature"),
    [
        (
            "/model/us.amazon.nova-micro-v1%3A0/converse-stream",
            "54f9899c8def66919fa051cbfb335cce1a27495edad86af505e1b3250c5b5e29",
        ),
        ("/model/amazon.nova-lite/converse", "5c66c803f9c70dd5eab8425a4fee65ac78cadfb7a5ce7246c62fd1663eeebcb6"),
    ],
)
def test_signature_equals_the_known_answer(path: str, signature: str) -> None:
    headers = signed(path)

    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=EXAMPLEACCESSKEYID/20260102/us-east-1/bedrock/aws4_request, "
        f"SignedHeaders=content-type;host;x-amz-date, Signature={signature}"
    )
    assert headers["x-amz-date"] == "20260102T030405Z"
    assert "host" not in headers


def test_session_token_is_sent_and_signed() -> None:
    headers = signed("/model/m/converse", WHO._replace(token="of-a-session"))

    assert headers["x-amz-security-token"] == "of-a-session"
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token," in headers["authorization"]


def test_secret_is_in_no_repr_and_no_header() -> None:
    assert WHO.secret_key not in repr(WHO)
    assert WHO.secret_key not in str(signed("/model/m/converse"))


def test_variables_come_before_files(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = file\naws_secret_access_key = x\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}

    variables = find_credentials({**files, "AWS_ACCESS_KEY_ID": "variable", "AWS_SECRET_ACCESS_KEY": "y"})
    file = find_credentials(files)

    assert variables == Credentials("variable", "y")
    assert file == Credentials("file", "x")


def test_profile_names_the_section(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[work]\naws_access_key_id = a\naws_secret_access_key = b%c\naws_session_token = d\n"
    )
    (tmp_path / ".aws/config").write_text("[profile work]\nregion = eu-west-1\n[default]\nregion = us-west-2\n")
    environ = {"HOME": str(tmp_path), "AWS_PROFILE": "work"}

    assert find_credentials(environ) == Credentials("a", "b%c", "d")
    assert find_region(environ) == "eu-west-1"
    assert find_region({"HOME": str(tmp_path)}) == "us-west-2"
    assert find_region({**environ, "AWS_DEFAULT_REGION": "ap-south-1"}) == "ap-south-1"


def test_nothing_set_is_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\xff[[not a config")

    assert find_credentials({}) is None
    assert find_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "broken")}) is None
    assert find_credentials({"HOME": str(tmp_path), "AWS_PROFILE": "none"}) is None
    assert find_region({}) == ""
