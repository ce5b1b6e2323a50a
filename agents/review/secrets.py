"""Redaction of secrets in reviews: exact values in many encodings, known shapes, odd-looking tokens.

Text and needles are compared as letters and digits alone, so that a value split by blanks, dashes, backticks or
zero-width characters is still seen. No list of encodings is complete: see SAFETY.md, "Not promised".
"""

from __future__ import annotations

import base64
import codecs
import html
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import glue

SHORTEST = 8  # of an environment value that counts as a secret
WINDOW = 12  # so many characters in a row of a longer secret already count as a leak
MASK = "[redacted]"

_TOKEN = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_=-]{24,}(?![\w+/-])")
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,10});|\\x[0-9a-fA-F]{2}"
                     r"|\\u\{?[0-9a-fA-F]{4,6}\}?|\\[0-3][0-7]{2}|=[0-9A-F]{2}(?![\w=])")  # fmt: skip
_HEX = re.compile("0[xX]")
_TAGS = re.compile(r"<[^<>\n]{0,80}>")
Span = tuple[int, int]
View = tuple[str, list[Span]]  # a text, and where in the original each of its characters stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """What is known to be secret, in every form it is looked for. What it finds are places in a text."""

    needles: frozenset[str] = field(default=frozenset(), repr=False)
    windows: frozenset[str] = field(default=frozenset(), repr=False)

    def exact(self, text: str) -> list[Span]:
        """Find known values, whole or in part, in any of the encodings."""
        leaks: list[Span] = []
        for letters, places in _projections(text) if self.needles else ():
            for needle in self.needles:
                at = letters.find(needle)
                while at >= 0:
                    leaks.append((places[at][0], places[at + len(needle) - 1][1]))
                    at = letters.find(needle, at + 1)
            parts = range(len(letters) - WINDOW + 1 if self.windows else 0)
            found = (at for at in parts if letters[at : at + WINDOW] in self.windows)
            leaks += [(places[at][0], places[at + WINDOW - 1][1]) for at in found]
        return leaks

    def find(self, text: str) -> list[Span]:
        """Find known values, well-known shapes, and tokens too random to be words."""
        leaks = self.exact(text)
        for view, spans in _views(text):
            leaks += [(spans[start][0], spans[end - 1][1]) for start, end in glue.find_secrets(view)]
        return leaks + [match.span() for match in _TOKEN.finditer(text) if random_looking(match.group())]

    def redact(self, text: str) -> str:
        """Replace whatever must not leave."""
        return mask(text, self.find(text))


def redactor(environ: Mapping[str, str], *extra: str) -> Redactor:
    """Learn the secrets of this process: values of variables with a secret-looking name, and `extra` ones."""
    values = {value for value in extra if value}
    for name, value in environ.items():
        if glue.is_secret_name(name):
            values |= set(_parts_of(value))
    needles: set[str] = set()
    windows: set[str] = set()
    for value in values:
        split = len(value) >= 20 and _mixed(value)
        for form in _forms(value):
            folded = "".join(char for char in unicodedata.normalize("NFKC", form).casefold() if char.isalnum())
            if len(folded) < SHORTEST:
                continue
            needles.add(folded)
            if split and len(folded) >= 2 * WINDOW - 4:
                windows |= {folded[at : at + WINDOW] for at in range(len(folded) - WINDOW + 1)}
    return Redactor(needles=frozenset(needles), windows=frozenset(windows))


def random_looking(token: str) -> bool:
    """Tell whether a token is more random than names and words are."""
    body = token.strip("=_-/+")
    if len(body) < 24 or re.fullmatch(r"[0-9a-f]{24,}|[0-9A-F]{24,}", body):
        return len(body) >= 32 and not (len(body) in (40, 64) and body.islower())  # commit and blob ids stay
    if not (re.search(r"[0-9]", body) and re.search(r"[a-z]", body) and re.search(r"[A-Z]", body)):
        return False
    if max((len(word) for word in re.findall(r"[a-z]+|[A-Z]{2,}", body)), default=0) > 8 or body.count("/") > 2:
        return False  # words in camel case, snake case, paths
    return _entropy(body) > 3.9


def mask(text: str, leaks: Iterable[Span]) -> str:
    """Replace the named places, merged where they touch."""
    out: list[str] = []
    at = 0
    for start, end in sorted(leaks):
        if start >= at:
            out += [text[at:start], MASK]
        at = max(at, end)
    return "".join([*out, text[at:]])


def _parts_of(value: str) -> list[str]:
    parts = [value.strip()]
    if "\n" in value:
        parts += [row.strip() for row in value.splitlines() if len(row.strip()) >= 16 and "-----" not in row]
    if match := re.search(r"://[^/\s:@]*:([^/\s@]{4,})@", value):
        parts += [match.group(1), unquote(match.group(1))]
    if value.lstrip().startswith("{"):  # a service account as JSON
        parts += [text for text in re.findall(r'"((?:[^"\\]|\\.){16,})"', value) if _mixed(text)]
    return [part for part in parts if len(part) >= SHORTEST]


def _forms(value: str) -> set[str]:
    """Every way a value is looked for, before folding."""
    forms: set[str] = set()
    for text in (value, value[::-1]):
        raw = _raw(text)
        forms |= {text, raw.hex(), codecs.encode(text, "rot13"), "".join(str(byte) for byte in raw)}
        forms |= {"".join(f"{byte:o}" for byte in raw), "".join(f"{byte:08b}" for byte in raw)}
        forms |= set(_aligned(raw))
        forms |= set(_aligned(raw.hex().encode()))
        forms |= set(_aligned(base64.b64encode(raw)))
        forms.add(base64.b32encode(raw).decode().rstrip("=")[: len(raw) * 8 // 5])
        forms |= {encode(raw)[: len(raw) // 4 * 5].decode() for encode in (base64.a85encode, base64.b85encode)}
        for wide in (text.encode("utf-16-le", "replace"), text.encode("utf-16-be", "replace")):
            forms |= {wide.hex(), *_aligned(wide)}
        forms.add(base64.b64encode(raw).decode().rstrip("=")[::-1])
        forms.add(raw.hex()[::-1])
    return forms


def _raw(text: str) -> bytes:
    """Give the bytes of a value; the environment may hold some that are no text."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _aligned(raw: bytes) -> Iterable[str]:
    """Base64 of bytes that stand at any offset of a longer text, without the characters their neighbours touch."""
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        first = -(-8 * shift // 6)
        last = 8 * (shift + len(raw)) // 6
        yield text[first:last]


def _mixed(value: str) -> bool:
    return bool(re.search(r"[0-9]", value)) and bool(re.search(r"[A-Za-z]", value)) and _entropy(value) > 2.5


def _entropy(text: str) -> float:
    return -sum((n := text.count(char) / len(text)) * math.log2(n) for char in set(text)) if text else 0.0


def _views(text: str) -> list[View]:
    """The text without invisible characters, then with its escapes undone, each with places in the original."""
    kept = [at for at, char in enumerate(text) if char.isascii() or unicodedata.category(char) != "Cf"]
    views: list[View] = [("".join(text[at] for at in kept), [(at, at + 1) for at in kept])]
    for _ in range(3):
        undone = _undo(*views[-1])
        if undone[0] == views[-1][0]:
            break
        views.append(undone)
    return views


def _undo(text: str, spans: list[Span]) -> View:
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
        return html.unescape(token)
    if token.startswith("\\") and token[1] not in "xu":
        return chr(int(token[1:], 8))
    point = int(token.lstrip("%=\\xu").strip("{}") or "0", 16)
    return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd"


def _projections(text: str) -> list[View]:
    """Letters and digits alone, folded, with their places: of the text as it is, undone, without 0x marks and tags."""
    views = _views(text)
    bare, places = views[0]
    for pattern in (_HEX, _TAGS):  # a value with such a mark between any two letters
        gone = {at for match in pattern.finditer(bare) for at in range(*match.span())}
        if gone:
            kept = [at for at in range(len(bare)) if at not in gone]
            views.append(("".join(bare[at] for at in kept), [places[at] for at in kept]))
    found: list[View] = []
    for text, spans in views:
        folded = text.lower() if text.isascii() else [unicodedata.normalize("NFKC", char).casefold() for char in text]
        pairs = [(one, span) for letters, span in zip(folded, spans, strict=True) for one in letters if one.isalnum()]
        found.append(("".join([letter for letter, _ in pairs]), [span for _, span in pairs]))
    return found
