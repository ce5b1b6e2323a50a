"""Judge a model's prose: loops, shuffled words, wrong scripts, cut-off text, leaked prompts, names that occur nowhere.

No model is asked. Thresholds are set on recorded reviews and damaged copies of them; `bench/review.py` prints the
confusion matrix.
"""

from __future__ import annotations

import itertools
import re
import tomllib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files

from glue.agents.review.records import Bundle

_DATA = tomllib.loads(files("glue.agents.review.findings").joinpath("prose.toml").read_text(encoding="utf-8"))
_PATTERNS = {code: "".join(parts) for code, parts in _DATA["patterns"].items()}
_LEAKED = re.compile(_PATTERNS.pop("transport.token"), re.MULTILINE)
_ECHOES = {code: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for code, pattern in _PATTERNS.items()}
_NOT_AFTER = frozenset(_DATA["not_after_an_article"].split())
_COMMON = _NOT_AFTER | frozenset(_DATA["common"].split())
_KEYWORDS = frozenset(_DATA["keywords"].split())
_FENCED = re.compile(r"^[ \t]*(`{3,12}|~{3,12})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPANS = re.compile(r"`[^`\n]*`")
_TOKENS = re.compile("[^\\s\u200b]+")  # some scripts part words with a zero-width space
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_CALL = re.compile(
    r"""["']?(?:name|tool|function|tool_name)["']?\s*:\s*["'][\w.-]+["']\s*,\s*["'](?:arguments|parameters|input|args)["']\s*:"""
)
_JSON = re.compile(r"^\s*(?:```\w*\s*)?[\[{][\s\S]{2,}[\]}]\s*(?:```)?\s*$")
_DIFF = re.compile(
    r"^(?:diff --git |@@ -\d|index [0-9a-f]{7,}\.\.|--- (?:a/|/dev/null)|\+\+\+ (?:b/|/dev/null))", re.MULTILINE
)
_MOJIBAKE = re.compile(r"Ã[\u0080-\u00bf\u0152-\u2122ƒ‚]|â€|â‚¬|Â[\u00a0-\u00bf]|ï»¿|ï¿½|Ð[\u0080-\u00bf]")
_SENTENCE_END = re.compile(r"""[.!?:;…。！？។।](?:["'”’»)\]*_`]*)\s*$|[)\]`"'”’*]\s*$""")
_FULL_STOP = re.compile(r"""[.!?:…。！？។।](?:["'”’»)\]*_`]*)\s*$""")
_SPAN = re.compile(r"`([^`\n]{1,300})`")
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH = re.compile(
    r"(?<![\w/.@+-])((?:[\w@+-]+/)+[\w@+.-]+\.[A-Za-z]{1,5}|[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|rb|java|c|h|cpp|cs|php|md|toml|yaml|yml|json|sql|sh))(?![\w/])"
)
_CASED = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[a-z]+_[a-z]\w+)\b")
REFUSALS: Mapping[str, Mapping[str, str]] = _DATA["refusals"]  # of a summary, of a finding: code -> what to say
ABOUT = 0.50  # of the names in a summary
SHARE = 0.60  # of the names in backticks that must occur in the context


def text_codes(text: str, *, language: str = "en", examples: Iterable[str] = (), whole: bool = True) -> tuple[str, ...]:
    """Name every reason not to post a text. `whole`: it should be complete sentences, not a title."""
    prose = _SPANS.sub(" code ", _FENCED.sub("\n", text))
    codes = (*_transport(text, prose, whole), *_degenerate(text, prose, language), *_echo(text, prose, examples))
    return tuple(dict.fromkeys(codes))


def _transport(text: str, prose: str, whole: bool) -> Iterable[str]:
    shown = "".join(char for char in text if unicodedata.category(char)[0] != "C")
    bare = re.sub(r"^[ \t]*#{1,6}[^\n]*$|```\w*|~~~\w*|[-*_=\s]", "", text, flags=re.MULTILINE)
    if not shown.strip() or not "".join(char for char in bare if char.isalnum()):
        yield "transport.empty"
        return
    if _open_fence(text):
        yield "transport.fence"
    if _LEAKED.search(prose):
        yield "transport.token"
    if _CALL.search(text):
        yield "transport.call"
    if _JSON.match(text) and text.count('"') >= 2:
        yield "transport.json"
    if whole and _cut(text):
        yield "transport.cut"


def _degenerate(text: str, prose: str, language: str) -> Iterable[str]:
    raw = text.encode("utf-8", "replace")
    if len(text) > 400 and len(zlib.compress(raw, 9)) / len(raw) < 0.25:
        yield "degenerate.ratio"
    tokens = _TOKENS.findall(text)
    if tokens:
        if max(len(list(same)) for _, same in itertools.groupby(tokens)) >= 6:
            yield "degenerate.run"
        if len(tokens) >= 40 and len(set(tokens)) / len(tokens) < 0.25:
            yield "degenerate.distinct"
        if len(tokens) >= 24 and _coverage(tokens) > 0.30:
            yield "degenerate.repeat"
        if len(text) >= 60 and sum(map(len, tokens)) / len(tokens) > 25:
            yield "degenerate.length"
    odd = sum(
        char == "\ufffd" or (unicodedata.category(char) in ("Cc", "Co", "Cn", "Cs") and char not in "\n\r\t")
        for char in text
    )
    if odd > max(2, len(text) // 100):
        yield "degenerate.characters"
    if len(_MOJIBAKE.findall(prose)) >= 2:
        yield "degenerate.mojibake"
    if _foreign(prose, language) > 0.20:
        yield "degenerate.script"
    if language != "en":
        return
    words = [word.lower() for word in _WORDS.findall(prose)]
    if len(words) >= 25 and sum(word in _COMMON for word in words) / len(words) < 0.08:
        yield "degenerate.words"
    pairs = re.findall(r"\b(the|a|an)[ \n]+([a-z']+)", prose.lower())
    wrong = sum(follower in _NOT_AFTER for _, follower in pairs)
    if wrong >= 3 and wrong / len(pairs) > 0.15:
        yield "degenerate.order"


def _echo(text: str, prose: str, examples: Iterable[str]) -> Iterable[str]:
    yield from (code for code, pattern in _ECHOES.items() if pattern.search(prose))
    if len(_DIFF.findall(prose)) >= 3:
        yield "echo.diff"
    mine = _shingles(text)
    if mine and any(len(mine & _shingles(example)) / len(mine) > 0.2 for example in examples):
        yield "echo.example"


def _open_fence(text: str) -> bool:
    """Whether a fence is left open; one with a language opens, also inside another, as models nest them."""
    depth = 0
    for row in text.split("\n"):
        match = re.match(r"[ \t]*(?:`{3,}|~{3,})([^`]*)$", row)
        if match is not None:
            depth += 1 if match.group(1).strip() or depth == 0 else -1
    return depth > 0


def _cut(text: str) -> bool:
    """Whether a text that otherwise ends its sentences stops in the middle of one."""
    rows = [row.strip() for row in _FENCED.sub("\n", text).strip().split("\n")]
    rows = [row for row in rows if row and not row.startswith("#") and re.search(r"\w", row)]
    last = text.rstrip().rsplit("\n", 1)[-1].strip()
    if not rows or not re.search(r"\w", last) or last.startswith("#") or last != rows[-1]:
        return False
    if _SENTENCE_END.search(last):
        return last.count("`") % 2 == 1
    ended = sum(bool(_FULL_STOP.search(row)) for row in rows[:-1])
    if len(rows) > 1:
        return ended * 2 >= len(rows) - 1
    return re.search(r"[.!?][)\"'`*]* +[A-Z`]", last) is not None


def _coverage(tokens: list[str]) -> float:
    """How much of a text its most repeated run of two to four tokens covers."""
    best = 0.0
    for size in (2, 3, 4):
        grams = Counter(tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1))
        gram, count = grams.most_common(1)[0]
        if count >= 4 and any(re.search(r"\w", token) for token in gram):
            best = max(best, count * size / len(tokens))
    return best


def _foreign(prose: str, language: str) -> float:
    """The share of letters of a script that the configured language is not written in."""
    allowed = ("LATIN", *_DATA["scripts"].get(language, ()))
    letters = [char for char in prose if char.isalpha()]
    if len(letters) < 12:
        return 0.0
    foreign = sum(not char.isascii() and not unicodedata.name(char, "").startswith(allowed) for char in letters)
    return foreign / len(letters)


def _shingles(text: str, size: int = 8) -> set[tuple[str, ...]]:
    words = [word.lower() for word in _WORDS.findall(text)]
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def context(bundle: Bundle) -> str:
    """Everything the reviewer was shown or could have read of the touched files."""
    names = " ".join(f"{file.path} {file.old_path}" for file in bundle.files)
    texts: Iterable[str] = (names, bundle.change.title, bundle.diff, *bundle.head.values(), *bundle.base.values())
    return "\n".join(texts)


def names(text: str, *, loose: bool = False) -> list[str]:
    """The names a text puts in backticks, outside of fences; `loose` adds those that only look like names."""
    prose = _FENCED.sub("\n", text)
    spans = [name for span in _SPAN.findall(prose) for name in _NAME.findall(span) if name not in _KEYWORDS]
    return spans + _CASED.findall(_SPAN.sub(" ", prose)) if loose else spans


def grounded(text: str, shown: str) -> bool:
    """Whether enough of the names of a finding occur in what was shown; one name alone may be advice."""
    found = names(text)
    return len(found) < 2 or sum(name in shown for name in found) / len(found) >= SHARE


def on_topic(text: str, shown: str) -> bool:
    """Whether a summary speaks of this change at all: its names and its paths occur here."""
    found = names(text, loose=True)
    if found and sum(name in shown for name in found) / len(found) < ABOUT:
        return False
    paths = {path for path in _PATH.findall(_FENCED.sub("\n", text)) if "/" in path}
    return len(found) >= 5 or not paths or any(path in shown for path in paths)
