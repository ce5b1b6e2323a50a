"""`glue.loop.pause`: runs that wait for a person or another system, and continue in any process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import glue
from glue import Agent, Cancel, Limits, Outcome, RunResult
from glue.compaction import Compaction, keep_recent
from glue.errors import RunPaused
from glue.events import ToolPending
from glue.loop.position import position_of
from glue.loop.state import State
from glue.permission import Decision, DeferAll, PermissionRequest
from glue.policies import Hook, Policy
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, shape
from glue.tools import fs

pytestmark = pytest.mark.anyio

ran: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


@glue.tool
def noop(x: int = 0) -> str:
    """Return ok."""
    ran.append(("noop", x))
    return f"noop {x}"


@glue.tool(needs_permission=True, target="x")
def deploy(x: int = 0) -> str:
    """Deploy."""
    ran.append(("deploy", x))
    return f"deployed {x}"


@glue.tool(needs_permission=True, target="x", terminates=True)
def finish(x: int = 0) -> str:
    """Finish."""
    ran.append(("finish", x))
    return f"finished {x}"


@glue.tool(external=True)
def look_up(query: str) -> str:
    """Send the query to another system."""
    raise AssertionError("an external tool never runs")


TOOLS: list[Any] = [noop, deploy, finish, look_up]


def agent(*script: Any, permission: Any = None, **settings: Any) -> Agent[None, None]:
    made = Script(*script)
    return Agent(made, tools=TOOLS, permission=permission or DeferAll("ask Ada"), **settings)


def results(result: RunResult[Any]) -> list[str]:
    return [message.text for message in result.messages if isinstance(message, glue.ToolMessage)]


async def test_s142_a_deferred_call_pauses_the_run_before_it_runs() -> None:
    result = await agent(calls(call("deploy", {"x": 2}, id="b"))).run("go", unwrap=False)

    assert result.outcome is Outcome.PAUSED
    assert result.outcome.exit_code == 6
    assert not result.complete
    assert (result.requests, result.turns, ran) == (1, 1, [])
    [pending] = result.pending
    assert (pending.id, pending.tool, pending.arguments) == ("b", "deploy", {"x": 2})
    assert (pending.reason, pending.path) == ("ask Ada", ())
    assert pending.request == PermissionRequest(
        tool="deploy", action="deploy", target="2", arguments={"x": 2}, call_id="b"
    )
    assert shape(result.messages) == "u a"
    assert result.position.step == "await"
    assert result.stop_reason is glue.StopReason.TOOL_USE


async def test_s142_a_paused_run_raises_an_error_that_lists_the_calls() -> None:
    with pytest.raises(RunPaused, match=r"waits for 1 call: b \(deploy 2\); answer with") as caught:
        await agent(calls(call("deploy", {"x": 2}, id="b"))).run("go")

    assert caught.value.pending == caught.value.result.pending  # type: ignore[union-attr]


async def test_s143_the_other_calls_of_the_batch_run_and_results_keep_their_order() -> None:
    made = agent(
        calls(call("noop", {"x": 1}), call("deploy", id="b"), call("noop", {"x": 3})), "ok"
    )

    paused = await made.run("go", unwrap=False)
    result = await made.resume(paused, decisions={"b": glue.allow()})

    assert results(paused) == ["noop 1", "noop 3"]
    assert [each.id for each in paused.pending] == ["b"]
    assert results(result) == ["noop 1", "deployed 0", "noop 3"]
    assert result.text == "ok"


async def test_s143_calls_that_run_one_by_one_wait_for_the_deferred_call() -> None:
    limits = Limits(parallel_tools=1)
    made = agent(calls(call("deploy", id="b"), call("noop", {"x": 3})), "ok", limits=limits)

    paused = await made.run("go", unwrap=False)
    assert ran == []
    assert [each.id for each in paused.pending] == ["b"]
    result = await made.resume(paused, decisions={"b": glue.allow()})

    assert ran == [("deploy", 0), ("noop", 3)]
    assert results(result) == ["deployed 0", "noop 3"]


STORES: dict[str, Callable[[Path], Any]] = {
    "files": lambda path: glue.FileStore(path / "sessions"),
    "sqlite": lambda path: glue.SQLiteStore(path / "sessions.db"),
}


@pytest.mark.parametrize("kind", STORES)
async def test_s144_another_process_allows_the_call_which_runs_once(
    kind: str, tmp_path: Path
) -> None:
    script = calls(call("deploy", {"x": 2}, id="b"))
    await agent(script).session("s", store=STORES[kind](tmp_path)).run("go", unwrap=False)
    other = agent("done").session("s", store=STORES[kind](tmp_path))

    [pending] = await other.pending()
    result = await other.resume(decisions={pending.id: glue.allow()})

    assert pending.arguments == {"x": 2}
    assert ran == [("deploy", 2)]
    assert (result.text, result.requests, result.outcome) == ("done", 2, Outcome.DONE)
    assert await other.pending() == ()
    assert position_of(await other.load()).step == "over"


async def test_s145_a_denied_call_gets_an_error_result_with_the_reason() -> None:
    made = agent(calls(call("deploy", id="b")), "ok")

    paused = await made.run("go", unwrap=False)
    result = await made.resume(paused, decisions={"b": glue.deny("not now")})

    assert results(result) == ["permission denied: deploy 0: not now"]
    assert (ran, result.requests, result.outcome) == ([], 2, Outcome.DONE)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("by hand", "by hand"),
        (glue.text_result("by hand"), "by hand"),
        ({"ok": True}, '{"ok": true}'),
    ],
)
async def test_s146_a_supplied_result_is_used_and_the_tool_does_not_run(
    answer: Any, text: str
) -> None:
    made = agent(calls(call("deploy", id="b")), "ok")

    paused = await made.run("go", unwrap=False)
    result = await made.resume(paused, decisions={"b": answer})

    assert results(result) == [text]
    assert ran == []


async def test_s147_the_run_stays_paused_until_every_call_is_decided() -> None:
    made = agent(calls(call("deploy", {"x": 1}, id="a"), call("deploy", {"x": 2}, id="b")), "ok")
    paused = await made.run("go", unwrap=False)

    half = await made.resume(paused, decisions={"b": glue.allow()}, unwrap=False)

    assert (half.outcome, half.requests) == (Outcome.PAUSED, 1)
    assert [each.id for each in half.pending] == ["a"]
    assert ran == [("deploy", 2)]

    result = await made.resume(half, decisions={"a": glue.allow()})

    assert results(result) == ["deployed 1", "deployed 2"]
    assert (result.requests, result.turns) == (2, 1)


async def test_s147_resuming_without_a_decision_changes_nothing() -> None:
    made = agent(calls(call("deploy", id="b")))
    paused = await made.run("go", unwrap=False)

    again = await made.resume(paused, unwrap=False)

    assert (again.outcome, again.requests, ran) == (Outcome.PAUSED, 1, [])
    assert again.messages[:1] == paused.messages[:1]
    assert again.pending == paused.pending


async def test_s148_an_external_tool_pauses_without_a_permission_policy() -> None:
    made = Agent(Script(calls(call("look_up", {"query": "x"}, id="q")), "ok"), tools=TOOLS)

    paused = await made.run("go", unwrap=False)
    result = await made.resume(paused, decisions={"q": "42"})

    assert [(each.tool, each.request) for each in paused.pending] == [("look_up", None)]
    assert results(result) == ["42"]


async def test_s148_the_error_of_a_paused_run_asks_for_the_results_of_external_tools() -> None:
    look = call("look_up", {"query": "x"}, id="a")

    with pytest.raises(RunPaused, match=r"answer with resume\(decisions=\{id: result\}\)$"):
        await agent(calls(look)).run("go")
    with pytest.raises(RunPaused, match=r"decisions=\{id: glue.allow\(\), id: result\}\)$"):
        await agent(calls(look, call("deploy", id="b"))).run("go")


async def test_s148_an_external_tool_cannot_be_allowed_because_it_never_runs() -> None:
    made = Agent(Script(calls(call("look_up", {"query": "x"}, id="q"))), tools=TOOLS)
    paused = await made.run("go", unwrap=False)

    with pytest.raises(ValueError, match=r"look_up is an external tool.*give its result"):
        await made.resume(paused, decisions={"q": glue.allow()})


async def test_s148_a_call_of_an_external_tool_can_be_denied_with_a_reason() -> None:
    made = Agent(Script(calls(call("look_up", {"query": "x"}, id="q")), "ok"), tools=TOOLS)
    paused = await made.run("go", unwrap=False)

    result = await made.resume(paused, decisions={"q": glue.deny("no access")})

    assert results(result) == ["permission denied: look_up: no access"]
    assert result.text == "ok"


@pytest.mark.parametrize(("reason", "shown"), [("later", "later"), ("", "ask Ada")])
async def test_s148_a_call_that_is_deferred_again_keeps_its_question(
    reason: str, shown: str
) -> None:
    made = agent(calls(call("deploy", {"x": 3}, id="d")), "ok")
    paused = await made.run("go", unwrap=False)

    again = await made.resume(paused, decisions={"d": glue.defer(reason)}, unwrap=False)
    done = await made.resume(again, decisions={"d": glue.allow()})

    (waiting,) = again.pending
    assert waiting.request == paused.pending[0].request
    assert (waiting.summary, waiting.reason) == ("deploy 3", shown)
    assert results(done) == ["deployed 3"]


async def test_s148_wrong_arguments_of_an_external_tool_go_back_to_the_model() -> None:
    made = Agent(Script(calls(call("look_up", {})), "ok"), tools=TOOLS)

    result = await made.run("go")

    assert "query" in results(result)[0]


async def test_s149_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    write = call("write_file", {"path": "a.txt", "content": "two\n"}, id="w")
    read = call("read_file", {"path": "a.txt"})
    made = Agent(
        Script(calls(read), calls(write), "ok"),
        tools=fs.tools(tmp_path, write=True),
        permission=DeferAll(),
    )
    paused = await made.run("go", unwrap=False)
    [shown] = paused.pending
    file.write_text("three\n")

    again = await made.resume(paused, decisions={"w": glue.allow()}, unwrap=False)

    assert again.outcome is Outcome.PAUSED
    assert file.read_text() == "three\n"
    [now] = again.pending
    assert shown.request is not None
    assert now.request is not None
    assert "-one" in shown.request.touched.preview  # type: ignore[union-attr]
    assert "-three" in now.request.touched.preview  # type: ignore[union-attr]
    assert now.reason == "the target of the call has changed since the decision was requested"

    # In another process, in which no tool has read the old file.
    other = Agent(Script("ok"), tools=fs.tools(tmp_path, write=True), permission=DeferAll())
    result = await other.resume(again, decisions={"w": glue.allow()})

    assert result.text == "ok"
    assert file.read_text() == "two\n"


async def test_s149_another_process_may_write_the_file_that_was_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    write = call("write_file", {"path": "a.txt", "content": "two\n"}, id="w")
    script = Script(calls(call("read_file", {"path": "a.txt"})), calls(write), "ok")
    made = Agent(script, tools=fs.tools(tmp_path, write=True), permission=DeferAll())
    paused = await made.run("go", unwrap=False)
    other = Agent(script, tools=fs.tools(tmp_path, write=True), permission=DeferAll())

    result = await other.resume(paused, decisions={"w": glue.allow()})

    assert result.text == "ok"
    assert (tmp_path / "a.txt").read_text() == "two\n"


def nested(*outer: Any) -> Agent[None, None]:
    inner = Agent(
        Script(calls(call("deploy", {"x": 7}, id="i")), "inner ok"), name="inner", tools=TOOLS
    )
    middle_script = Script(calls(call("inner", {"prompt": "dig"}, id="m")), "middle ok")
    middle = Agent(middle_script, name="middle", tools=[inner.as_tool("inner", "Dig.")])
    script = Script(calls(call("middle", {"prompt": "work"}, id="o")), "outer ok", *outer)
    return Agent(script, tools=[middle.as_tool("middle", "Work.")], permission=DeferAll())


async def test_s150_a_call_inside_two_sub_agents_waits_and_continues() -> None:
    made = nested()
    paused = await made.run("go", unwrap=False)

    [pending] = paused.pending
    assert (pending.id, pending.path) == ("o/m/i", ("middle", "inner"))
    assert pending.summary == "middle: inner: deploy 7"
    stored = glue.from_json(RunResult, json.loads(json.dumps(glue.to_json(paused))))

    result = await made.resume(stored, decisions={"o/m/i": glue.allow()})

    assert ran == [("deploy", 7)]
    assert result.text == "outer ok"
    assert results(result) == ["middle ok"]
    assert shape(result.messages) == "u a t a"
    assert result.usage.cost is not None or result.usage.output >= 0


async def test_s150_a_denied_call_of_a_sub_agent_does_not_run() -> None:
    made = nested()
    paused = await made.run("go", unwrap=False)

    result = await made.resume(paused, decisions={"o/m/i": glue.deny("no")})

    assert (ran, result.text) == ([], "outer ok")


async def test_s152_a_new_prompt_on_a_paused_session_names_the_pending_calls() -> None:
    session = agent(calls(call("deploy", id="b")), "fine").session("s", store=MemoryStore())
    await session.run("go", unwrap=False)

    with pytest.raises(RunPaused, match=r"session 's' waits for 1 call: b .*reject_pending"):
        await session.run("something else")
    rejected = await session.reject_pending("too late")
    result = await session.run("something else")

    assert [each.id for each in rejected] == ["b"]
    assert (ran, result.text) == ([], "fine")
    assert results(result) == ["permission denied: deploy 0: too late"]


async def test_s152_rejected_calls_get_their_results_in_the_order_of_the_calls() -> None:
    script = calls(call("deploy", id="a"), call("noop"), call("deploy", id="b"))
    session = agent(script, "fine").session("s", store=MemoryStore())
    await session.run("go", unwrap=False)

    await session.reject_pending()
    result = await session.resume()

    assert results(result) == [
        "permission denied: deploy 0",
        "noop 0",
        "permission denied: deploy 0",
    ]


def test_pending_calls_are_answered_without_async(tmp_path: Path) -> None:
    session = agent(calls(call("deploy", id="b")), "ok").session(
        "s", store=glue.FileStore(tmp_path)
    )
    session.run_sync("go", unwrap=False)

    [pending] = session.pending_sync()
    result = session.resume_sync(decisions={pending.id: glue.allow()})

    assert result.text == "ok"
    assert session.reject_pending_sync() == ()


async def test_s153_turns_count_on_across_a_pause() -> None:
    script = [calls(call("deploy", id="b")), calls(call("noop")), calls(call("noop"))]
    made = agent(*script, limits=Limits(max_turns=2))
    paused = await made.run("go", unwrap=False)

    result = await made.resume(paused, decisions={"b": glue.allow()}, unwrap=False)

    assert (result.outcome, result.turns, result.requests) == (Outcome.MAX_TURNS, 2, 2)
    assert result.run_id == paused.run_id


async def test_s153_requests_and_money_count_on_across_a_pause() -> None:
    priced = glue.Usage(input=10, output=10, cost=0.4)
    script = [calls(call("deploy", id="b"), usage=priced), calls(call("noop"), usage=priced), "ok"]
    made = agent(*script, limits=Limits(usd_budget=0.5), prices={"script": (1, 1)})
    paused = await made.run("go", unwrap=False)

    result = await made.resume(paused, decisions={"b": glue.allow()}, unwrap=False)

    assert paused.usage.cost == pytest.approx(0.4)
    assert result.outcome is Outcome.BUDGET
    assert result.usage.cost == pytest.approx(0.8)


async def test_s154_a_fork_of_a_paused_session_waits_and_is_answered_on_its_own() -> None:
    made = agent(calls(call("deploy", {"x": 1}, id="b")), "done", "also done")
    session = made.session("s", store=MemoryStore())
    await session.run("deploy the server", unwrap=False)

    fork = await session.fork(id="fork")
    first = await fork.resume(decisions={"b": glue.deny("not here")})

    assert [each.id for each in await session.pending()] == ["b"]
    assert results(first) == ["permission denied: deploy 1: not here"]
    assert results(await session.resume(decisions={"b": glue.allow()})) == ["deployed 1"]
    assert ran == [("deploy", 1)]
    assert {hit.session for hit in await session.store.search("server")} == {"s", "fork"}


async def test_s154_a_compacted_session_pauses_and_continues() -> None:
    made = agent(
        "hello",
        calls(call("deploy", {"x": 1}, id="b")),
        "done",
        policies=[Compaction(keep_recent(1), window=500)],
    )
    session = made.session("s", store=MemoryStore())
    await session.run("x" * 4000)

    paused = await session.run("go", unwrap=False)
    done = await session.resume(decisions={"b": glue.allow()})

    assert (paused.outcome, done.outcome) == (Outcome.PAUSED, Outcome.DONE)
    kept = [message for message in done.messages if not message.excluded]
    assert (shape(kept), results(done)) == ("u a t a", ["deployed 1"])


@pytest.mark.parametrize("wrong", ["zz", "b/x"])
async def test_s155_a_decision_for_an_unknown_call_names_the_pending_ones(wrong: str) -> None:
    made = agent(calls(call("deploy", id="b")))
    paused = await made.run("go", unwrap=False)

    with pytest.raises(ValueError, match=rf"contains '{wrong}'.*pending calls: b \(deploy 0\)"):
        await made.resume(paused, decisions={"b": glue.allow(), wrong: glue.allow()})

    assert ran == []


async def test_s155_a_decision_for_an_answered_call_is_refused() -> None:
    made = agent(calls(call("noop", id="n"), call("deploy", id="b")), "ok")
    paused = await made.run("go", unwrap=False)

    with pytest.raises(ValueError, match="contains 'n'"):
        await made.resume(paused, decisions={"n": glue.allow()})


@pytest.mark.parametrize("wrong", [True, None])
async def test_s155_a_decision_that_is_not_a_decision_is_a_type_error(wrong: Any) -> None:
    made = agent(calls(call("deploy", id="b")))
    paused = await made.run("go", unwrap=False)

    with pytest.raises(TypeError, match=r"must be glue.allow\(\), glue.deny\(reason\) or a result"):
        await made.resume(paused, decisions={"b": wrong})


async def test_s156_a_cancellation_wins_over_a_pending_call() -> None:
    cancel = glue.Cancel()

    class Quits:
        def decide(self, request: PermissionRequest) -> Decision:
            cancel.cancel()
            return glue.defer()

    made = agent(calls(call("deploy", id="b")), permission=Quits())

    result = await made.run("go", cancel=cancel, unwrap=False)

    assert (result.outcome, result.pending) == (Outcome.CANCELLED, ())
    assert results(result) == ["cancelled"]


async def test_s156_votes_to_end_wait_for_the_pending_call() -> None:
    class OnlyTwo:
        def decide(self, request: PermissionRequest) -> Decision:
            return glue.defer() if request.arguments["x"] == 2 else glue.allow()

    script = calls(call("finish", {"x": 1}, id="a"), call("finish", {"x": 2}, id="b"))
    made = agent(script, permission=OnlyTwo())

    paused = await made.run("go", unwrap=False)
    result = await made.resume(paused, decisions={"b": glue.allow()})

    assert paused.outcome is Outcome.PAUSED
    assert (result.outcome, result.requests) == (Outcome.DONE, 1)
    assert results(result) == ["finished 1", "finished 2"]


async def test_a_paused_result_survives_json_and_continues() -> None:
    made = agent(calls(call("noop"), call("deploy", id="b")), "ok")
    paused = await made.run("go", unwrap=False)

    stored = glue.from_json(RunResult, json.loads(json.dumps(glue.to_json(paused))))

    assert stored.pending == paused.pending
    assert stored.position == paused.position
    assert isinstance(stored.error, RunPaused)
    assert stored.error.pending == paused.pending
    result = await made.resume(stored, decisions={"b": glue.allow()})
    assert result.text == "ok"


async def test_a_remembered_decision_is_refused_if_the_policy_cannot_remember() -> None:
    made = agent(calls(call("deploy", id="b")), "ok")
    paused = await made.run("go", unwrap=False)

    with pytest.raises(ValueError, match="DeferAll cannot remember a decision for 'session'"):
        await made.resume(paused, decisions={"b": glue.allow("session")})


async def test_a_decision_for_the_session_is_remembered_by_the_policy() -> None:
    asked: list[str] = []

    def ask(request: PermissionRequest) -> Decision:
        asked.append(request.target)
        return glue.defer()

    script = [calls(call("deploy", {"x": 1}, id="b")), calls(call("deploy", {"x": 2})), "ok"]
    made = agent(*script, permission=glue.Ask(ask))
    session = made.session("s", store=MemoryStore())
    await session.run("go", unwrap=False)

    result = await session.resume(decisions={"b": glue.allow("session")})

    assert asked == ["1"]
    assert (result.text, ran) == ("ok", [("deploy", 1), ("deploy", 2)])


async def test_the_store_has_the_question_before_it_is_asked_and_the_yes_before_the_call_runs() -> (
    None
):
    store = MemoryStore()
    stored: list[tuple[str, list[str], list[str]]] = []

    async def look(moment: str) -> None:
        reply = (await store.load("s"))[-1]
        meta = reply.meta or {}
        stored.append((moment, sorted(meta.get("pending", {})), list(meta.get("started", ()))))

    async def decide(request: PermissionRequest) -> Decision:
        await look("asked")
        return glue.allow()

    @glue.tool(needs_permission=True)
    async def publish() -> str:
        """Publish."""
        await look("runs")
        return "published"

    writer = Agent(
        Script(calls(call("publish", id="p")), "done"),
        tools=[publish],
        permission=glue.Ask(decide),
    )

    await writer.session("s", store=store).run("go")

    assert stored == [("asked", ["p"], []), ("runs", ["p"], ["p"])]


async def test_a_run_without_a_store_keeps_no_record_of_a_question_that_was_answered() -> None:
    def decide(request: PermissionRequest) -> Decision:
        return glue.allow()

    result = await agent(calls(call("deploy")), "done", permission=glue.Ask(decide)).run("go")

    replies = [each for each in result.messages if isinstance(each, glue.AssistantMessage)]
    assert "pending" not in (replies[0].meta or {})


async def test_a_waiting_call_is_an_event_and_only_a_paused_result_has_pending_calls() -> None:
    seen: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, ToolPending):
            seen.append(event.call.id)

    paused = await agent(calls(call("deploy", id="a"))).run("go", unwrap=False, on_event=listen)
    stop = Cancel()
    stop.cancel()
    cancelled = await agent("never sent").resume(paused, cancel=stop, unwrap=False)

    assert seen == ["a"]
    assert [each.id for each in paused.pending] == ["a"]
    assert (cancelled.outcome, cancelled.pending) == (Outcome.CANCELLED, ())


async def test_after_a_pause_policies_see_the_results_of_the_whole_batch() -> None:
    seen: list[list[str]] = []

    class Watch(Policy):
        def after_tools(self, state: State, results: Sequence[glue.ToolMessage]) -> Hook:
            seen.append([each.text for each in results])
            return None

    first = agent("", policies=[Watch()])
    script = Script(calls(call("noop", {"x": 1}), call("deploy", {"x": 2}, id="b")), "done")
    paused = await first.run("go", model=script, unwrap=False)
    await first.resume(paused, decisions={"b": glue.allow()}, model=script)

    assert seen == [["noop 1", "deployed 2"]]
