"""A parser of shell command lines: the simple commands of a line, word by word as sh and bash read them.

What cannot be known without running it (a variable, a substitution, a glob at the start of a word) makes a word
`opaque`; what is more than a list of simple commands (a function, a `case`, an open quote) is not told apart at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

MAX_NESTED = 8  # of `sh -c` within `sh -c`
MAX_COMMANDS = 1000
MAX_WRAPPED = 64  # words in which a command may stand that another one runs
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_BEFORE_COMMAND = frozenset("if then else elif do while until ! {".split())
_AFTER_COMMAND = frozenset("fi done }".split())
_COMPOUND = frozenset("for case select function coproc [[ esac in".split())
_SHELLS = frozenset("sh bash dash ash zsh ksh mksh yash fish".split())
# Programs that run the words after them. Any later word may be where the inner command begins.
_WRAPPERS = frozenset(
    "env command builtin exec nohup nice ionice time timeout sudo doas su xargs busybox toybox setsid stdbuf chroot"
    " unshare nsenter flock watch strace ltrace parallel find fd script caffeinate systemd-run runuser".split()
)
# Those of them that put in words which nobody sees yet, in the place of {} or at the end: here they make a program.
_PROGRAM = rf"(?:{'|'.join(_WRAPPERS | _SHELLS)})(?: |$)"
_FILLED = {name: re.compile(rf"(?:^| )-(?:-?exec|ok|[xX])\S* (?:{{}}|{_PROGRAM})") for name in ("find", "fd")}
_FILLED["xargs"] = re.compile(rf"(?:^| ){_PROGRAM}")
_READS_CODE = frozenset("eval source . trap alias hash parallel".split())
_CODE_OPTION = re.compile(r"--[\w-]+=|-[A-Za-z]*?[Sc](?=.)|-[A-Za-z](?=.*\s)", re.DOTALL)  # env -S, su -c and others
_SHELL_OPTION = re.compile(r"[-+][A-NP-Za-np-z]+")  # o and O take a word of their own
SUBSTITUTION = "a substitution runs another command"
_PARAMETER = re.compile(r"\{[^}`$]{0,300}\}")
_SPELT = re.compile(r"x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c?.", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\033", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quotes were taken off; `opaque` where the shell would put something else in its place."""

    text: str
    opaque: bool = False
    glob: bool = False


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program and its arguments, with the assignments before them."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The command as one would type it, quoted where a word would otherwise be read as several."""
        return join(self.words)

    @property
    def opaque(self) -> bool:
        """Whether some word, or the program, is known to the shell alone."""
        return any(word.opaque for word in self.words) or any(word.glob for word in program(self.words)[:1])


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a line runs. `plain` says that it is one simple command and nothing else."""

    commands: tuple[SimpleCommand, ...]
    plain: bool
    unclear: str = ""  # why there may be commands that are not listed


def join(words: Sequence[Word]) -> str:
    """Write words on a line, in which a blank outside of quotes always parts two of them."""
    plain = re.compile(r"[^\s'\"\\]+")
    return " ".join(word.text if plain.fullmatch(word.text) else shlex.quote(word.text) for word in words)


class _Unclear(Exception):
    """The line is more than can be told apart."""


def parse(command: str | Sequence[str], depth: int = 0) -> CommandLine:
    """Tell the commands of a line apart; a list is one command as it stands."""
    if not isinstance(command, str):
        made = SimpleCommand(tuple(Word(part) for part in command))
        return _with_nested([made], True, "", depth)
    lexer = _Lexer(command)
    unclear = ""
    try:
        lexer.run()
    except _Unclear as error:
        unclear = str(error)
        lexer.end_command()
    return _with_nested(lexer.commands, lexer.plain and not unclear, unclear, depth)


def _with_nested(found: list[SimpleCommand], plain: bool, unclear: str, depth: int) -> CommandLine:
    """Add the commands that these commands run."""
    commands: list[SimpleCommand] = []
    for command in found:
        words = command.words
        while words and words[0].text in _BEFORE_COMMAND and not words[0].opaque:  # the shell's own words
            words = words[1:]
        if words and words[0].text in _AFTER_COMMAND:
            words = words[1:]
        plain = plain and len(words) == len(command.words)
        if not words:
            continue
        if words[0].text in _COMPOUND:
            unclear, plain = unclear or f"{words[0].text!r} is not told apart", False
        commands.append(SimpleCommand(words))
        for inner in _inner(words, depth):
            commands.extend(inner.commands)
            unclear = unclear or inner.unclear
        if len(commands) > MAX_COMMANDS:
            return CommandLine(tuple(commands), False, "there are too many commands to look at")
    return CommandLine(tuple(commands), plain and len(found) == 1, unclear)


def program(words: Sequence[Word]) -> tuple[Word, ...]:
    """Leave out the assignments before a program."""
    at = 0
    while at < len(words) and _ASSIGNMENT.match(words[at].text):
        at += 1
    return tuple(words[at:])


def _inner(words: tuple[Word, ...], depth: int) -> Iterator[CommandLine]:
    """Find what a command runs in its turn."""
    rest = program(words)
    if not rest:
        return
    yield from _code(rest, depth)
    name = rest[0].text.rpartition("/")[2]
    if name not in _WRAPPERS:
        return
    shown = rest
    if filled := _FILLED.get(name):
        if filled.search(" ".join(word.text.rpartition("/")[2] for word in rest[1:])):
            yield CommandLine((), False, f"{name!r} runs what is not seen here")
        shown = tuple(Word(word.text, word.opaque or "{}" in word.text or word is rest[-1]) for word in rest)
    for at in range(1, min(len(rest), MAX_WRAPPED)):
        text = rest[at].text
        option = _CODE_OPTION.match(text)
        if option or re.search(r"\s", text):
            inner = parse(text[option.end() if option else 0 :], depth + 1)
            yield inner
            if after := rest[at + 1 :]:
                yield CommandLine(tuple(SimpleCommand(each.words + after) for each in inner.commands), False)
        elif not text.startswith("-") and (text != "." or name in ("command", "builtin")):
            yield CommandLine((SimpleCommand(shown[at:]),), False)
            yield from _code(rest[at:], depth)
    if len(rest) > MAX_WRAPPED:
        yield CommandLine((), False, f"{rest[0].text!r} has too many arguments to look through")


def _code(rest: tuple[Word, ...], depth: int) -> Iterator[CommandLine]:
    """Look into a command that runs a line of code, or into one that is not known."""
    name = rest[0].text.rpartition("/")[2]
    if rest[0].opaque or rest[0].glob:
        yield CommandLine((), False, "which program runs is known to the shell alone")
    elif depth >= MAX_NESTED:
        yield CommandLine((), False, "commands are nested too deep")
    elif name in _READS_CODE:
        yield CommandLine((), False, f"{name!r} runs what is not seen here")
    elif name in _SHELLS:
        flags = list(takewhile(_SHELL_OPTION.fullmatch, (word.text for word in rest[1:])))
        script = next(iter(rest[1 + len(flags) :]), Word("", opaque=True))
        if script.opaque or script.text[:1] in ("-", "+") or "c" not in "".join(flags):
            yield CommandLine((), False, "a shell runs what is not seen here")
        else:
            yield parse(script.text, depth + 1)


class _Lexer:
    """One pass over a line."""

    def __init__(self, line: str) -> None:
        self.line, self.at = line, 0
        self.commands: list[SimpleCommand] = []
        self.plain = True
        self.words: list[Word] = []
        self.text: list[str] | None = None  # the word that is being read
        self.opaque = self.glob = self.quoted = False

    def take(self) -> str:
        """Read the next character; it is empty at the end."""
        self.at += 1
        return self.line[self.at - 1 : self.at]

    def run(self) -> None:
        while char := self.take():
            if char in " \t":
                self.end_word()
            elif char == "#" and self.text is None:
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            elif char in "\n;&|":
                self.end_command()
                self.plain &= char == "\n"  # a second command after one is told by their number
            elif char in "<>":
                self.redirection(char)
            elif char in "()":  # a subshell holds commands like any other; after a word it makes a function
                self.plain = False
                if char == "(" and (self.text is not None or self.words):
                    raise _Unclear("a function or an arithmetic expression is not told apart")
                self.end_command()
            else:
                self.character(char)
        self.end_command()

    def character(self, char: str) -> None:
        first = self.text is None
        text = self.text = [] if self.text is None else self.text
        if char == "\\":
            following = self.take()
            if following == "\n":
                self.text = None if first else text
            else:
                text.append(following or "\\")
                self.quoted = True
        elif char == "'":
            end = self.line.find("'", self.at)
            if end < 0:
                raise _Unclear("a quote is not closed")
            text.append(self.line[self.at : end])
            self.at, self.quoted = end + 1, True
        elif char == '"':
            self.double()
        elif char == "`":
            raise _Unclear(SUBSTITUTION)
        elif char == "$":
            self.dollar(inside=False)
        else:
            if char in "*?" or (char == "[" and self.line[self.at : self.at + 1].strip()):
                self.glob = True
                # One that stands first, or after a dash, may become an option; one further in cannot.
                self.opaque |= not text or text[0][:1] in ("", "-")
            elif char == "{" and self.line[self.at : self.at + 1].strip("}"):
                self.opaque |= not self.line[self.at].isspace()
            elif char == "~" and first:
                self.glob = True
            elif not char.isprintable():
                self.opaque = True
            text.append(char)

    def double(self) -> None:
        assert self.text is not None
        self.quoted = True
        while char := self.take():
            if char == '"':
                return
            if char == "\\" and self.line[self.at : self.at + 1] in ('"', "\\", "$", "`", "\n"):
                if self.line[self.at] != "\n":
                    self.text.append(self.line[self.at])
                self.at += 1
            elif char == "`":
                raise _Unclear(SUBSTITUTION)
            elif char == "$":
                self.dollar(inside=True)
            else:
                self.text.append(char)
        raise _Unclear("a quote is not closed")

    def dollar(self, *, inside: bool) -> None:
        assert self.text is not None
        after = self.line[self.at : self.at + 1]
        if after in ("'", '"') and after and not inside:
            self.at += 1
            self.opaque = True  # bash reads it so, others do not
            self.ansi() if after == "'" else self.double()
        elif after in ("(", "[") or (after == "{" and not _PARAMETER.match(self.line, self.at)):
            raise _Unclear(SUBSTITUTION)
        else:
            self.opaque |= bool(re.match(r"[{\w@*#?$!-]", after))
            self.text.append("$")

    def ansi(self) -> None:
        """Read $'...', in which a backslash may spell any character."""
        assert self.text is not None
        self.quoted = True
        while char := self.take():
            if char == "'":
                return
            if char != "\\":
                self.text.append(char)
                continue
            found = _SPELT.match(self.line, self.at)
            if found is None:
                break
            self.at = found.end()
            spelt = found[0]
            if spelt[0] in "xuU" and len(spelt) > 1:
                code = int(spelt[1:], 16)
            elif spelt[0] in "01234567":
                code = int(spelt, 8) & 0xFF
            elif spelt[0] == "c" and len(spelt) > 1:
                code = ord(spelt[1]) & 0x1F
            else:
                self.text.append(_ESCAPES.get(spelt, spelt if spelt in "\\'\"?" else "\\" + spelt))
                continue
            if not 0 < code < 0x110000:
                raise _Unclear("a quoted character cannot be read")
            self.text.append(chr(code))
        raise _Unclear("a quote is not closed")

    def end_word(self) -> None:
        if self.text is not None:
            self.words.append(Word("".join(self.text), self.opaque, self.glob))
        self.text, self.opaque, self.glob, self.quoted = None, False, False, False

    def end_command(self) -> None:
        self.end_word()
        if self.words:
            self.commands.append(SimpleCommand(tuple(self.words)))
        self.words = []

    def redirection(self, char: str) -> None:
        """Leave out where output goes to; the commands of the line stay known, unless text follows as input."""
        self.plain = False
        if self.text is not None and "".join(self.text).isdigit() and not self.quoted:
            self.text = None
        self.end_word()
        if self.line[self.at : self.at + 1] == "(" or (char == "<" and self.line[self.at : self.at + 1] == "<"):
            raise _Unclear("a substitution or a here-document may run another command")
        while self.at < len(self.line) and self.line[self.at] in "<>&|":
            self.at += 1
        while self.at < len(self.line) and self.line[self.at] in " \t":
            self.at += 1
        before = len(self.words)
        while self.at < len(self.line) and self.line[self.at] not in " \t\n;&|<>()":
            self.at += 1
            self.character(self.line[self.at - 1])
        self.end_word()
        del self.words[before:]
