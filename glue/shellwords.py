"""A parser of shell command lines: it finds the simple commands of a line, as sh and bash read it.

The parser never runs anything. It marks the parts that only a shell can know:

- A word is `opaque` if it contains a variable, or a wildcard that may become an option.
- A line is `unclear` if it may run commands that the parser does not find, for example because of a
  substitution, a function or a quote that is not closed.

>>> [command.text for command in parse("cd src && rm -f 'a b'").commands]
['cd src', "rm -f 'a b'"]
>>> parse("rm $(cat list)").unclear
'a substitution runs another command'
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

MAX_NESTED = 8  # levels of `sh -c` inside `sh -c`
MAX_COMMANDS = 1000
MAX_WRAPPED = 64  # arguments of a wrapper that are checked for a command
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_BEFORE_COMMAND = frozenset("if then else elif do while until ! {".split())
_AFTER_COMMAND = frozenset("fi done }".split())
_COMPOUND = frozenset("for case select function coproc [[ esac in".split())
_SHELLS = frozenset("sh bash dash ash zsh ksh mksh yash fish".split())
# Programs that run a command given in their arguments. It may begin at any of them.
_WRAPPER_NAMES = (
    "env command builtin exec nohup nice ionice time timeout sudo doas su xargs busybox toybox"
    " setsid stdbuf chroot unshare nsenter flock watch strace ltrace parallel find fd script"
    " caffeinate systemd-run runuser"
)
_WRAPPERS = frozenset(_WRAPPER_NAMES.split())
# Wrappers that add words at run time, in the place of {} or at the end. The patterns match if the
# added words decide which program runs, as in `find -exec {}` or `xargs sh`.
_PROGRAM = rf"(?:{'|'.join(_WRAPPERS | _SHELLS)})(?: |$)"
_FIND_RUNS_ADDED = re.compile(rf"(?:^| )-(?:-?exec|ok|[xX])\S* (?:{{}}|{_PROGRAM})")
_RUNS_ADDED = {
    "find": _FIND_RUNS_ADDED,
    "fd": _FIND_RUNS_ADDED,
    "xargs": re.compile(rf"(?:^| ){_PROGRAM}"),
}
_READS_CODE = frozenset("eval source . trap alias hash parallel".split())
# An option whose value may be a command line, such as `env -S` and `su -c`.
_CODE_OPTION = re.compile(r"--[\w-]+=|-[A-Za-z]*?[Sc](?=.)|-[A-Za-z](?=.*\s)", re.DOTALL)
_SHELL_OPTION = re.compile(r"[-+][A-NP-Za-np-z]+")  # not -o and -O, which take a value
SUBSTITUTION = "a substitution runs another command"
_PARAMETER = re.compile(r"\{[^}`$]{0,300}\}")  # the braces of ${name}, without a substitution
# The part of an escape in $'...' that follows the backslash.
_ESCAPE = re.compile(
    r"x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c?.", re.DOTALL
)
_ESCAPED = dict(zip("ntrabefv", "\n\t\r\a\b\033\f\v", strict=True))


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, without its quotes."""

    text: str
    opaque: bool = False  # the shell may replace a part of the word that matters
    glob: bool = False  # the shell may replace the word by file names, or by a home folder


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program and its arguments, with the assignments before the program."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The command as a line, with quotes around words that need them."""
        return join(self.words)

    @property
    def opaque(self) -> bool:
        """True if only the shell knows the value of a word, or which program runs."""
        first = program(self.words)[:1]
        return any(word.opaque for word in self.words) or any(word.glob for word in first)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The commands that a line runs, and also those that its commands run in turn."""

    commands: tuple[SimpleCommand, ...]
    plain: bool  # the line is one simple command and nothing else
    unclear: str = ""  # why the line may run commands that are not listed


def join(words: Sequence[Word]) -> str:
    """Return the words as a line, with quotes around words that contain blanks or quotes."""
    plain = re.compile(r"[^\s'\"\\]+")
    return " ".join(
        word.text if plain.fullmatch(word.text) else shlex.quote(word.text) for word in words
    )


class _Unclear(Exception):
    """The rest of the line cannot be parsed. The message is the reason."""


def parse(command: str | Sequence[str], depth: int = 0) -> CommandLine:
    """Parse a command line, or a list with a program and its arguments.

    Args:
        command: the line or the list. A list is one command, in which nothing is replaced.
        depth: the number of shells around this line.
    """
    if not isinstance(command, str):
        single = SimpleCommand(tuple(Word(part) for part in command))
        return _with_nested([single], True, "", depth)
    lexer = _Lexer(command)
    unclear = ""
    try:
        lexer.run()
    except _Unclear as error:
        unclear = str(error)
        lexer.end_command()
    return _with_nested(lexer.commands, lexer.plain and not unclear, unclear, depth)


def _with_nested(found: list[SimpleCommand], plain: bool, unclear: str, depth: int) -> CommandLine:
    """Return the commands, each followed by the commands that it runs in turn."""
    commands: list[SimpleCommand] = []
    for command in found:
        words = command.words
        # Skip words of the shell, such as `if` and `then`.
        while words and words[0].text in _BEFORE_COMMAND and not words[0].opaque:
            words = words[1:]
        if words and words[0].text in _AFTER_COMMAND:
            words = words[1:]
        plain = plain and len(words) == len(command.words)
        if not words:
            continue
        if words[0].text in _COMPOUND:
            unclear, plain = unclear or f"{words[0].text!r} is not analysed", False
        commands.append(SimpleCommand(words))
        for inner in _inner_lines(words, depth):
            commands.extend(inner.commands)
            unclear = unclear or inner.unclear
        if len(commands) > MAX_COMMANDS:
            return CommandLine(tuple(commands), False, "it has too many commands to check")
    return CommandLine(tuple(commands), plain and len(found) == 1, unclear)


def program(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words from the program on, without the assignments before it."""
    at = 0
    while at < len(words) and _ASSIGNMENT.match(words[at].text):
        at += 1
    return tuple(words[at:])


def _inner_lines(words: tuple[Word, ...], depth: int) -> Iterator[CommandLine]:
    """Yield the command lines that a command may run in turn.

    The arguments of a wrapper are not interpreted. Each of them may begin the inner command, so
    `env A=1 rm x` yields `A=1 rm x`, `rm x` and `x`.
    """
    rest = program(words)
    if not rest:
        return
    yield from _script_lines(rest, depth)
    name = rest[0].text.rpartition("/")[2]
    if name not in _WRAPPERS:
        return
    shown = rest
    runs_added = _RUNS_ADDED.get(name)
    if runs_added is not None:
        if runs_added.search(" ".join(word.text.rpartition("/")[2] for word in rest[1:])):
            yield CommandLine((), False, f"{name!r} runs a command that is not in the line")
        shown = tuple(
            Word(word.text, word.opaque or "{}" in word.text or word is rest[-1]) for word in rest
        )
    for at in range(1, min(len(rest), MAX_WRAPPED)):
        text = rest[at].text
        option = _CODE_OPTION.match(text)
        if option or re.search(r"\s", text):
            inner = parse(text[option.end() if option else 0 :], depth + 1)
            yield inner
            after = rest[at + 1 :]
            if after:  # `env -S` appends the words that follow to its command
                appended = tuple(SimpleCommand(each.words + after) for each in inner.commands)
                yield CommandLine(appended, False)
        elif not text.startswith("-") and (text != "." or name in ("command", "builtin")):
            yield CommandLine((SimpleCommand(shown[at:]),), False)
            yield from _script_lines(rest[at:], depth)
    if len(rest) > MAX_WRAPPED:
        yield CommandLine((), False, f"{rest[0].text!r} has too many arguments to check")


def _script_lines(rest: tuple[Word, ...], depth: int) -> Iterator[CommandLine]:
    """Yield the line that a shell runs with -c, or the reason why it is not known."""
    name = rest[0].text.rpartition("/")[2]
    if rest[0].opaque or rest[0].glob:
        yield CommandLine((), False, "only the shell knows which program runs")
    elif depth >= MAX_NESTED:
        yield CommandLine((), False, "its `sh -c` commands are nested too deeply")
    elif name in _READS_CODE:
        yield CommandLine((), False, f"{name!r} runs code that is not parsed")
    elif name in _SHELLS:
        flags = list(takewhile(_SHELL_OPTION.fullmatch, (word.text for word in rest[1:])))
        script = next(iter(rest[1 + len(flags) :]), Word("", opaque=True))
        if script.opaque or script.text[:1] in ("-", "+") or "c" not in "".join(flags):
            yield CommandLine((), False, "a shell runs code that is not in the line")
        else:
            yield parse(script.text, depth + 1)


class _Lexer:
    """A reader that splits a line into words and commands, in one pass."""

    def __init__(self, line: str) -> None:
        self.line, self.at = line, 0
        self.commands: list[SimpleCommand] = []
        self.plain = True
        self.words: list[Word] = []
        self.text: list[str] | None = None  # the current word; None between words
        self.opaque = self.glob = self.quoted = False

    def take(self) -> str:
        """Return the next character, or "" at the end of the line."""
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
                # After a newline, another command still shows in the number of commands.
                self.plain &= char == "\n"
            elif char in "<>":
                self.redirection(char)
            elif char in "()":
                # The commands of a subshell are found like others. After a word, a parenthesis
                # defines a function.
                self.plain = False
                if char == "(" and (self.text is not None or self.words):
                    raise _Unclear("a function or an arithmetic expression is not analysed")
                self.end_command()
            else:
                self.character(char)
        self.end_command()

    def character(self, char: str) -> None:
        """Add a character to the current word, or the whole quotation that it begins."""
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
                # A wildcard at the start or after a dash may become an option; a later one cannot.
                self.opaque |= not text or text[0][:1] in ("", "-")
            elif char == "{" and self.line[self.at : self.at + 1].strip("}"):
                self.opaque |= not self.line[self.at].isspace()
            elif char == "~" and first:
                self.glob = True
            elif not char.isprintable():
                self.opaque = True
            text.append(char)

    def double(self) -> None:
        """Read the rest of a quotation in double quotes."""
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
        """Read a dollar sign; `inside` means inside double quotes."""
        assert self.text is not None
        after = self.line[self.at : self.at + 1]
        if after in ("'", '"') and after and not inside:
            self.at += 1
            self.opaque = True  # other shells than bash read this quotation differently
            self.ansi() if after == "'" else self.double()
        elif after in ("(", "[") or (after == "{" and not _PARAMETER.match(self.line, self.at)):
            raise _Unclear(SUBSTITUTION)
        else:
            self.opaque |= bool(re.match(r"[{\w@*#?$!-]", after))
            self.text.append("$")

    def ansi(self) -> None:
        """Read the rest of $'...', in which a backslash can express any character."""
        assert self.text is not None
        self.quoted = True
        while char := self.take():
            if char == "'":
                return
            if char != "\\":
                self.text.append(char)
                continue
            found = _ESCAPE.match(self.line, self.at)
            if found is None:
                break
            self.at = found.end()
            escape = found[0]
            if escape[0] in "xuU" and len(escape) > 1:
                code = int(escape[1:], 16)
            elif escape[0] in "01234567":
                code = int(escape, 8) & 0xFF
            elif escape[0] == "c" and len(escape) > 1:
                code = ord(escape[1]) & 0x1F
            else:
                self.text.append(
                    _ESCAPED.get(escape, escape if escape in "\\'\"?" else "\\" + escape)
                )
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
        """Skip a redirection and its file. Raise _Unclear if it may contain commands."""
        self.plain = False
        if self.text is not None and "".join(self.text).isdigit() and not self.quoted:
            self.text = None
        self.end_word()
        following = self.line[self.at : self.at + 1]
        if following == "(" or (char == "<" and following == "<"):
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
