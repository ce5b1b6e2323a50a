"""Find secrets in text, and replace the secrets with a mask.

There are three levels, from fast to thorough:

- `mask_values` replaces values that the caller passes.
- `mask_secrets` replaces the secrets of the environment, and text that has the form of a well-known
  kind of key. It is for logs, cassettes and traces.
- `Redactor` also finds encoded, reversed, split and partial values, and tokens that look random. It
  is for text that will be published and that an attacker may have written. No list of encodings is
  complete, so a redactor reduces leaks but cannot exclude them.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias
from urllib.parse import unquote

from glue.codec import Json

MASK = "***"
SHORTEST = 8  # characters; shorter values of variables are not treated as secrets
WINDOW = 12  # characters; a part of this length of a longer secret is already a leak

Span: TypeAlias = tuple[int, int]  # start and end of a piece of a text
View: TypeAlias = tuple[str, list[Span]]  # a text, and the original span of each of its characters


# Names of variables -------------------------------------------------------------------------------

_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|COOKIE|WEBHOOK|BEARER|JWT"
    r"|KEY$|PASS$"
    r"|(?:^|[_.-])(?:PASS|PWD|PW|KEYS?|AUTH|AUTHORIZATION|SESSION|DSN|SIGNATURE|SALT|CERT|CREDS|PAT)"
    r"(?:$|[_.\d-])"
    r"|(?:DATABASE|DB|MONGO|MONGODB|REDIS|AMQP|POSTGRES|MYSQL|CONNECTION)_?(?:URL|URI|STRING)",
    re.IGNORECASE,
)
_HARMLESS = (
    "PWD OLDPWD SSH_AUTH_SOCK XAUTHORITY GPG_KEY_ID DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID"
    " XDG_SESSION_TYPE XDG_SESSION_CLASS XDG_SESSION_DESKTOP DESKTOP_SESSION SESSION_MANAGER"
    " GIT_ASKPASS SSH_ASKPASS TERM_SESSION_ID SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE"
    " CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"
)
_NOT_SECRET = frozenset(_HARMLESS.split())


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name usually holds a secret, such as GITHUB_TOKEN."""
    return name not in _NOT_SECRET and _NAME.search(name) is not None


# Shapes of well-known keys ------------------------------------------------------------------------


class _Shape(NamedTuple):
    """A kind of key: a row of `secrets.txt`. The comment in that file explains the columns."""

    name: str
    report: str
    pattern: str


def _joined(shapes: Sequence[_Shape]) -> re.Pattern[str]:
    r"""Join the patterns of `shapes` to a regular expression that matches each kind of key.

    The alternatives that begin with `\b` share one `\b`, which makes the search much faster.
    """
    words = [shape.pattern[2:] for shape in shapes if shape.pattern.startswith(r"\b")]
    others = [shape.pattern for shape in shapes if not shape.pattern.startswith(r"\b")]
    return re.compile("|".join([rf"\b(?:{'|'.join(words)})", *others]))


_LINES = Path(__file__).with_name("secrets.txt").read_text(encoding="utf-8").splitlines()
_TABLE = [_Shape(*line.split("  ")) for line in _LINES if not line.startswith("#")]
_SHAPES = _joined(_TABLE)


def find_secrets(text: str) -> list[Span]:
    """Return the start and end of each part of the text that looks like a known kind of key."""
    return [match.span() for match in _SHAPES.finditer(text)]


def name_secrets(text: str) -> list[str]:
    """Return the kinds of keys that the text certainly contains, such as "a GitHub token".

    Kinds of keys that look like harmless text are ignored, so the result can be reported to users.
    """
    shapes, pattern = _reportable()
    names: list[str] = []
    for key in pattern.findall(text):
        shape = next(shape for shape in shapes if re.fullmatch(shape.pattern, key))
        if shape.report == "always" or re.fullmatch(shape.report, key):
            names.append(shape.name)
    return names


@cache
def _reportable() -> tuple[list[_Shape], re.Pattern[str]]:
    """Return the kinds of keys that `name_secrets` may report, and one pattern for all of them.

    The pattern does not match other kinds: a match of `Bearer` would hide the key after this word.
    """
    shapes = [shape for shape in _TABLE if shape.report != "never"]
    return shapes, _joined(shapes)


# The fast mask ------------------------------------------------------------------------------------


def mask_values(text: str, values: Iterable[str], mask: str = MASK) -> str:
    """Return the text with each of the values replaced by `mask`, in the order of `values`."""
    for value in values:
        text = text.replace(value, mask)
    return text


def mask_secrets(value: Json) -> Json:
    """Return a copy of a JSON value in which a mask replaces the secrets in all string values.

    The keys of objects are not changed.
    Secrets are the values of environment variables with names such as A_TOKEN, in plain form and
    with the escapes of JSON, and texts that look like a well-known key.

    >>> mask_secrets({"header": "Bearer sk-proj-1234567890abcdefghij"})
    {'header': '***'}
    """
    named = {
        item for name, item in os.environ.items() if len(item) >= SHORTEST and is_secret_name(name)
    }
    # Twice: the arguments of a tool call are JSON inside a JSON string.
    for _ in range(2):
        named |= {_in_json(item, escape=escape) for item in named for escape in (True, False)}
    secrets = sorted(named, key=len, reverse=True)

    def hide(value: Json) -> Json:
        if isinstance(value, str):
            return _SHAPES.sub(MASK, mask_values(value, secrets))
        if isinstance(value, Mapping):
            return {key: hide(item) for key, item in value.items()}
        return [hide(item) for item in value] if isinstance(value, (list, tuple)) else value

    return hide(value)


def _in_json(text: str, *, escape: bool) -> str:
    return json.dumps(text, ensure_ascii=escape)[1:-1]


# The thorough redactor ----------------------------------------------------------------------------

_TOKEN = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_=-]{24,}(?![\w+/-])")
_ESCAPE = re.compile(
    r"%[0-9a-fA-F]{2}|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,10});|\\x[0-9a-fA-F]{2}"
    r"|\\u\{?[0-9a-fA-F]{4,6}\}?|\\[0-3][0-7]{2}|=[0-9A-F]{2}(?![\w=])"
)
_HEX = re.compile("0[xX]")
_NO_LETTER = re.compile("[^a-z0-9]+")
_TAGS = re.compile(r"<[^<>\n]{0,80}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """A finder of secrets in text that will be published; `redact` replaces them with a mask.

    Text and secrets are compared as letters and digits only, so a value that is split by spaces,
    dashes, backticks or zero-width characters is still found.

    >>> redactor = Redactor.from_environment({"A_TOKEN": "correct horse battery"})
    >>> redactor.redact("it is correct-horse-battery")
    'it is ***'
    """

    needles: frozenset[str] = field(default=frozenset(), repr=False)  # encoded values, folded
    windows: frozenset[str] = field(default=frozenset(), repr=False)  # parts of long values
    mask: str = MASK

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *values: str, mask: str = MASK) -> Self:
        """Return a redactor for `values` and for variables in `environ` named like A_TOKEN.

        A plain value with fewer than 8 letters and digits is not found.
        """
        secrets = {value for value in values if value}
        for name, value in environ.items():
            if is_secret_name(name):
                secrets |= set(_parts_of(value))
        needles: set[str] = set()
        windows: set[str] = set()
        for value in secrets:
            has_parts = len(value) >= 20 and _is_mixed(value)
            for form in _forms(value):
                folded = _folded(form)
                if len(folded) < SHORTEST:
                    continue
                needles.add(folded)
                if has_parts and len(folded) >= 2 * WINDOW - 4:
                    windows |= {folded[at : at + WINDOW] for at in range(len(folded) - WINDOW + 1)}
        return cls(needles=frozenset(needles), windows=frozenset(windows), mask=mask)

    def redact(self, text: str) -> str:
        """Return the text with the mask in place of all secrets that `find` finds."""
        return self.cover(text, self.find(text))

    def redact_values(self, text: str) -> str:
        """Return the text with a mask in place of each known value, also in its encoded forms."""
        return self.cover(text, self.find_values(text))

    def find(self, text: str) -> list[Span]:
        """Return the start and end of each secret in the text.

        Secrets are the known values, well-known kinds of keys, and tokens that look random.
        """
        leaks = self.find_values(text)
        for view, spans in _views(text):
            found = find_secrets(view)
            leaks += [(spans[start][0], spans[end - 1][1]) for start, end in found]
        tokens = _TOKEN.finditer(text)
        return leaks + [match.span() for match in tokens if is_random_looking(match.group())]

    def find_values(self, text: str) -> list[Span]:
        """Return the start and end of each known secret in the text, and of parts of long secrets.

        A part has WINDOW characters. Secrets are found in plain form and in encoded forms.
        """
        leaks: list[Span] = []
        for view, spans in _projections(text) if self.needles else ():
            if view.isascii() and not self._occurs_in(_NO_LETTER.sub("", view.lower())):
                continue  # most texts: they need no list of places
            letters, places = _letters_and_digits(view, spans)
            for needle in self.needles:
                at = letters.find(needle)
                while at >= 0:
                    leaks.append((places[at][0], places[at + len(needle) - 1][1]))
                    at = letters.find(needle, at + 1)
            starts = range(len(letters) - WINDOW + 1) if self.windows else ()
            found = (at for at in starts if letters[at : at + WINDOW] in self.windows)
            leaks += [(places[at][0], places[at + WINDOW - 1][1]) for at in found]
        return leaks

    def _occurs_in(self, letters: str) -> bool:
        starts = range(len(letters) - WINDOW + 1) if self.windows else ()
        parts = (letters[at : at + WINDOW] for at in starts)
        return any(each in letters for each in self.needles) or not self.windows.isdisjoint(parts)

    def cover(self, text: str, leaks: Iterable[Span]) -> str:
        """Return the text with the mask in place of each span in `leaks`.

        A span is a start and an end in the text. Spans that overlap are replaced with one mask.
        """
        out: list[str] = []
        at = 0
        for start, end in sorted(leaks):
            if start >= at:
                out += [text[at:start], self.mask]
            at = max(at, end)
        return "".join([*out, text[at:]])


def is_random_looking(token: str) -> bool:
    """Return whether a token looks like a random key rather than a name, path or commit id."""
    body = token.strip("=_-/+")
    if len(body) < 24 or re.fullmatch(r"[0-9a-f]{24,}|[0-9A-F]{24,}", body):
        is_object_id = len(body) in (40, 64) and body.islower()
        return len(body) >= 32 and not is_object_id
    if not (re.search(r"[0-9]", body) and re.search(r"[a-z]", body) and re.search(r"[A-Z]", body)):
        return False
    words = re.findall(r"[a-z]+|[A-Z]{2,}", body)
    if any(len(word) > 8 for word in words) or body.count("/") > 2:
        return False  # words in camel case or snake case, or a path
    return _entropy(body) > 3.9


def _parts_of(value: str) -> list[str]:
    """Return the secrets in the value of a variable: the value, and parts such as a password.

    Parts are the lines of a key file, the password in a URL, and the strings of a JSON object.
    Secrets that are shorter than 8 characters are left out.
    """
    parts = [value.strip()]
    if "\n" in value:
        lines = [line.strip() for line in value.splitlines()]
        parts += [line for line in lines if len(line) >= 16 and "-----" not in line]
    if match := re.search(r"://[^/\s:@]*:([^/\s@]{4,})@", value):  # the password in a URL
        parts += [match.group(1), unquote(match.group(1))]
    if value.lstrip().startswith("{"):  # a service account as JSON
        parts += [text for text in re.findall(r'"((?:[^"\\]|\\.){16,})"', value) if _is_mixed(text)]
    return [part for part in parts if len(part) >= SHORTEST]


def _forms(value: str) -> set[str]:
    """Return the value and its reverse in all encodings that `Redactor` searches for."""
    forms: set[str] = set()
    for text in (value, value[::-1]):
        raw = _raw(text)
        forms |= {text, raw.hex(), codecs.encode(text, "rot13"), "".join(str(byte) for byte in raw)}
        forms |= {"".join(f"{byte:o}" for byte in raw), "".join(f"{byte:08b}" for byte in raw)}
        forms |= set(_base64_forms(raw))
        forms |= set(_base64_forms(raw.hex().encode()))
        forms |= set(_base64_forms(base64.b64encode(raw)))
        forms.add(base64.b32encode(raw).decode().rstrip("=")[: len(raw) * 8 // 5])
        for encode in (base64.a85encode, base64.b85encode):
            forms.add(encode(raw)[: len(raw) // 4 * 5].decode())
        for wide in (text.encode("utf-16-le", "replace"), text.encode("utf-16-be", "replace")):
            forms |= {wide.hex(), *_base64_forms(wide)}
        forms.add(base64.b64encode(raw).decode().rstrip("=")[::-1])
        forms.add(raw.hex()[::-1])
    return forms


def _raw(text: str) -> bytes:
    """Return the bytes of a text from the environment, which may contain invalid UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _base64_forms(raw: bytes) -> Iterable[str]:
    """Yield the three forms that `raw` can have inside the base64 of a longer byte string.

    The forms differ because base64 encodes groups of three bytes. Characters at the start and the
    end that also depend on the bytes before and after `raw` are left out.
    """
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        first = -(-8 * shift // 6)
        last = 8 * (shift + len(raw)) // 6
        yield text[first:last]


def _is_mixed(value: str) -> bool:
    """Return whether a value has digits and letters, and more than 2.5 bits of entropy."""
    has_both = re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value)
    return bool(has_both) and _entropy(value) > 2.5


def _entropy(text: str) -> float:
    """Return the Shannon entropy of a text, in bits per character."""
    shares = [text.count(char) / len(text) for char in set(text)]
    return -sum(share * math.log2(share) for share in shares)


def _folded(text: str) -> str:
    normal = unicodedata.normalize("NFKD", text).casefold()  # marks of letters are left out
    return "".join(char for char in normal if char.isalnum())


def _views(text: str) -> list[View]:
    """Return a text without invisible characters, and up to three copies with decoded escapes.

    Each copy is the text or copy before it with its escapes decoded, because decoding can produce
    new escapes. With each of them, the original span of each character is returned.
    """
    kept: Sequence[int] = range(len(text))
    if not text.isascii():
        kept = [at for at in kept if unicodedata.category(text[at]) != "Cf"]
    views: list[View] = [("".join([text[at] for at in kept]), [(at, at + 1) for at in kept])]
    for _ in range(3):
        decoded = _decode_escapes(*views[-1])
        if decoded[0] == views[-1][0]:
            break
        views.append(decoded)
    return views


def _decode_escapes(text: str, spans: list[Span]) -> View:
    out: list[str] = []
    places: list[Span] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        decoded = _unescape(match.group())
        out += [text[at : match.start()], decoded]
        places += spans[at : match.start()]
        places += [(spans[match.start()][0], spans[match.end() - 1][1])] * len(decoded)
        at = match.end()
    return "".join([*out, text[at:]]), [*places, *spans[at:]]


def _unescape(token: str) -> str:
    if token.startswith("&"):
        import html  # for start-up time: its table of entities is large

        return html.unescape(token)
    if token.startswith("\\") and token[1] not in "xu":
        return chr(int(token[1:], 8))
    point = int(token.lstrip("%=\\xu").strip("{}") or "0", 16)
    return chr(point) if point < 0x110000 else "\ufffd"


def _projections(text: str) -> list[View]:
    """Return the text, its decoded copies, and copies without `0x` prefixes or tags, as views.

    Such prefixes and tags may separate the characters of a secret.
    """
    views = _views(text)
    bare, places = views[0]
    for pattern in (_HEX, _TAGS):
        gone = {at for match in pattern.finditer(bare) for at in range(*match.span())}
        if gone:
            kept = [at for at in range(len(bare)) if at not in gone]
            views.append(("".join(bare[at] for at in kept), [places[at] for at in kept]))
    return views


def _letters_and_digits(text: str, spans: list[Span]) -> View:
    """Return a view of only the letters and digits of a text, with the letters in lower case."""
    folded: Sequence[str] = text.lower()
    if not text.isascii():
        folded = [unicodedata.normalize("NFKD", char).casefold() for char in text]
    letters: list[str] = []
    places: list[Span] = []
    for several, span in zip(folded, spans, strict=True):
        for letter in several:
            if letter.isalnum():
                letters.append(letter)
                places.append(span)
    return "".join(letters), places
