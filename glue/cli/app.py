"""The `glue` command: its table of commands, and the one place where failures become exit codes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import click

from glue.cli.env import load_keys
from glue.cli.groups import LazyCommand, LazyGroup
from glue.errors import ConfigError, GlueError, PromptError
from glue.text import one_line

# In the order in which a new user needs them.
COMMANDS = (
    LazyCommand("new", "glue.cli.new:new", "Write a single-file agent that is ready to run."),
    LazyCommand("run", "glue.cli.run:run", "Run an agent file, or a model with built-in tools."),
    LazyCommand("chat", "glue.cli.chat:chat", "Chat with a model or an agent in the terminal."),
    LazyCommand("map", "glue.cli.map:map", "Run an agent on every line of a file."),
    LazyCommand(
        "eval", "glue.cli.eval:eval", "Compare models on cases with checks: passes, cost and time."
    ),
    LazyCommand(
        "worker",
        "glue.cli.queue:worker",
        "Run rows of a queue, next to any number of other workers.",
    ),
    LazyCommand("queue", "glue.cli.queue:queue", "Show the rows and the workers of queues."),
    LazyCommand(
        "review",
        "glue.agents.review.cli:review",
        "Review a change, locally or in CI; post comments only if asked.",
    ),
    LazyCommand("providers", "glue.cli.providers:providers", "List providers, keys and models."),
    LazyCommand("models", "glue.cli.models:models", "List known models, windows and prices."),
    LazyCommand("keys", "glue.cli.keys:keys", "Store, list and remove API keys."),
    LazyCommand(
        "sessions",
        "glue.cli.sessions:sessions",
        "List, search, export, remove sessions; answer their tool calls.",
    ),
    LazyCommand("runs", "glue.cli.runs:runs", "List logged runs."),
    LazyCommand("view", "glue.cli.view:view", "Write a transcript as an HTML page."),
    LazyCommand("serve", "glue.cli.serve:serve", "Serve an agent as a page in the browser."),
    LazyCommand("prompts", "glue.cli.prompts:prompts", "List, show and compare prompt versions."),
    LazyCommand("tools", "glue.cli.tools:tools", "List the built-in tools; check your own."),
    LazyCommand(
        "inspect",
        "glue.cli.inspect:inspect",
        "Print an agent file's settings and tools without running it.",
    ),
    LazyCommand(
        "replay",
        "glue.cli.replay:replay",
        "Print a recorded run, or run an agent on recorded replies.",
    ),
    LazyCommand(
        "acp", "glue.cli.servers:acp", "Serve an agent to an editor (Agent Client Protocol)."
    ),
    LazyCommand("mcp", "glue.cli.servers:mcp", "Serve an agent's tools over MCP."),
    LazyCommand("config", "glue.cli.config:config", "Show and change settings."),
    LazyCommand("doctor", "glue.cli.doctor:doctor", "Check Python, keys, git, stores and network."),
    LazyCommand(
        "completion", "glue.cli.completion:completion", "Print a completion script for your shell."
    ),
)


@click.command(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="glue-agents", prog_name="glue")
def commands() -> None:
    """Small agents in plain Python: one loop, typed tools, providers by name.

    Start with `glue new hello.py`, then `python hello.py "..."`. You can try it without an API key.
    """


def main(args: list[str] | None = None) -> None:
    """Run the `glue` command. An error is printed as one line; GLUE_DEBUG=1 shows a traceback."""
    run_command(commands, args, "glue")


def run_command(command: click.Command, args: list[str] | None, program: str) -> None:
    """Load stored API keys and run a click command. If it fails, print one line and exit.

    An exception that is a bug is raised, so that its traceback is shown. With GLUE_DEBUG, so is
    every exception except wrong options and Ctrl-C.
    """
    _repair_streams()
    as_json = "--json" in (args if args is not None else sys.argv[1:])
    try:
        load_keys()
        if os.environ.get("GLUE_OTEL", "") not in ("", "0"):
            from glue.telemetry import setup  # few programs use it, and it is slow to load

            setup()
        # In this mode click returns the exit code of the command.
        code = command.main(args, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
        if isinstance(code, int) and code:
            sys.exit(code)
    except BrokenPipeError:
        sys.exit(141)  # the reader of a pipe has closed it: exit quietly
    except (KeyboardInterrupt, Exception) as error:
        # By name: click has this class since version 8.2.
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        if is_help and isinstance(error, click.ClickException):
            click.echo(error.format_message())
            return
        name, text, code = _describe(error, program)
        text = " ".join(text.split())
        with suppress(OSError):  # stderr or stdout is full or closed
            click.echo(f"glue: {one_line(text)}", err=True)
            if as_json:  # the last line on stdout reports the failure too
                failure = {"class": name, "message": text, "kind": getattr(error, "kind", None)}
                click.echo(json.dumps({"type": "error", "error": failure, "exit_code": code}))
        sys.exit(code)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # else Python reports the unwritten rest when it exits
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _repair_streams() -> None:
    """Send closed output streams to os.devnull; let the others escape unencodable characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process: discard the output
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _describe(error: BaseException, program: str) -> tuple[str, str, int]:
    """Return class name, message and exit code of an error; raise the error if it is a bug.

    If GLUE_DEBUG is set, raise any error except usage errors and cancellations.
    """
    name, text = type(error).__name__, str(error)
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        return "Cancelled", "cancelled", 130
    if isinstance(error, click.ClickException):
        text = error.format_message().strip().rstrip(".")
        if isinstance(error, click.UsageError):
            path = error.ctx.command_path if error.ctx is not None else program
            text += f"{' see' if text.endswith('?') else '; see'} `{path} --help`"
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
    raise error  # a bug in glue or in a tool: the traceback helps
