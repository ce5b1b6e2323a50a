"""Signatures compared with signatures that botocore computed."""

from __future__ import annotations

import pytest

from glue.providers.aws import Credentials
from glue.providers.sigv4 import sign

BODY = b'{"messages":[{"role":"user","content":[{"text":"hi"}]}]}'
WHO = Credentials("EXAMPLEACCESSKEYID", "EXAMPLE-secret-not-real")
HOST = "bedrock-runtime.us-east-1.amazonaws.com"


def signed(path: str, who: Credentials = WHO) -> dict[str, str]:
    return sign(
        BODY, host=HOST, path=path, region="us-east-1", credentials=who, now="20260102T030405Z"
    )


@pytest.mark.parametrize(
    ("path", "signature"),
    [
        (
            "/model/us.amazon.nova-micro-v1%3A0/converse-stream",
            "54f9899c8def66919fa051cbfb335cce1a27495edad86af505e1b3250c5b5e29",
        ),
        (
            "/model/amazon.nova-lite/converse",
            "5c66c803f9c70dd5eab8425a4fee65ac78cadfb7a5ce7246c62fd1663eeebcb6",
        ),
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
    assert (
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"
        in headers["authorization"]
    )


def test_the_secret_is_not_in_reprs_or_headers() -> None:
    assert WHO.secret_key not in repr(WHO)
    assert WHO.secret_key not in str(signed("/model/m/converse"))
