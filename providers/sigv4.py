"""Signatures of requests to Amazon Web Services (Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote

from glue.providers.aws import Credentials

_ALGORITHM = "AWS4-HMAC-SHA256"


def sign(
    body: bytes, *, host: str, path: str, region: str, credentials: Credentials, now: str
) -> dict[str, str]:
    """Return the headers that sign a POST request to Bedrock with a JSON body.

    Args:
        body: the body as it is sent.
        host: the Host header.
        path: the path as it is sent, percent-encoded once.
        region: such as "us-east-1".
        credentials: the key pair that signs.
        now: the time in the form 20260102T030405Z.
    """
    headers = {"content-type": "application/json", "host": host, "x-amz-date": now}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    scope = f"{now[:8]}/{region}/bedrock/aws4_request"
    # Every service but S3 signs the path encoded once more than it is sent: %3A becomes %253A.
    lines = [
        "POST",
        quote(path, safe="/~"),
        "",
        *(f"{name}:{value}" for name, value in headers.items()),
    ]
    request = "\n".join([*lines, "", names, hashlib.sha256(body).hexdigest()])
    text = "\n".join([_ALGORITHM, now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    del headers["host"]  # the HTTP client sends it itself
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return headers
