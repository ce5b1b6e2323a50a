"""A tool that needs permission runs only when a policy says so."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

import glue
from glue.context import Purse
from glue.testing import call


def request(action: str = "write", target: str = "a", session: str = "s") -> glue.PermissionRequest:
    return glue.PermissionRequest(tool="save", action=action, target=target, arguments={}, session_id=session)


ran: list[str] = []


@glue.tool(needs_permission="write", target="path")
async def save(path: str = "default.txt", text: str = "") -> str:
    ran.append(path)
    return "saved"


async def invoke(tool: glue.Tool[..., Any], arguments: Any, policy: object) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.Host(permission=policy, session_id="s"),
        cancel=glue.Cancel(),
        purse=Purse(),
        report=lambda *said: None,
    )
    ran.clear()
    return await tool.invoke(asked, context)


class Policy:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[glue.PermissionRequest] = []

    def decide(self, request: glue.PermissionRequest) -> Any:
        self.seen.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_no_policy_means_no() -> None:
    result = await invoke(save, {"path": "a.txt"}, None)

    assert result.is_error
    assert result.text == "permission denied: write a.txt: no permission policy is set"
    assert ran == []


async def test_a_policy_sees_what_will_be_done() -> None:
    policy = Policy(glue.allow())

    result = await invoke(save, {"path": "a.txt", "text": "hello"}, policy)

    assert result.text == "saved"
    assert policy.seen == [
        glue.PermissionRequest(
            tool="save",
            action="write",
            target="a.txt",
            arguments={"path": "a.txt", "text": "hello"},
            call_id="c1",
            session_id="s",
        )
    ]


async def test_the_target_of_an_argument_left_out_is_its_default() -> None:
    policy = Policy(glue.allow())

    await invoke(save, {}, policy)

    assert policy.seen[0].target == "default.txt"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (glue.deny("not today"), "permission denied: write a: not today"),
        (glue.deny(), "permission denied: write a"),
        (False, "permission denied: write a"),
        (None, "permission denied: write a: the policy answered None, which is no decision"),
        ("yes", "permission denied: write a: the policy answered 'yes', which is no decision"),
        (OSError("no terminal"), "save: permission denied: no terminal"),
    ],
)
async def test_anything_but_a_clear_yes_is_a_no(answer: Any, said: str) -> None:
    result = await invoke(save, {"path": "a"}, Policy(answer))

    assert result.is_error
    assert result.text == said
    assert ran == []


async def test_a_target_that_cannot_be_made_is_a_no() -> None:
    @glue.tool(needs_permission=True, target=lambda arguments: str(arguments["nothing"]))
    def one(path: str) -> None:
        ran.append(path)

    result = await invoke(one, {"path": "a"}, glue.AllowAll())

    assert result.is_error
    assert ran == []


async def test_the_action_is_the_tool_s_name_unless_it_says_otherwise() -> None:
    @glue.tool(needs_permission=True)
    def one() -> str:
        return "ran"

    policy = Policy(True)

    assert (await invoke(one, {}, policy)).text == "ran"
    assert policy.seen[0].action == "one"


async def test_invalid_arguments_are_never_asked_about() -> None:
    policy = Policy(True)

    assert (await invoke(save, {"path": 3}, policy)).is_error
    assert policy.seen == []


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (glue.Rules(), False),
        (glue.Rules(allow=["write"]), True),
        (glue.Rules(allow=["write:docs/*"]), True),
        (glue.Rules(allow=["write:src/*"]), False),
        (glue.Rules(allow=["w*"]), True),
        (glue.Rules(allow=["write"], deny=["write:docs/*"]), False),
        (glue.Rules(allow=["Write"]), False),
        (glue.Rules(otherwise=glue.AllowAll()), True),
        (glue.Rules(deny=["write"], otherwise=glue.AllowAll()), False),
    ],
)
async def test_rules_decide_by_action_and_target(rules: glue.Rules, allowed: bool) -> None:
    result = await invoke(save, {"path": "docs/a.md"}, rules)

    assert result.is_error is not allowed


def asker(*answers: Any) -> tuple[list[glue.PermissionRequest], Any]:
    asked: list[glue.PermissionRequest] = []

    def ask(request: glue.PermissionRequest) -> Any:
        asked.append(request)
        return answers[len(asked) - 1]

    return asked, ask


@pytest.mark.parametrize(
    ("scope", "again"),
    [
        ("call", {"same": True, "target": True, "session": True, "action": True}),
        ("target", {"same": False, "target": True, "session": False, "action": True}),
        ("session", {"same": False, "target": False, "session": True, "action": True}),
        ("always", {"same": False, "target": False, "session": False, "action": True}),
    ],
)
async def test_an_answer_is_remembered_as_far_as_it_says(scope: Any, again: dict[str, bool]) -> None:
    others = {
        "same": request(),
        "target": request(target="b"),
        "session": request(session="other"),
        "action": request(action="delete"),
    }
    for name, other in others.items():
        asked, ask = asker(glue.allow(scope), glue.deny())
        policy = glue.Ask(ask)

        assert (await policy.decide(request())).allowed
        second = await policy.decide(other)

        assert (len(asked) == 2) is again[name], name
        assert second.allowed is not again[name], name


async def test_a_no_is_remembered_too_until_forgotten() -> None:
    asked, ask = asker(glue.deny("never", "always"), True)
    policy = glue.Ask(ask)

    assert not (await policy.decide(request())).allowed
    assert (await policy.decide(request(target="b"))).reason == "never"
    policy.forget()
    assert (await policy.decide(request())).allowed
    assert len(asked) == 2


async def test_questions_come_one_at_a_time_and_an_answer_counts_for_those_who_wait() -> None:
    open_questions: list[int] = []
    asked: list[str] = []

    async def ask(request: glue.PermissionRequest) -> glue.Decision:
        asked.append(request.target)
        open_questions.append(1)
        assert len(open_questions) == 1
        await anyio.lowlevel.checkpoint()
        open_questions.pop()
        return glue.allow("always" if request.action == "write" else "call")

    policy = glue.Ask(ask)
    async with anyio.create_task_group() as tasks:
        for target in "abc":
            tasks.start_soon(policy.decide, request(target=target))
            tasks.start_soon(policy.decide, request(action="delete", target=target))

    assert len(asked) == 4


async def test_a_plain_callback_is_asked_in_a_thread() -> None:
    threads: list[int] = []

    def ask(request: glue.PermissionRequest) -> bool:
        threads.append(threading.get_ident())
        return True

    assert (await glue.Ask(ask).decide(request())).allowed
    assert threads != [threading.get_ident()]


async def test_waiting_for_an_answer_can_be_cancelled() -> None:
    async def ask(request: glue.PermissionRequest) -> bool:
        await anyio.sleep_forever()
        return True

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoke, save, {"path": "a"}, glue.Ask(ask))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            scope.cancel()

    assert scope.cancelled_caught
    assert ran == []


async def test_a_person_who_does_not_answer_does_not_hold_up_a_cancellation() -> None:
    asked, gate, answered = threading.Event(), threading.Event(), threading.Event()

    def ask(request: glue.PermissionRequest) -> bool:
        asked.set()
        gate.wait(30)
        answered.set()
        return True

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoke, save, {"path": "a"}, glue.Ask(ask))
            await anyio.to_thread.run_sync(asked.wait, 30)
            scope.cancel()
    late = answered.is_set()
    gate.set()

    assert scope.cancelled_caught
    assert not late
    assert ran == []


async def test_waiting_for_an_answer_is_not_part_of_the_timeout() -> None:
    gate = anyio.Event()

    @glue.tool(needs_permission=True, timeout=0.001)
    async def quick() -> str:
        return "in time"

    async def ask(request: glue.PermissionRequest) -> bool:
        gate.set()
        await anyio.sleep(0.01)
        return True

    assert (await invoke(quick, {}, glue.Ask(ask))).text == "in time"
    assert gate.is_set()


def test_one_policy_may_serve_several_event_loops() -> None:
    async def ask(request: glue.PermissionRequest) -> bool:
        return True

    policy = glue.Ask(ask)

    assert anyio.run(policy.decide, request(), backend="asyncio").allowed
    assert anyio.run(policy.decide, request(), backend="trio").allowed
