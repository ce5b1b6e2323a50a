"""The command line: a table of commands, each loaded when it is called."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

# In the order people need them: name, where it lives, what `glue --help` says of it.
COMMANDS = (
    ("new", "glue.cli.agentfile:new", "Write a single-file agent that runs as it stands."),
    ("run", "glue.cli.run:run", "Run an agent file, or a model with ready-made tools."),
    ("chat", "glue.cli.chat:chat", "Talk to a model or an agent in the terminal."),
    ("map", "glue.cli.map:map", "Run an agent on every line of a file."),
    ("worker", "glue.cli.map:worker", "Run rows of a queue, on as many machines as you like."),
    ("queue", "glue.cli.map:queue", "Say how long the queues are, and who holds what."),
    ("review", "glue.agents.review.cli:review", "Review a change, here or in CI; posts only when asked."),
    ("providers", "glue.cli.catalog:providers", "List the providers, their keys and default models."),
    ("models", "glue.cli.catalog:models", "List known models with windows and prices."),
    ("keys", "glue.cli.config:keys", "Store, list and remove keys of providers."),
    ("sessions", "glue.cli.sessions:sessions", "List, show, search, export and remove conversations."),
    ("runs", "glue.cli.runs:runs", "List the runs that were logged."),
    ("view", "glue.cli.sessions:view", "Make one HTML page of a transcript."),
    ("prompts", "glue.cli.catalog:prompts", "List, show and compare versions of prompts."),
    ("tools", "glue.cli.catalog:tools", "Check tools before a model sees them."),
    ("inspect", "glue.cli.agentfile:inspect", "Say what an agent file declares, without running it."),
    ("replay", "glue.cli.runs:replay", "Play a recorded run again."),
    ("acp", "glue.cli.servers:acp", "Serve an agent to an editor (Agent Client Protocol)."),
    ("mcp", "glue.cli.servers:mcp", "Offer an agent's tools as an MCP server."),
    ("config", "glue.cli.config:config", "Print what is configured, and where it came from."),
    ("doctor", "glue.cli.doctor:doctor", "Check this machine: Python, keys, git, stores, network."),
    ("completion", "glue.cli.app:completion", "Print a completion script for your shell."),
)


class CommandTable(click.Group):
    """A group that knows its commands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name, home, _ in COMMANDS:
            if name == cmd_name:
                module, attribute = home.split(":")
                command: click.Command = getattr(import_module(module), attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from glue.text import suggest

            ctx.fail(f"no command {args[0]!r}; {suggest(args[0], names)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        # By the table: the group's own way would load every command for its help.
        named = [CompletionItem(name, help=text) for name, _, text in COMMANDS if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, _, text in COMMANDS])


class ListGroup(click.Group):
    """A group that lists where no command is named: `glue sessions --json` is `glue sessions list --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_word = bool(args) and not args[0].startswith("-")
        if not is_word and {*self.commands, *ctx.help_option_names}.isdisjoint(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.command(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="glue-agents", prog_name="glue")
def commands() -> None:
    """Small agents in plain Python: one loop, typed tools, providers by name.

    Start with `glue new hello.py` and `python hello.py "..."`; no key is needed to try.
    """


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    \b
    eval "$(glue completion bash)"     # in ~/.bashrc
    eval "$(glue completion zsh)"      # in ~/.zshrc
    glue completion fish | source      # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    made = found(commands, {}, "glue", "_GLUE_COMPLETE")
    # Not source(): for bash that starts a shell to ask for its version.
    click.echo(made.source_template % made.source_vars())


def main(args: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one line, never a traceback (GLUE_DEBUG=1 shows it)."""
    guarded(commands, args, "glue")


def guarded(command: click.Command, args: list[str] | None, program: str) -> None:
    """Run a click command so that every failure has one line and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: what is written is lost
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a narrow encoding must not end a run
    from glue.cli.config import load_keys

    as_json = "--json" in (args if args is not None else sys.argv[1:])
    try:
        load_keys()
        if os.environ.get("GLUE_OTEL", "") not in ("", "0"):
            from glue.telemetry import setup

            setup()
        code = command.main(args, prog_name=program, standalone_mode=False)  # click returns what a command exits with
        sys.stdout.flush()
        if isinstance(code, int) and code:
            sys.exit(code)
    except BrokenPipeError:
        sys.exit(141)  # nobody reads: leave quietly
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, click.ClickException) and type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2
            click.echo(error.format_message())
            return
        from glue.text import one_line

        name, text, code = _describe(error, program)
        text = " ".join(text.split())
        with suppress(OSError):  # an output that is full, or gone
            click.echo(f"glue: {one_line(text)}", err=True)
            if as_json:  # the last line on stdout says it too
                from json import dumps

                told = {"class": name, "message": text, "kind": getattr(error, "kind", None)}
                click.echo(dumps({"type": "error", "error": told, "exit_code": code}))
        sys.exit(code)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python would complain of what is left when it ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _describe(error: BaseException, program: str) -> tuple[str, str, int]:
    """Give the class, the text and the exit code of a failure; what is no mistake of the user's is raised again."""
    from glue.errors import ConfigError, GlueError, PromptError

    name, text = type(error).__name__, str(error)
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        return "Cancelled", "cancelled", 130
    if isinstance(error, click.ClickException):
        text = error.format_message().strip().rstrip(".")
        if isinstance(error, click.UsageError):
            text += f"; see `{error.ctx.command_path if error.ctx is not None else program} --help`"
        return name, text, error.exit_code
    if os.environ.get("GLUE_DEBUG"):
        raise error
    if isinstance(error, (ConfigError, PromptError)):
        return name, text, 2
    if isinstance(error, GlueError):
        result: Any = error.result
        return name, text, result.outcome.exit_code if result is not None else 1
    if isinstance(error, OSError):
        text = error.strerror or text
        return name, f"{text}: {error.filename}" if error.filename else text, 1
    raise error  # a bug of ours or of a tool: the traceback is what helps


GRACE = 0.5  # seconds for threads that are about to end


def live_threads() -> frozenset[threading.Thread]:
    """Give the threads that keep the process alive."""
    return frozenset(thread for thread in threading.enumerate() if not thread.daemon)


def end_process(code: int, before: Collection[threading.Thread]) -> int:
    """Give the code back, or end the process where a thread that came since would keep it waiting."""
    end = time.monotonic() + GRACE
    for thread in live_threads() - frozenset(before):
        if thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                atexit._run_exitfuncs()  # telemetry is sent there
                os._exit(code)
    return code
