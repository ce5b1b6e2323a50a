"""Amazon Web Services: credentials, request signatures (SigV4) and the framing of event streams."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

from glue.errors import ProviderError

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key[:4]}..., secret_key=***)"


def sign(body: bytes, *, host: str, path: str, region: str, credentials: Credentials, now: str) -> dict[str, str]:
    """Give the headers that sign a POST of JSON; `path` as it is sent, `now` like 20260102T030405Z."""
    headers = {"content-type": "application/json", "host": host, "x-amz-date": now}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    scope = f"{now[:8]}/{region}/bedrock/aws4_request"
    # Every service but S3 signs the path encoded once more than it is sent: %3A becomes %253A.
    lines = ["POST", quote(path, safe="/~"), "", *(f"{name}:{value}" for name, value in headers.items())]
    request = "\n".join([*lines, "", names, hashlib.sha256(body).hexdigest()])
    text = "\n".join([_ALGORITHM, now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    del headers["host"]  # the HTTP client sends it itself
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def find_credentials(environ: Mapping[str, str]) -> Credentials | None:
    """Look in the variables first, then in ~/.aws/credentials and ~/.aws/config; None where there are none."""
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return Credentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    for section in (_section(environ, "credentials"), _section(environ, "config")):
        if "aws_access_key_id" in section and "aws_secret_access_key" in section:
            token = section.get("aws_session_token", "")
            return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"], token)
    return None


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Say whether requests can be signed: a token or keys, in variables or in the files of the AWS tools."""
    return bool(environ.get("AWS_BEARER_TOKEN_BEDROCK")) or find_credentials(environ) is not None


def find_region(environ: Mapping[str, str]) -> str:
    """Look in the variables first, then in the config file; empty where none is set."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return region or _section(environ, "config").get("region", "")


def _section(environ: Mapping[str, str], file: str) -> Mapping[str, str]:
    """Read the profile's section in one of the two files of the AWS tools; all but one have a prefix in the config."""
    from configparser import Error, RawConfigParser
    from pathlib import Path

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


PRELUDE = 12  # total length, length of the headers, CRC of both
OVERHEAD = PRELUDE + 4  # and the CRC of the whole frame
LIMIT = 16 * 1024 * 1024 + 128 * 1024 + OVERHEAD  # the largest payload and headers that AWS allows

# Types of header values that have a fixed size; 6 and 7 (bytes, string) carry a two-byte length.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _STRING = 6, 7


class Frame(NamedTuple):
    headers: dict[str, str]  # those of type string; nobody sends others that matter
    payload: bytes


class EventStream:
    """Cuts a stream of bytes into checked frames; a body that is JSON instead is kept for `body`."""

    stray = b""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._buffer = bytearray()
        self._fresh = True
        self.is_body = False

    def feed(self, block: bytes) -> Iterator[Frame]:
        """Give the frames that are whole by now; a damaged one raises after those before it."""
        self._buffer += block
        if self._fresh and block:
            self._fresh = False
            self.is_body = block.lstrip()[:1] == b"{"  # no frame can begin so: it would be two gigabytes long
        if self.is_body:
            return
        start = 0
        try:
            while len(self._buffer) - start >= PRELUDE:
                total, headers, checksum = struct.unpack_from(">III", self._buffer, start)
                if crc32(memoryview(self._buffer)[start : start + 8]) != checksum:
                    raise self._error("the checksum of a frame's first bytes is wrong")
                if not OVERHEAD <= total <= LIMIT or headers > total - OVERHEAD:
                    raise self._error(f"a frame says it has {total} bytes with {headers} of headers")
                if len(self._buffer) - start < total:
                    break
                frame = bytes(memoryview(self._buffer)[start : start + total])
                start += total
                yield self._frame(frame, PRELUDE + headers)
        finally:
            del self._buffer[:start]

    def _frame(self, frame: bytes, end: int) -> Frame:
        if crc32(memoryview(frame)[:-4]) != struct.unpack(">I", frame[-4:])[0]:
            raise self._error("the checksum of a frame is wrong")
        try:
            return Frame(_headers(frame[PRELUDE:end]), frame[end:-4])
        except (IndexError, UnicodeDecodeError, struct.error):
            raise self._error("the headers of a frame cannot be read") from None

    @property
    def body(self) -> bytes | None:
        """The whole body, where it is JSON instead of frames."""
        return bytes(self._buffer) if self.is_body else None

    def end(self) -> tuple[Frame, ...]:
        """Raise where the stream ended inside a frame; else nothing is left."""
        if self._buffer:
            raise self._error(f"the stream ended inside a frame ({len(self._buffer)} bytes of it came)")
        return ()

    def _error(self, text: str) -> ProviderError:
        return ProviderError(f"damaged event stream: {text}", kind="protocol", provider=self._provider)


def _headers(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        name_end = at + 1 + block[at]
        name = block[at + 1 : name_end].decode()
        kind = block[name_end]
        at = name_end + 1
        if kind in (_BYTES, _STRING):
            (size,) = struct.unpack_from(">H", block, at)
            at += 2
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise IndexError(kind)
        if at + size > len(block):
            raise IndexError(at)
        if kind == _STRING:
            found[name] = block[at : at + size].decode()
        at += size
    return found
