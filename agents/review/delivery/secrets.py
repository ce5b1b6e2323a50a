"""Keep secrets out of whatever leaves: exact values in many encodings, well-known shapes, and odd-looking tokens.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A place in a text that must not leave."""

    start: int
    end: int
    name: str  # the variable, the shape or "entropy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What is known to be secret, in every form it is looked for."""

    names: tuple[str, ...] = ()
    needles: Mapping[str, str] = field(default_factory=dict, repr=False)  # folded form -> name
    windows: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> int:
        return len(self.names)

    def exact(self, text: str) -> list[Leak]:
        """Find known values, whole or in part, in any of the encodings."""
        if not self.needles:
            return []
        leaks: list[Leak] = []
        for letters, places in _projections(text):
            for needle, name in self.needles.items():
                at = letters.find(needle)
                while at >= 0:
                    leaks.append(Leak(start=places[at][0], end=places[at + len(needle) - 1][1], name=name))
                    at = letters.find(needle, at + 1)
            leaks += self._parts(letters, places)
        return leaks

    def find(self, text: str, known: str = "") -> list[Leak]:
        """Find known values, well-known shapes, and tokens too random to be words; `known` holds harmless ones."""
        leaks = self.exact(text)
        for view, spans in _views(text):
            leaks += [
                Leak(start=spans[start][0], end=spans[end - 1][1], name="shape")
                for start, end in glue.find_secrets(view)
            ]
        for match in _TOKEN.finditer(text):
            if random_looking(match.group()) and match.group() not in known:
                leaks.append(Leak(start=match.start(), end=match.end(), name="entropy"))
        return leaks

    def redact(self, text: str, known: str = "") -> str:
        """Replace whatever must not leave."""
        return mask(text, self.find(text, known))

    def _parts(self, letters: str, places: list[tuple[int, int]]) -> list[Leak]:
        if not self.windows:
            return []
        found: list[Leak] = []
        at = 0
        while at + WINDOW <= len(letters):
            name = self.windows.get(letters[at : at + WINDOW])
            if name is None:
                at += 1
                continue
            end = at + WINDOW
            while end < len(letters) and letters[end - WINDOW + 1 : end + 1] in self.windows:
                end += 1
            found.append(Leak(start=places[at][0], end=places[end - 1][1], name=name))
            at = end
        return found


def guard(environ: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Guard:
    """Learn the secrets of this process: values of variables with a secret-looking name, and `extra` ones."""
    values: dict[str, str] = {}
    for name, value in environ.items():
        if glue.is_secret_name(name):
            for part in _parts_of(value):
                values.setdefault(part, name)
    for name, value in (extra or {}).items():
        if value:
            values.setdefault(value, name)
    needles: dict[str, str] = {}
    windows: dict[str, str] = {}
    for value, name in values.items():
        for form in _forms(value):
            folded = "".join(char for char in unicodedata.normalize("NFKC", form).casefold() if char.isalnum())
            if len(folded) < SHORTEST:
                continue
            needles.setdefault(folded, name)
            if len(value) >= 20 and _mixed(value) and len(folded) >= 2 * WINDOW - 4:
                for at in range(len(folded) - WINDOW + 1):
                    windows.setdefault(folded[at : at + WINDOW], name)
    return Guard(names=tuple(sorted(set(values.values()))), needles=needles, windows=windows)


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


def mask(text: str, leaks: Iterable[Leak]) -> str:
    """Replace the named places, merged where they touch."""
    out: list[str] = []
    at = 0
    for leak in sorted(leaks, key=lambda leak: leak.start):
        if leak.end <= at:
            continue
        if leak.start >= at:
            out += [text[at : leak.start], MASK]
        at = leak.end
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


_TAGS = re.compile(r"<[^<>\n]{0,80}>")
View = tuple[str, list[tuple[int, int]]]


def _views(text: str) -> list[View]:
    """The text without invisible characters, then with its escapes undone, each with places in the original."""
    spans = [(at, at + 1) for at in range(len(text))]
    shown = [(char, span) for char, span in zip(text, spans, strict=True) if unicodedata.category(char) != "Cf"]
    views: list[View] = [("".join(char for char, _ in shown), [span for _, span in shown])]
    for _ in range(3):
        undone = _undo(*views[-1])
        if undone[0] == views[-1][0]:
            break
        views.append(undone)
    return views


def _undo(text: str, spans: list[tuple[int, int]]) -> View:
    out: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        out.append(text[at : match.start()])
        places += spans[at : match.start()]
        decoded = _unescape(match.group())
        out.append(decoded)
        places += [(spans[match.start()][0], spans[match.end() - 1][1])] * len(decoded)
        at = match.end()
    out.append(text[at:])
    return "".join(out), [*places, *spans[at:]]


def _unescape(token: str) -> str:
    if token.startswith("&"):
        return html.unescape(token)
    digits = token.lstrip("%=\\xu").strip("{}")
    if token.startswith("\\") and token[1] not in "xu":
        return chr(int(token[1:], 8))
    point = int(digits or "0", 16)
    return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd"


def _projections(text: str) -> list[View]:
    """Letters and digits alone, folded, with their places: of the text as it is, undone, without 0x marks and tags."""
    out: list[View] = []
    views = _views(text)
    for view, spans in views:
        out.append(_letters(view, spans))
    bare, places = views[0]
    if re.search(r"0[xX][0-9a-fA-F]{2}", bare):
        kept = [at for at in range(len(bare)) if not _mark(bare, at)]
        out.append(_letters("".join(bare[at] for at in kept), [places[at] for at in kept]))
    if "<" in bare:  # a value with a tag between any two letters
        tags = {at for match in _TAGS.finditer(bare) for at in range(*match.span())}
        kept = [at for at in range(len(bare)) if at not in tags]
        out.append(_letters("".join(bare[at] for at in kept), [places[at] for at in kept]))
    return out


def _mark(text: str, at: int) -> bool:
    return text[at : at + 2].lower() == "0x" or (at > 0 and text[at - 1 : at + 1].lower() == "0x")


def _letters(text: str, spans: list[tuple[int, int]]) -> View:
    out: list[str] = []
    places: list[tuple[int, int]] = []
    for char, span in zip(text, spans, strict=True):
        folded = char.lower() if char.isascii() else unicodedata.normalize("NFKC", char).casefold()
        for letter in folded:
            if letter.isalnum():
                out.append(letter)
                places.append(span)
    return "".join(out), places
