"""The command line of an agent file: what `agent.cli()` gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from glue.cli.agentfile import glue_table
from glue.cli.config import Setting, settings
from glue.cli.permission import permission
from glue.cli.tools import make_tools, split
from glue.errors import ConfigError
from glue.limits import Limits

if TYPE_CHECKING:
    from glue.agent import Agent


F = TypeVar("F", bound=Callable[..., Any])


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
    click.option("--tools", metavar="LIST", help="Ready-made tools: fs, edit, git, shell, coding; with commas."),
    click.option("--mcp", metavar="CONFIG", type=click.Path(), help="Add the tools of the MCP servers in this file."),
    click.option("-s", "--session", metavar="NAME", help="Keep the conversation under this name, and go on with it."),
    click.option("-c", "--continue", "resume", is_flag=True, help="Go on with the last conversation."),
    click.option("--store", metavar="PATH", help="The folder, or the .db file, that keeps sessions."),
    click.option("--max-turns", type=click.IntRange(min=0), help="Turns with tools, at most."),
    click.option("--budget-usd", type=click.FloatRange(min=0), help="Dollars to spend, at most."),
    click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Seconds, at most."),
    *_PERMISSIONS,
)
_OUTPUT: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line."),
    click.option("--usage", is_flag=True, help="Say afterwards what was used, on stderr."),
    click.option("--show-wire", is_flag=True, help="Show the exact requests, keys masked, on stderr."),
    click.option("--as-curl", is_flag=True, help="With --show-wire: as curl commands."),
    click.option("--record", metavar="FILE", type=click.Path(dir_okay=False), help="Write the run to a recording."),
    click.option("--replay", metavar="FILE", type=click.Path(dir_okay=False), help="Answer from a recording."),
    click.option("--otel", is_flag=True, help="Send OpenTelemetry traces and metrics, as the OTEL_* variables say."),
    click.option("-q", "--quiet", is_flag=True, help="Only the answer, and errors."),
    click.option("-v", "--verbose", count=True, help="Thinking, results and retries too; -vv adds the log."),
)


def main(agent: Agent[Any, Any], args: Sequence[str] | None = None) -> None:
    """Run an agent with a prompt from the command line, and leave with the exit code of its outcome."""
    from glue.cli.app import guarded

    path = getattr(sys.modules.get("__main__"), "__file__", None)
    guarded(_command(agent, path), list(args) if args is not None else None, _program())


def _command(agent: Agent[Any, Any], path: str | None) -> click.Command:
    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("prompt", nargs=-1)
    @run_options
    def command(prompt: tuple[str, ...], **given: Any) -> None:
        """Run the agent with PROMPT: words, @FILE for a file's content, - for stdin; stdin where there is none."""
        from glue.cli.run import execute

        sys.exit(execute(agent, prompt, given, path=path))

    if agent.name:
        command.help = (command.help or "").replace("the agent", f"the agent {agent.name}", 1)
    return command


def _program() -> str:
    import os

    return os.path.basename(sys.argv[0]) or "agent"


_LIMITS = {"max_turns": "max_turns", "budget_usd": "usd_budget", "timeout": "seconds"}


class Plan:
    """What holds: flags, then what the agent says (its header, its code), then the environment and files."""

    def __init__(self, given: Mapping[str, Any], *, path: str | None = None, agent: Agent[Any, Any] | None = None):
        self.given = given
        self.agent = agent
        self.header = glue_table(path) if path is not None else {}
        self.configured: dict[str, Setting] = settings()

    def find(self, name: str) -> Any:
        """Give a setting from the first place that makes it, the agent's code left out."""
        value = self.given.get(name)
        if value not in (None, (), ""):
            return value
        if name in self.header:
            return self.header[name]
        found = self.configured.get(name)
        return found.value if found is not None else None

    def _said(self, name: str) -> Any:
        """Give a setting that goes before the agent's code."""
        value = self.given.get(name)
        return value if value not in (None, (), "") else self.header.get(name)

    @property
    def model(self) -> Any:
        """Give the model that goes before the agent's own, or None."""
        return self._said("model") if self.agent is not None else self.find("model")

    @property
    def limits(self) -> Limits | None:
        """Give the limits, or None where the agent's own stand as they are."""
        own: Limits | None = self.agent.settings["limits"] if self.agent is not None else None
        find = self._said if own is not None else self.find
        changed = {field: find(name) for name, field in _LIMITS.items() if find(name) is not None}
        try:
            return replace(own or Limits(), **changed) if changed else None
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None

    def tools(self, root: str = ".") -> list[Any]:
        """Make the ready-made tools that were asked for, those left out that the agent has under the same name."""
        names = self._said("tools") if self.agent is not None else self.find("tools")
        made = make_tools(split(names or ()), root)
        own = list(self.agent.settings["tools"]) if self.agent is not None else []
        taken = {tool.spec.name for tool in own}
        return [*own, *(tool for tool in made if tool.spec.name not in taken)]

    def permission(self, ask: Callable[[Any], Any] | None) -> Any:
        own = self.agent.settings["permission"] if self.agent is not None else None
        yes = bool(self.given.get("yes"))
        return permission(own, allow=self._rules("allow"), deny=self._rules("deny"), yes=yes, ask=ask)

    def _rules(self, name: str) -> tuple[str, ...]:
        """Give the rules of all places together: a refusal must not be lost because a flag adds another."""
        found = self.configured.get(name)
        places = (self.given.get(name), self.header.get(name), found.value if found is not None else None)
        return tuple(rule for rules in places for rule in rules or ())
