"""Check that a text speaks of this change: the paths and names in it must occur in what was shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from glue.agents.review.model import Bundle


def _each(words: str) -> list[str]:
    return words.split()


_FENCED = re.compile(r"^[ \t]*(`{3,12}|~{3,12})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]{1,300})`")
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH = re.compile(
    r"(?<![\w/.@+-])((?:[\w@+-]+/)+[\w@+.-]+\.[A-Za-z]{1,5}|[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|rb|java|c|h|cpp|cs|php|md|toml|yaml|yml|json|sql|sh))(?![\w/])"
)
# Words of the languages themselves say nothing about the change.
_COMMON = frozenset(
    _each(
        "null None True False true false nil undefined self this return await async const let var def func"
        " function class int str bool float string number any list dict set tuple map object void error Error"
        " Exception try except catch finally with for while not and the key value type interface import from new"
        " delete assert raise throw yield lambda pass break continue public private protected static final struct"
        " enum switch case default else elif range len print HTTP GET POST PUT PATCH JSON SQL API URL UTC main"
        " test tests"
    )
)
_CASED = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[a-z]+_[a-z]\w+)\b")
ABOUT = 0.50  # of the names in a summary
SHARE = 0.60  # of the names in backticks that must occur in the context


def context(bundle: Bundle) -> str:
    """Everything the reviewer was shown or could have read of the touched files."""
    names = " ".join(f"{file.path} {file.old_path}" for file in bundle.files)
    texts: Iterable[str] = (names, bundle.change.title, bundle.diff, *bundle.head.values(), *bundle.base.values())
    return "\n".join(texts)


def names(text: str, *, loose: bool = False) -> list[str]:
    """The names a text puts in backticks, outside of fences; `loose` adds those that only look like names."""
    prose = _FENCED.sub("\n", text)
    spans = [name for span in _SPAN.findall(prose) for name in _NAME.findall(span) if name not in _COMMON]
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
