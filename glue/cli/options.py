"""Options of a run on the command line: flags and settings become one record; words, files and stdin a prompt."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from glue.cli.config import glue_table, load_env, settings
from glue.errors import ConfigError
from glue.limits import BUDGETS, LimitsSource, override_limits
from glue.messages import EFFORTS, File, Image, Part, Text
from glue.options import Options
from glue.permission import AllowAll, Ask, Decision, Permission, PermissionRequest, Rules, deny

if TYPE_CHECKING:
    from glue.agent import Agent


F = TypeVar("F", bound=Callable[..., Any])


def output_file(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Refuse a value of an option that names a file in a folder that is not there."""
    folder = os.path.dirname(path or "") or "."
    if not os.path.isdir(folder):
        raise click.BadParameter(f"there is no folder {folder}")
    return path


TO_WRITE: dict[str, Any] = {"metavar": "FILE", "type": click.Path(dir_okay=False), "callback": output_file}


def complete_model(text: str) -> list[str]:
    """Give the providers whose name begins with what was typed."""
    from glue.providers import known

    return [name for name in known() if name.startswith(text)]


_PERMISSIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--allow", multiple=True, metavar="RULE", help="Let a tool run unasked: write_file, 'shell:git *'."),
    click.option("--deny", multiple=True, metavar="RULE", help="Never let a tool run; goes before --allow."),
    click.option("-y", "--yes", is_flag=True, help="Let every tool run unasked."),
)
_SETTINGS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-m",
        "--model",
        metavar="NAME",
        help="Provider and model; several with commas fail over.",
        shell_complete=lambda context, parameter, text: complete_model(text),
    ),
    click.option("--system", metavar="TEXT", help="Instructions for the model; @FILE takes a file's."),
    click.option("-t", "--template", metavar="NAME[@VERSION]", help="Instructions from the catalog of prompts."),
    click.option("--temperature", type=click.FloatRange(min=0), help="How freely the model chooses its words."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of one reply, at most."),
    click.option("--reasoning", type=click.Choice(EFFORTS), help="How much the model thinks first."),
    click.option("--tools", metavar="LIST", help="Tools: fs, edit, git, shell, coding, or some of the agent's own."),
    click.option("--no-tools", is_flag=True, help="No tools at all."),
    click.option("--mcp", metavar="CONFIG", type=click.Path(), help="Add the tools of the MCP servers in this file."),
    click.option("-s", "--session", metavar="NAME", help="Keep the conversation under this name, and go on with it."),
    click.option("-c", "--continue", "resume", is_flag=True, help="Go on with the last conversation."),
    click.option("--store", metavar="PATH", help="The folder, .db file or postgresql:// address that keeps sessions."),
    click.option(
        "--env",
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=lambda _, __, path: load_env(Path(path)) if path else None,
        help="Take variables from a file where they are not set.",
    ),
    click.option("--max-turns", type=click.IntRange(min=0), help="Turns with tools, at most."),
    click.option("--max-requests", type=click.IntRange(min=0), help="Requests to the model, at most."),
    click.option("--token-budget", type=click.IntRange(min=0), help="Tokens to spend, at most."),
    click.option("--usd-budget", type=click.FloatRange(min=0), help="Dollars to spend, at most."),
    click.option("--seconds", type=click.FloatRange(min=0), help="Seconds, at most."),
    *_PERMISSIONS,
)
_OUTPUT: tuple[Callable[[Any], Any], ...] = (
    click.option("-a", "--attach", multiple=True, metavar="FILE|URL", help="Send a picture, a PDF or a text along."),
    click.option("--schema", metavar='FILE|"NAME: TYPE, ..."', help="Print an object of this form, validated."),
    click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line."),
    click.option("--usage", is_flag=True, help="Say afterwards what was used, on stderr."),
    click.option("--show-wire", is_flag=True, help="Show the exact requests, keys masked, on stderr."),
    click.option("--as-curl", is_flag=True, help="With --show-wire: as curl commands."),
    click.option("--record", **TO_WRITE, help="Write the run to a cassette."),
    click.option("--replay", metavar="FILE", type=click.Path(dir_okay=False), help="Answer from a cassette."),
    click.option("--otel", is_flag=True, help="Send OpenTelemetry traces and metrics, as the OTEL_* variables say."),
    click.option("-q", "--quiet", is_flag=True, help="Only the answer, and errors."),
    click.option("-v", "--verbose", count=True, help="Thinking, results and retries too; -vv adds the log."),
)


def _decorator(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


run_options = _decorator((*_SETTINGS, *_OUTPUT))  # of every run, here and in `glue run`
chat_options = _decorator(_SETTINGS)  # those that a chat has too
permission_options = _decorator(_PERMISSIONS)  # which tools may run


def main(agent: Agent[Any, Any], *, prompt: str = "") -> None:
    """Run an agent with a prompt from the command line, and leave with the exit code of its outcome."""
    from glue.cli.app import guarded

    usual = prompt
    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    path = file if os.path.isfile(file) else None  # in a zipapp it is none

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("prompt", nargs=-1)
    @run_options
    def command(prompt: tuple[str, ...], **given: Any) -> None:
        """Run the agent with PROMPT: words, @FILE for a file's content, - for stdin; stdin where there is none."""
        from glue.cli.run import execute

        if usual and not prompt and not unread_pipe():
            prompt = (usual,)
        sys.exit(execute(agent, prompt, given, path=path))

    if agent.name:
        command.help = (command.help or "").replace("the agent", f"the agent {agent.name}", 1)
    guarded(command, None, os.path.basename(sys.argv[0]) or "agent")


class Sources:
    """Where settings come from: flags, then what the agent says (its header, its code), then environment and files.

    Without an agent there is one of the model and the ready-made tools that are named.
    """

    def __init__(self, given: Mapping[str, Any], *, path: str | None = None, agent: Agent[Any, Any] | None = None):
        self.given = given
        self.header = glue_table(path) if path is not None else {}
        self.configured = {name: made.value for name, made in settings().items()}
        # What goes before the agent's code.
        self.said = self.header | {name: value for name, value in given.items() if value not in (None, (), "")}
        self.agent = agent or self._model_alone()

    def _model_alone(self) -> Agent[Any, Any]:
        from glue.agent import Agent
        from glue.providers import default

        model, tools, instructions = self.find("model") or default(), self._tools((), self.find("tools")), ""
        if tools:
            from glue.tools.coding import prompt

            instructions = prompt(tools)
        try:
            return Agent(model, tools=tools, instructions=instructions)
        except TypeError as error:  # a name of blanks
            raise ConfigError(str(error)) from None

    def find(self, name: str) -> Any:
        """Give a setting from the first place that makes it, the agent's code left out."""
        return self.said.get(name, self.configured.get(name))

    def options(self, ask: Callable[[Any], Any] | None = None) -> Options:
        """Give what goes before the agent's own settings."""
        own = self.agent.settings
        try:
            return Options(
                model=self.said.get("model"),
                instructions=self._instructions(),
                limits=self._limits(own),
                tools=self._tools(own.tools or (), self.said.get("tools")),
                temperature=self.given.get("temperature"),
                max_tokens=self.given.get("max_tokens"),
                reasoning=self.given.get("reasoning"),
                output=read_schema(self.given["schema"]) if self.given.get("schema") is not None else None,
                permission=self._permission(own.permission, ask),
            )
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None

    def _instructions(self) -> Any:
        system, template = self.given.get("system"), self.given.get("template")
        if not template:
            return read_text(system) if system else None
        if system:
            raise click.UsageError("--system and --template both give instructions: use one of them")
        from glue.cli.catalog import find_version

        return find_version(template)

    def _tools(self, own: Iterable[Any], named: str | Sequence[str] | None) -> tuple[Any, ...]:
        """Give the agent's own tools, or those of them that are named, and the ready-made ones that are named."""
        if self.given.get("no_tools"):
            return ()
        if not named:
            return tuple(own)
        from glue.cli.catalog import make_tools

        names = [name.strip() for name in (named.split(",") if isinstance(named, str) else named) if name.strip()]
        mine = {tool.spec.name: tool for tool in own}
        chosen = {name: mine[name] for name in names if name in mine} or mine
        made = {tool.spec.name: tool for tool in make_tools([name for name in names if name not in mine], mine)}
        return (*chosen.values(), *(tool for name, tool in made.items() if name not in chosen))

    def _limits(self, own: Options) -> LimitsSource | None:
        changed = self.budgets(own)
        return override_limits(own.limits, **changed) if changed else None

    def budgets(self, own: Options) -> dict[str, Any]:
        """Give the limits that are set by name; where an agent has its own, only what goes before its code."""
        find = self.said.get if own.limits is not None else self.find
        return {name: find(name) for name in BUDGETS if find(name) is not None}

    def rules(self) -> dict[str, tuple[str, ...]]:
        """Give the rules of all places together: a refusal must not be lost because a flag adds another."""
        places = (self.given, self.header, self.configured)
        return {name: tuple(rule for place in places for rule in place.get(name) or ()) for name in ("allow", "deny")}

    def _permission(self, own: Permission | None, ask: Callable[[PermissionRequest], Any] | None) -> Permission:
        """Make the policy of a run: flags, then the agent's own, then the person; `ask` is None where there is none."""
        if self.given.get("yes"):
            own = AllowAll()
        elif own is None:
            own = Ask(ask or unattended)
        rules = self.rules()
        return Rules(**rules, otherwise=own) if any(rules.values()) else own


async def unattended(request: PermissionRequest) -> Decision:
    """Deny what nobody can be asked for, and name the flag that allows it."""
    return deny(f"nobody can be asked here; --allow {request.action} allows it, --yes allows everything")


# Prompts and schemas ------------------------------------------------------------------------------

MOST = 16 * 1024 * 1024
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


def read_prompt(words: Sequence[str]) -> tuple[Part, ...]:
    """Make the parts of a prompt: words are joined, `@FILE` is its content, `-` is stdin; nothing is stdin too."""
    if not words and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("no prompt; give it in words, as @FILE or on stdin")
    pieces: list[Part] = []
    for is_spoken, group in groupby(words or ("-",), lambda word: word == "@" or not re.match("-$|@[^@]", word)):
        if is_spoken:
            pieces.append(Text(text=" ".join(word[1:] if word.startswith("@@") else word for word in group)))
        else:
            pieces += [Text(text=_stdin()) if word == "-" else read_part(word[1:]) for word in group]
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, Text) and parts and isinstance(last := parts[-1], Text):
            # Some models read only the first of several texts.
            parts[-1] = Text(text=f"{last.text.rstrip()}\n\n{piece.text}")
        else:
            parts.append(piece)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise click.UsageError("the prompt is empty")
    return tuple(parts)


def _stdin() -> str:
    data = sys.stdin.buffer.read(MOST + 1)
    if len(data) > MOST:
        raise ConfigError(f"stdin: more than {MOST // 1024 // 1024} MB")
    if b"\0" in data[:4096]:
        raise ConfigError("stdin is no text; attach a picture or a PDF with -a FILE")
    return data.decode("utf-8", "replace")


def read_attachment(named: str) -> Part:
    """Read what --attach names: a file, or the address of a picture, which the provider fetches."""
    if not named.startswith(("https://", "http://")):
        return read_part(named, "--attach ")
    from urllib.parse import urlsplit

    suffix = Path(urlsplit(named).path).suffix.lower()
    if suffix not in _IMAGES:
        kinds = ", ".join(_IMAGES)
        raise ConfigError(f"--attach {named}: only the address of a picture ({kinds}) can be sent; download the file")
    return Image(media_type=_IMAGES[suffix], url=named)


def read_part(name: str, mark: str = "@") -> Part:
    """Read a file: a text, a picture or a PDF."""
    path = Path(name)
    try:
        with path.open("rb") as file:  # bounded: /dev/urandom has no end
            data = file.read(MOST + 1)
    except OSError as error:
        hint = f"; write @@{name} for a word that begins with @" if mark == "@" and not path.exists() else ""
        raise ConfigError(f"{mark}{name} cannot be read: {error.strerror}{hint}") from None
    if len(data) > MOST:
        raise ConfigError(f"{mark}{name}: larger than {MOST // 1024 // 1024} MB")
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return Image(media_type=_IMAGES[suffix], data=data)
    if suffix == ".pdf":
        return File(media_type="application/pdf", data=data, name=path.name)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{mark}{name} is neither text nor a picture nor a PDF") from None


def read_text(given: str) -> str:
    """Give a text, or with `@FILE` that of a file; `@@` begins a text with an @."""
    if not given.startswith("@"):
        return given
    if given.startswith("@@"):
        return given[1:]
    part = read_part(given[1:])
    if not isinstance(part, Text):
        raise ConfigError(f"{given} is no text")
    return part.text


_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_FIELD = re.compile(r"\s*(\w+)\s*(?:[:\s]\s*(list\[)?(str|int|float|bool)\]?)?\s*")


def read_schema(given: str) -> Mapping[str, Any]:
    """Make a JSON schema of a file, of JSON, or of "name: type, ..." (str, int, float, bool, list[...])."""
    if given.lstrip().startswith("{") or given.endswith(".json") or Path(given).is_file():
        from glue.function.validation import check_schema

        part = Text(text=given) if given.lstrip().startswith("{") else read_part(given, "--schema ")
        try:
            schema = json.loads(part.text if isinstance(part, Text) else "")
        except ValueError as error:
            raise ConfigError(f"--schema: not valid JSON: {error}") from None
        if not isinstance(schema, dict):
            raise ConfigError("--schema: a JSON schema is an object")
        try:
            check_schema(schema)
        except ValueError as error:
            raise ConfigError(f"--schema must be a JSON schema; {error}") from None
        return {"title": "Answer", **schema}
    fields: dict[str, Any] = {}
    for text in given.split(","):
        found = _FIELD.fullmatch(text)
        if found is None:
            kinds = f"{', '.join(_TYPES)}, list[...]"
            raise ConfigError(f"--schema: {text.strip()!r} is no 'name: type'; the types are: {kinds}")
        kind = {"type": _TYPES[found[3] or "str"]}
        fields[found[1]] = {"type": "array", "items": kind} if found[2] else kind
    form = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"title": "Answer", **form}


def unread_pipe() -> bool:
    """Say whether something waits on a piped stdin that nobody has asked for."""
    import stat

    try:
        fd = sys.stdin.fileno()
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        import fcntl
        import termios

        return any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))  # how many bytes wait
    except (OSError, ValueError, AttributeError, ImportError):
        return False
