r"""Words of shell command lines, for permission rules.

Only a line that is one plain command, a program and its words, can be split into words without a
shell. `read` returns the words of such a line, and None for every other line:

>>> read("git log --format='%h %s'")
('git', 'log', '--format=%h %s')
>>> read("git log | head") is None
True
>>> names("env /bin/rm x", "rm")
True
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from glue.globs import SPECIAL, matches_text

MAX_WORDS = 500  # a plain command has at most this many words
# A word: characters without a meaning for a shell, and quoted text that a shell does not change.
_WORD = re.compile(r"""(?:[\w@%+=:,./^-]|(?<=[\w^])~|'[^']*'|"[^"\\$`!]*")+(?: +|$)""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
# Characters that can hide a name: from the shell, and also from a program that reads code.
_HIDING = re.compile(r"""[$`'"\\*?\[\]{}~!]""")
_CODE = re.compile(r"""[$`'"\\\[\]{}|&;<>]""")
_WILDCARDS = re.compile(r"[^\s/()]*[*?][^\s/()]*")
_NAME = re.compile(r"[\w.-]+")
_NAME_WITH_PLUS = re.compile(r"[\w.+-]+")
_SHORT_OPTIONS = re.compile(r"-[A-Za-z]+")
# Variables that make some program run code, or choose the code that it runs.
_CODE_VARIABLE = re.compile(
    r"(?<![\w-])("
    r"BASH_ENV|ENV|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|BASH_FUNC\w*|IFS|PATH|CDPATH"
    r"|LD_\w+|DYLD_\w+|GIT_\w+|SSH_ASKPASS|SUDO_ASKPASS|VISUAL|BROWSER|SHELL"
    r"|\w*PAGER|\w*EDITOR|LESSOPEN|LESSCLOSE|MANROFFOPT|GCONV_PATH|TERMINFO\w*"
    r"|PYTHON\w+|PERL5?\w+|RUBY\w+|NODE_\w+|LUA_\w+|AWKPATH|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
    r"|CLASSPATH|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|RUSTC_\w+|CARGO_\w+|GOFLAGS|CC|CXX"
    r")\+?="
)


def read(command: str | Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a command, or None if it is more than a program with literal arguments.

    A plain command has no variable, substitution, wildcard, escape, redirection, operator, comment
    or second line, and no assignment before the program. Quotes around literal text are removed.

    Args:
        command: a line, or a list with a program and its arguments.
    """
    if not isinstance(command, str):
        words = tuple(command)
        is_plain = bool(words) and all(word.isprintable() for word in words)
        return words if is_plain and len(words) <= MAX_WORDS else None
    line = command.strip(" \t\n").replace("\t", " ")
    raw = _split(line) if line.isprintable() else []
    if not raw or len(raw) > MAX_WORDS or _QUOTED.search(raw[0]) or "=" in raw[0]:
        return None
    return tuple(_QUOTED.sub(r"\1\2", word) for word in raw)


def _split(line: str) -> list[str]:
    """Return the words of a shell line with their quotes, or [] if a part is not a literal word.

    A literal word consists of quoted text and of characters without a meaning for a shell.
    """
    found: list[str] = []
    at = 0
    while at < len(line):
        word = _WORD.match(line, at)
        if word is None:
            return []
        found.append(word[0].rstrip(" "))
        at = word.end()
    return found


def may_hide(command: str | Sequence[str], program: str) -> bool:
    """Return whether quotes, escapes, wildcards or expansions in a command may hide a program name.

    In a shell line, quotes, escapes, wildcards and expansions can hide the name. The words of a
    plain command hide nothing from the shell. But `sh -c` and `env -S` read a word as code, so
    characters that have a meaning in code can hide the name there.
    """
    if isinstance(command, str):
        return _HIDING.search(command) is not None
    return any(
        _CODE.search(word)
        or any(
            SPECIAL.search(program) or matches_text(program, each)
            for each in _WILDCARDS.findall(word)
        )
        for word in command
    )


def names(text: str, program: str) -> bool:
    """Return whether a text contains a program's name as a word, or as the end of a path.

    `program` may have wildcards. Upper and lower case are equal, because they are in some file
    systems. The name is also found after the letters of an option, as in `tar -Irm`.
    """
    wanted = program.rpartition("/")[2].casefold()
    form = _NAME_WITH_PLUS if "+" in wanted else _NAME
    return any(
        matches_text(name, wanted)
        for found in form.findall(text.casefold())
        for name in (found, *_after_options(found))
    )


def _after_options(word: str) -> Iterator[str]:
    """Yield each text that may be the value of a short option: for `-Irm`, yield `rm` and `m`."""
    if _SHORT_OPTIONS.fullmatch(word):
        yield from (word[at:] for at in range(2, len(word)))


def code_variable(text: str) -> str:
    """Return the first variable that a command sets and that can make programs run code, or ""."""
    found = _CODE_VARIABLE.search(text)
    return found[1] if found else ""


def join(words: Sequence[str]) -> str:
    """Return the words as one line, in which words with blanks, quotes or backslashes are quoted.

    An empty word is quoted too.
    """
    plain = re.compile(r"[^\s'\"\\]+")
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)
