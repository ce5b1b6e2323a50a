"""`glue sessions pending` lists pending tool calls, and `glue sessions answer` answers one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from glue.cli.agentfile import open_agent
from glue.cli.approval import ask_yes_or_no
from glue.cli.options import Sources
from glue.cli.printer import Printer
from glue.cli.process import exit_code_despite_threads, live_threads
from glue.cli.run import Run, run_to_the_end
from glue.cli.screen import Screen, is_interactive
from glue.cli.settings import settings
from glue.cli.storage import configured_store, load_session, store_option, with_store
from glue.cli.tables import json_option, print_json
from glue.cli.waiting import command_of, shown, waiting_lines
from glue.codec import to_plain
from glue.decision import PendingCall
from glue.errors import ConfigError, GlueError
from glue.messages import Message
from glue.pending import pending_calls
from glue.permission import Decision, allow, deny
from glue.stores import is_address, store_path
from glue.stores.store import Store
from glue.text import one_line


@click.command()
@click.argument("session", required=False)
@store_option
@json_option
def pending(session: str | None, store: str | None, as_json: bool) -> None:
    """List the tool calls that wait for an answer, in all sessions or in SESSION.

    With SESSION, show the question of each call: the command, the change of a file, the
    arguments.
    """
    found = {session: load_session(store, session)} if session else _all_sessions(store)
    waiting = {name: pending_calls(messages) for name, messages in found.items()}
    waiting = {name: calls for name, calls in waiting.items() if calls}
    if as_json:
        print_json(
            [
                {"session": name, **to_plain(call)}
                for name, calls in waiting.items()
                for call in calls
            ]
        )
        return
    out = Screen(sys.stdout)
    for name, calls in waiting.items():
        if session:
            _enter_folder(command_of(found[name]) or {}, must_exist=False)
            out.write("".join(f"{shown(call, out)}\n" for call in calls))
        options = ["--store", store] if store else []
        if command_of(found[name]) is None:  # a Python program started the run
            options += ["--agent", "FILE.py"]
        for line in waiting_lines(calls, name, options):
            out.line(line)
    if not waiting:
        click.echo("no tool call waits for an answer", err=True)


def _all_sessions(named: str | None) -> dict[str, tuple[Message, ...]]:
    async def load(store: Store) -> dict[str, tuple[Message, ...]]:
        found = {}
        for info in await store.list():
            try:
                found[info.id] = await store.load(info.id)
            except GlueError as error:
                click.echo(f"glue: {one_line(str(error))}", err=True)
        return found

    return with_store(named, load)


@click.command()
@click.argument("session")
@click.argument("call", required=False)
@click.option("--allow", "allowed", is_flag=True, help="Run the waiting tool call.")
@click.option(
    "--deny", "denied", metavar="REASON", help="Refuse the tool call, and send REASON to the model."
)
@click.option(
    "--result",
    metavar="TEXT",
    help="Do not run the tool call; send TEXT to the model as its result.",
)
@click.option(
    "--agent",
    "file",
    metavar="FILE.py",
    help="Continue the run with this agent file, without the options of its `glue run`.",
)
@click.option(
    "-m",
    "--model",
    metavar="NAME",
    help="Continue the run with this model, without the agent and options of its `glue run`.",
)
@click.option("--tools", metavar="LIST", help="Continue the run with these tools: edit,git.")
@store_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the prompt, each event and the result of the run as lines of JSON.",
)
@click.option("--usage", is_flag=True, help="Print tokens, cost and time on stderr at the end.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer and errors.")
@click.option("-v", "--verbose", count=True, help="Print thinking and tool results of the run too.")
def answer(
    session: str,
    call: str | None,
    allowed: bool,
    denied: str | None,
    result: str | None,
    file: str | None,
    store: str | None,
    **given: Any,
) -> None:
    """Allow or deny a CALL that waits in SESSION, or give its result; then continue the run.

    The call is shown as a person would have seen it when it was made. Without --allow, --deny or
    --result the answer is asked for on the terminal; without CALL, for each call that waits. With
    one of these options, CALL may be left out only if a single call waits.
    The run continues with the agent, the options and the folder of its `glue run`; a session of a
    Python program needs --agent or --model.
    """
    if (allowed, denied is not None, result is not None).count(True) > 1:
        raise click.UsageError("--allow, --deny and --result exclude each other; use one of them")
    before = live_threads()
    messages = load_session(store, session)
    waiting = _chosen(pending_calls(messages), session, call)
    given_decision = _decision(allowed, denied, result)
    if given_decision is None and not is_interactive():
        raise click.UsageError(
            "no user can be asked, because stdin or stderr is not a terminal; "
            "add --allow, --deny REASON or --result TEXT"
        )
    if given_decision is not None and len(waiting) > 1:
        names = ", ".join(one_line(f"{each.id} ({each.summary})", 200) for each in waiting)
        raise click.UsageError(f"several tool calls wait in session {session}; name one of {names}")
    for each in waiting if allowed else ():
        if each.request is None:
            raise click.UsageError(
                f"{each.tool} is an external tool, which glue does not run; "
                "give its result with --result TEXT"
            )
    place = _absolute(configured_store(store))
    command = _command(messages, session, store, file, given)
    file = os.path.abspath(file) if file else command.get("file")
    _enter_folder(command, must_exist=True)
    err = Screen(sys.stderr)
    decisions: dict[str, Any] = {}
    for each in waiting:
        if not given["quiet"] or given_decision is None:
            err.line(shown(each, err))
        decision = given_decision if given_decision is not None else ask_yes_or_no(each, err)
        if decision is not None:
            decisions[each.id] = decision
    if not decisions:
        raise ConfigError("nothing was decided, so nothing has changed")
    options = {**command.get("options", {}), **{k: v for k, v in given.items() if v}}
    wanted = {"session": session, "store": place or None, "on_question": None}
    sources = Sources(
        {**_UNSET, **options, **wanted}, path=file, agent=open_agent(file) if file else None
    )
    printer = Printer(
        Screen(sys.stdout),
        err,
        quiet=given["quiet"] or given["as_json"],
        verbose=given["verbose"],
        stream=Screen(sys.stdout).is_terminal,
    )
    run = Run(sources, printer, defers=True)
    sys.exit(exit_code_despite_threads(run_to_the_end(run, decisions=decisions), before))


# Options of `glue run` that a stored command may lack.
_UNSET: Mapping[str, Any] = {
    "resume": False,
    "as_json": False,
    "usage": False,
    "quiet": False,
    "verbose": 0,
}


def _chosen(
    waiting: Sequence[PendingCall], session: str, call: str | None
) -> Sequence[PendingCall]:
    """Return the waiting calls; if `call` is not None, return only the call with this id.

    Raise ConfigError if no call waits, or if none has this id.
    """
    if not waiting:
        raise ConfigError(f"no tool call waits for an answer in session {session}")
    if call is None:
        return waiting
    found = [each for each in waiting if each.id == call]
    if not found:
        names = ", ".join(one_line(f"{each.id} ({each.summary})", 200) for each in waiting)
        raise ConfigError(
            f"no tool call {call!r} waits for an answer in session {session}; "
            f"waiting calls: {names}"
        )
    return found


def _decision(allowed: bool, denied: str | None, result: str | None) -> Decision | str | None:
    if allowed:
        return allow()
    return deny(denied) if denied is not None else result


def _command(
    messages: Sequence[Message],
    session: str,
    store: str | None,
    file: str | None,
    given: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the `glue run` command of a session; raise ConfigError if it is missing or untrusted.

    The command has the folder, the file and the options. It is untrusted if the project's
    pyproject.toml selects the store. If the user names an agent or a model, no error is raised:
    return only the folder and the denied tools, or {} if the session stores no command.
    """
    found = command_of(messages)
    if file or given["model"]:
        if found is None:
            return {}
        denied = (found.get("options") or {}).get("deny")
        return {"folder": found["folder"], "options": {"deny": denied} if denied else {}}
    if found is None:
        raise ConfigError(
            f"session {session} names no agent that can continue it, because `glue run` did not "
            "start the run; add --agent FILE.py, or --model NAME with --tools LIST"
        )
    source = settings({"store": store}).get("store")
    if source is not None and source.source.endswith("pyproject.toml"):
        raise ConfigError(
            f"session {session} is in a store that the project's pyproject.toml selects, so the "
            "agent that the session names is not trusted; "
            f"to use this agent, add {_agent_of(found)}"
        )
    return found


def _agent_of(command: Mapping[str, Any]) -> str:
    """Return the options that select the agent of a stored command, such as `--model NAME`."""
    if command.get("file"):
        return f"--agent {command['file']}"
    options = command.get("options") or {}
    tools = f" --tools {options['tools']}" if options.get("tools") else ""
    return f"--model {options.get('model') or 'NAME'}{tools}"


def _enter_folder(command: Mapping[str, Any], *, must_exist: bool) -> None:
    """Change to the folder in which a stored command was started, if the command has one.

    If the folder does not exist, do nothing, or raise ConfigError if it must exist.
    """
    folder = command.get("folder")
    if not folder:
        return
    if os.path.isdir(folder):
        os.chdir(folder)
    elif must_exist:
        raise ConfigError(
            f"the run was started in the folder {folder}, which does not exist any more"
        )


def _absolute(store: str) -> str:
    return store if not store or is_address(store) else str(store_path(store).absolute())
