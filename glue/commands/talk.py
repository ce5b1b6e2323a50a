"""The chat itself: lines in, answers out.

The event loop runs in a thread of its own for as long as the chat lasts, so that connections are kept; the main
thread reads lines, answers questions, and is the one that Ctrl-C interrupts.
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from glue.agent import Agent
from glue.commands.asking import answer_of, keys, question
from glue.commands.execute import ONE_SESSION, Run, describe, exit_code, open_session, screens
from glue.commands.keeping import last_session, open_store
from glue.commands.leaving import leave, threads
from glue.commands.lines import Lines
from glue.commands.plan import Plan
from glue.commands.showing import Show, usage_line
from glue.errors import GlueError
from glue.limits import Outcome
from glue.permission import Decision, PermissionRequest
from glue.result import RunResult
from glue.stores.memory import MemoryStore
from glue.terminal import one_line
from glue.types import Usage

if TYPE_CHECKING:
    from glue.session import Session


def talk(agent: Agent[Any, Any] | None, given: Mapping[str, Any], *, path: str | None = None) -> int:
    """Talk until the user leaves; give the exit code."""
    if given["session"] and given["resume"]:
        raise click.UsageError(ONE_SESSION)
    # SIGINT is for the main thread; asyncio in the other one must not take it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = threads()
    with start_blocking_portal() as portal:
        chat = Chat(agent, Plan(given, path=path, agent=agent), portal)
        try:
            with portal.wrap_async_context_manager(chat.run.connected()):
                portal.call(chat.begin)
                code = chat.loop()
        finally:
            portal.call(chat.agent.aclose)
    return leave(code, before)


class Chat:
    def __init__(self, agent: Agent[Any, Any] | None, plan: Plan, portal: BlockingPortal) -> None:
        out, err = screens()
        self.plan, self.portal = plan, portal
        self.show = Show(out, err, verbose=plan.given["verbose"])
        self.lines = Lines(out)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # questions, and results
        self.run = Run(agent, plan, self.show, ask=self._ask if self.lines.is_terminal else None)
        self.agent = self.run.agent
        self.total = Usage(cost=0.0)
        self.session: Session[Any, Any]
        self.kept = ""  # where the conversation is kept, or nowhere

    async def begin(self) -> None:
        """Open the conversation: a named one from the store, else one in memory."""
        given = self.plan.given
        model = self.run.overrides()["model"]
        self.agent.open(model)  # a wrong name or a missing key is said now, not after the first prompt
        named = self.plan.find("store") or ""
        self.store = open_store(named)
        if given["session"] or given["resume"]:
            chosen = given["session"] or await last_session(self.store, named)
            self.session = open_session(self.agent, chosen, self.store, self.run.overrides())
            await self.session.load()
            self.kept = chosen
        else:
            self.session = self.agent.session(store=MemoryStore(), **self.run.overrides())

    @property
    def model(self) -> str:
        model = self.session.settings["model"]
        return model if isinstance(model, str) else model.name

    def loop(self) -> int:
        """Read and answer, line by line."""
        from glue.commands.slash import COMMANDS, command

        if self.lines.is_terminal:
            kept = f", kept as {self.kept}" if self.kept else ""
            self.show.note(f"{one_line(self.model)}{kept}; /help for help, Ctrl-D to leave")
        code = 0
        while True:
            try:
                text = self.lines.read()
            except EOFError:
                return code
            except KeyboardInterrupt:
                if self.lines.interrupted():
                    return code
                self.show.note("(Ctrl-C again leaves)")
                continue
            if text.strip().split(" ")[0] in COMMANDS:
                try:
                    if command(self, text.strip()):
                        return code
                except (GlueError, ValueError) as error:
                    self.show.note(f"glue: {one_line(str(error))}", "red")
            elif text.strip().startswith("/") and text.strip()[1:].split(" ")[0].isalpha():
                self.show.note(f"glue: there is no {one_line(text.split()[0])}; /help lists what there is", "red")
            elif text.strip():
                answered = self.turn(text)
                if answered is None:
                    return 130
                code = 0 if self.lines.is_terminal else answered

    def turn(self, text: str) -> int | None:
        """Say something and show the answer; None where the user interrupted twice."""
        self.portal.start_task_soon(self._prompt, text)
        interrupts = 0
        while True:
            try:
                item = self.inbox.get()
                if isinstance(item, _Question):
                    item.answer(self._answer(item.request))
                elif isinstance(item, BaseException):
                    return self._failed(item)
                else:
                    return self._ended(item)
            except KeyboardInterrupt:
                interrupts += 1
                self.lines.end()
                if interrupts > 1:
                    return None
                self.portal.call(self.session.cancel)

    def _ended(self, result: RunResult[Any]) -> int:
        self.total += result.usage
        if result.output is not None:
            from glue.commands.execute import write_answer

            write_answer(result, self.show)
        self.show.settle()
        if result.outcome is Outcome.CANCELLED:
            self.show.note("(cancelled; the conversation goes on from here)", "yellow")
        elif result.error is not None:
            self.show.note(f"glue: {describe(result.error)}", "red")
        if result.notice:
            self.show.note(f"glue: {result.notice}", "yellow")
        if self.plan.given["verbose"]:
            self.show.note(usage_line(result))
        return exit_code(result)

    def _failed(self, error: BaseException) -> int:
        self.show.settle()
        if not isinstance(error, GlueError):
            raise error
        self.show.note(f"glue: {describe(error)}", "red")
        return 1

    # In the event loop ----------------------------------------------------------------------------

    async def _prompt(self, text: str) -> None:
        ended: RunResult[Any] | BaseException
        async with anyio.create_task_group() as group:
            if self.show.spinner.is_on:
                group.start_soon(self.run.spin)
            try:
                ended = await self.session.prompt(text, on_event=self.show, unwrap=False)
            except BaseException as error:  # the main thread waits for an end, whichever it is
                ended = error
                if not isinstance(error, Exception):
                    self.inbox.put(error)
                    raise
            finally:
                self.show.spinner.stop()
                group.cancel_scope.cancel()
        self.inbox.put(ended)

    async def _ask(self, request: PermissionRequest) -> Decision:
        """Hand the question to the main thread and wait for its answer."""
        asked = _Question(request, anyio.Event(), self.portal)
        spinner = self.show.spinner
        spinner.hide()
        was_on, spinner.is_on = spinner.is_on, False
        try:
            self.inbox.put(asked)
            await asked.event.wait()
        finally:
            spinner.is_on = was_on
            asked.is_over = True
        return asked.decision

    def _answer(self, request: PermissionRequest) -> Decision:
        err = self.show.err
        self.show.settle()
        err.write(question(request, err) + "\n")
        try:
            return answer_of(self.lines.ask("  " + keys(request)))
        except EOFError:
            err.write("\n")
            return answer_of("")


class _Question:
    def __init__(self, request: PermissionRequest, event: anyio.Event, portal: BlockingPortal) -> None:
        self.request, self.event, self.portal = request, event, portal
        self.decision = answer_of("")
        self.is_over = False

    def answer(self, decision: Decision) -> None:
        self.decision = decision
        self.portal.call(self.event.set)
