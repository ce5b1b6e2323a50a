"""Options of the command line: what click parses and what is configured become one record of settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from glue.cli.agentfile import glue_table
from glue.cli.config import Setting, resolve_alias, settings
from glue.cli.keys import read_env
from glue.cli.permission import permission
from glue.cli.prompt import read_schema, read_text, unread_pipe
from glue.cli.tools import make_tools, split
from glue.errors import ConfigError
from glue.limits import Limits
from glue.options import Options

if TYPE_CHECKING:
    from glue.agent import Agent


F = TypeVar("F", bound=Callable[..., Any])
EFFORTS = ("none", "minimal", "low", "medium", "high")


def run_options(function: F) -> F:
    """Add the options that every run has, here and in `glue run`."""
    for option in reversed((*_SETTINGS, *_OUTPUT)):
        function = option(function)
    return function


def chat_options(function: F) -> F:
    """Add the options of a run that a chat has too."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


def permission_options(function: F) -> F:
    """Add the options that say which tools may run."""
    for option in reversed(_PERMISSIONS):
        function = option(function)
    return function


def _models(text: str) -> list[str]:
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
        shell_complete=lambda context, parameter, text: _models(text),
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
    click.option("--store", metavar="PATH", help="The folder, or the .db file, that keeps sessions."),
    click.option(
        "--env",
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=lambda _, __, path: read_env(path),
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
    click.option("--record", metavar="FILE", type=click.Path(dir_okay=False), help="Write the run to a cassette."),
    click.option("--replay", metavar="FILE", type=click.Path(dir_okay=False), help="Answer from a cassette."),
    click.option("--otel", is_flag=True, help="Send OpenTelemetry traces and metrics, as the OTEL_* variables say."),
    click.option("-q", "--quiet", is_flag=True, help="Only the answer, and errors."),
    click.option("-v", "--verbose", count=True, help="Thinking, results and retries too; -vv adds the log."),
)


def main(agent: Agent[Any, Any], args: Sequence[str] | None = None, *, prompt: str = "") -> None:
    """Run an agent with a prompt from the command line, and leave with the exit code of its outcome."""
    from glue.cli.app import guarded

    path = getattr(sys.modules.get("__main__"), "__file__", None)
    program = os.path.basename(sys.argv[0]) or "agent"
    guarded(_command(agent, path, prompt), list(args) if args is not None else None, program)


def _command(agent: Agent[Any, Any], path: str | None, usual: str) -> click.Command:
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
    return command


_LIMITS = ("max_turns", "max_requests", "token_budget", "usd_budget", "seconds")


class Sources:
    """Where settings come from: flags, then what the agent says (its header, its code), then environment and files."""

    def __init__(self, given: Mapping[str, Any], *, path: str | None = None, agent: Agent[Any, Any] | None = None):
        self.given = given
        self.agent = agent
        self.header = glue_table(path) if path is not None else {}
        self.configured: dict[str, Setting] = settings()

    def find(self, name: str) -> Any:
        """Give a setting from the first place that makes it, the agent's code left out."""
        value = self._said(name)
        found = self.configured.get(name)
        return found.value if value is None and found is not None else value

    def _said(self, name: str) -> Any:
        """Give a setting that goes before the agent's code."""
        value = self.given.get(name)
        return value if value not in (None, (), "") else self.header.get(name)

    def options(self, ask: Callable[[Any], Any] | None = None) -> Options:
        """Give what goes before the agent's own settings; without an agent, all there is."""
        own = self.agent.settings if self.agent is not None else Options()
        find = self._said if self.agent is not None else self.find
        rules = {name: self._rules(name) for name in ("allow", "deny")}
        return Options(
            model=resolve_alias(find("model")) or None,
            instructions=self._instructions(),
            limits=self._limits(own),
            tools=self._tools(own, split(find("tools") or ())),
            temperature=self.given.get("temperature"),
            max_tokens=self.given.get("max_tokens"),
            reasoning=self.given.get("reasoning"),
            output=read_schema(self.given["schema"]) if self.given.get("schema") else None,
            permission=permission(own.permission, yes=bool(self.given.get("yes")), ask=ask, **rules),
        )

    def _instructions(self) -> Any:
        system, template = self.given.get("system"), self.given.get("template")
        if system and template:
            raise click.UsageError("--system and --template both give instructions: use one of them")
        if template:
            from glue.cli.prompts import find_version

            return find_version(template)
        return read_text(system) if system else None

    def _tools(self, own: Options, names: Sequence[str]) -> tuple[Any, ...]:
        """Give the agent's own tools, or those of them that are named, and the ready-made ones that are named."""
        if self.given.get("no_tools"):
            return ()
        mine = {tool.spec.name: tool for tool in own.tools or ()}
        chosen = {name: mine[name] for name in names if name in mine} or mine
        made = {tool.spec.name: tool for tool in make_tools([name for name in names if name not in mine], ".")}
        return tuple({**made, **chosen}[name] for name in (*chosen, *(name for name in made if name not in chosen)))

    def _limits(self, own: Options) -> Limits | None:
        find = self._said if own.limits is not None else self.find
        changed = {name: find(name) for name in _LIMITS if find(name) is not None}
        try:
            return replace(cast(Limits, own.limits or Limits()), **changed) if changed else None
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None

    def _rules(self, name: str) -> tuple[str, ...]:
        """Give the rules of all places together: a refusal must not be lost because a flag adds another."""
        found = self.configured.get(name)
        places = (self.given.get(name), self.header.get(name), found.value if found is not None else None)
        return tuple(rule for rules in places for rule in rules or ())
