"""Permission: policies that allow and refuse tool calls."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import glue
from glue.context import Spending
from glue.testing import Script, call
from glue.toolnames import registered_tool_names
from glue.tools import fs, git, shell


def request(
    action: str = "write", target: str = "a", session: str = "s"
) -> glue.permission.PermissionRequest:
    return glue.permission.PermissionRequest(
        tool="save", action=action, target=target, arguments={}, session_id=session
    )


ran: list[str] = []


@glue.tool(needs_permission="write", target="path")
async def save(path: str = "default.txt", text: str = "") -> str:
    ran.append(path)
    return "saved"


async def invoke(tool: glue.Tool[..., Any], arguments: Any, policy: Any) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.context.Host(permission=policy, session_id="s"),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None,
    )
    ran.clear()
    return await tool.invoke(asked, context)


class Policy:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[glue.permission.PermissionRequest] = []

    def decide(self, request: glue.permission.PermissionRequest) -> Any:
        self.seen.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_call_without_a_policy_is_refused() -> None:
    result = await invoke(save, {"path": "a.txt"}, None)

    assert result.is_error
    assert result.text == "permission denied: write a.txt: no permission policy is set"
    assert ran == []


async def test_a_policy_gets_the_tool_its_target_and_its_arguments() -> None:
    policy = Policy(glue.allow())

    result = await invoke(save, {"path": "a.txt", "text": "hello"}, policy)

    assert result.text == "saved"
    assert policy.seen == [
        glue.permission.PermissionRequest(
            tool="save",
            action="write",
            target="a.txt",
            arguments={"path": "a.txt", "text": "hello"},
            call_id="c1",
            session_id="s",
        )
    ]


async def test_the_target_is_the_default_of_an_omitted_argument() -> None:
    policy = Policy(glue.allow())

    await invoke(save, {}, policy)

    assert policy.seen[0].target == "default.txt"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (glue.deny("not today"), "permission denied: write a: not today"),
        (glue.deny(), "permission denied: write a"),
        (False, "permission denied: write a"),
        (None, "permission denied: write a: the policy answered None, which is not a decision"),
        ("yes", "permission denied: write a: the policy answered 'yes', which is not a decision"),
        (OSError("no terminal"), "save: permission denied: no terminal"),
    ],
)
async def test_any_answer_except_true_or_a_decision_is_a_refusal(answer: Any, text: str) -> None:
    result = await invoke(save, {"path": "a"}, Policy(answer))

    assert result.is_error
    assert result.text == text
    assert ran == []


async def test_a_call_is_refused_if_its_target_function_fails() -> None:
    @glue.tool(needs_permission=True, target=lambda arguments: str(arguments["nothing"]))
    def one(path: str) -> None:
        ran.append(path)

    result = await invoke(one, {"path": "a"}, glue.AllowAll())

    assert result.is_error
    assert ran == []


async def test_the_action_is_the_name_of_the_tool_by_default() -> None:
    @glue.tool(needs_permission=True)
    def one() -> str:
        return "ran"

    policy = Policy(True)

    assert (await invoke(one, {}, policy)).text == "ran"
    assert policy.seen[0].action == "one"


async def test_a_policy_is_not_asked_about_invalid_arguments() -> None:
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


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("docs/a.md", True),
        ("docs/./a.md", True),
        ("docs/../a.md", False),
        ("docs/../b.md", False),
        ("c//d.md", False),
    ],
)
async def test_rules_normalize_a_target_that_is_a_path(path: str, allowed: bool) -> None:
    rules = glue.Rules(allow=["write:docs/*", "write:c//*"], deny=["write:b.md", "write:c/d.md"])

    assert (await invoke(save, {"path": path}, rules)).is_error is not allowed


def asker(*answers: Any) -> tuple[list[glue.permission.PermissionRequest], Any]:
    asked: list[glue.permission.PermissionRequest] = []

    def ask(request: glue.permission.PermissionRequest) -> Any:
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
async def test_a_decision_is_remembered_for_its_scope(scope: Any, again: dict[str, bool]) -> None:
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


async def test_a_refusal_is_remembered_until_forget_is_called() -> None:
    asked, ask = asker(glue.deny("never", "always"), True)
    policy = glue.Ask(ask)

    assert not (await policy.decide(request())).allowed
    assert (await policy.decide(request(target="b"))).reason == "never"
    policy.forget()
    assert (await policy.decide(request())).allowed
    assert len(asked) == 2


async def test_one_question_is_asked_at_a_time_and_waiting_calls_use_its_answer() -> None:
    open_questions: list[int] = []
    asked: list[str] = []

    async def ask(request: glue.permission.PermissionRequest) -> glue.permission.Decision:
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


async def test_a_plain_callback_runs_in_a_thread() -> None:
    threads: list[int] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        threads.append(threading.get_ident())
        return True

    assert (await glue.Ask(ask).decide(request())).allowed
    assert threads != [threading.get_ident()]


async def test_waiting_for_an_answer_can_be_cancelled() -> None:
    async def ask(request: glue.permission.PermissionRequest) -> bool:
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


async def test_a_callback_that_blocks_does_not_delay_a_cancellation() -> None:
    asked, gate, answered = threading.Event(), threading.Event(), threading.Event()

    def ask(request: glue.permission.PermissionRequest) -> bool:
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


async def test_waiting_for_an_answer_does_not_count_towards_the_timeout() -> None:
    gate = anyio.Event()

    @glue.tool(needs_permission=True, timeout=0.001)
    async def quick() -> str:
        return "in time"

    async def ask(request: glue.permission.PermissionRequest) -> bool:
        gate.set()
        await anyio.sleep(0.01)
        return True

    assert (await invoke(quick, {}, glue.Ask(ask))).text == "in time"
    assert gate.is_set()


def test_one_policy_may_serve_several_event_loops() -> None:
    async def ask(request: glue.permission.PermissionRequest) -> bool:
        return True

    policy = glue.Ask(ask)

    assert anyio.run(policy.decide, request(), backend="asyncio").allowed
    assert anyio.run(policy.decide, request(), backend="trio").allowed


# Files and commands -------------------------------------------------------------------------------


def writer(root: Path) -> dict[str, glue.Tool[..., Any]]:
    return {tool.name: tool for tool in fs.tools(root, write=True)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("docs", "src", ".github"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src/main.py").write_text("x = 1\n")
    (tmp_path / "docs/link.md").symlink_to("../src/main.py")
    (tmp_path / "docs/inner").symlink_to("../src")
    return tmp_path


DOCS = glue.Rules(allow=["write_file:docs/*", "edit_file:docs/*"])


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("docs/a.md", True),
        ("./docs//a.md", True),
        ("docs/new/folder/a.md", True),
        ("{root}/docs/a.md", True),
        ("src/../docs/a.md", True),
        ("docs/../src/evil.py", False),
        ("docs/inner/evil.py", False),
        ("docs/link.md", False),
        ("docs/../../outside", False),
        ("docs", False),
        ("src/main.py", False),
    ],
)
async def test_rules_are_compared_with_the_path_after_resolving_links(
    project: Path, path: str, allowed: bool
) -> None:
    before = (project / "src/main.py").read_text()

    given = {"path": path.replace("{root}", str(project)), "content": "new\n"}
    result = await invoke(writer(project)["write_file"], given, DOCS)

    assert result.is_error is not allowed
    assert (project / "src/main.py").read_text() == before
    assert not (project / "src/evil.py").exists()


@pytest.mark.parametrize(
    "path",
    [
        ".github/x",
        "./.github/x",
        "docs/../.github/x",
        ".github//x",
        ".github/./x",
        "{root}/.github/x",
    ],
)
async def test_a_denied_path_is_refused_in_every_spelling(project: Path, path: str) -> None:
    policy = glue.Rules(deny=["write_file:.github/*"], otherwise=glue.AllowAll())

    given = {"path": path.replace("{root}", str(project)), "content": ""}
    result = await invoke(writer(project)["write_file"], given, policy)

    assert "forbids it" in result.text
    assert not (project / ".github/x").exists()


async def test_rules_are_compared_with_the_link_and_with_its_target(project: Path) -> None:
    edit = writer(project)["edit_file"]
    given = {"path": "docs/link.md", "old": "x = 1", "new": "x = 2"}
    for rule in ("edit_file:docs/*", "edit_file:src/*"):
        assert (await invoke(edit, given, glue.Rules(allow=[rule]))).is_error
        result = await invoke(edit, given, glue.Rules(deny=[rule], otherwise=glue.AllowAll()))
        assert "forbids it" in result.text


async def test_a_folder_replaced_by_a_link_after_the_question_is_not_written_to(
    project: Path,
) -> None:
    class Swap:
        def decide(self, request: glue.permission.PermissionRequest) -> glue.permission.Decision:
            assert request.target == "docs/new.py"
            (project / "docs/link.md").unlink()
            (project / "docs/inner").unlink()
            (project / "docs").rmdir()
            (project / "docs").symlink_to("src")
            return glue.allow()

    result = await invoke(
        writer(project)["write_file"], {"path": "docs/new.py", "content": "x"}, Swap()
    )

    assert "no longer leads to the permitted file" in result.text
    assert not (project / "src/new.py").exists()


@pytest.mark.parametrize("tool", ["write_file", "shell"])
async def test_the_shown_target_contains_no_control_characters(tmp_path: Path, tool: str) -> None:
    (asks,) = (
        each
        for each in [*fs.tools(tmp_path, write=True), shell.tool(tmp_path)]
        if each.name == tool
    )
    asked, ask = asker(False)
    text = "docs\x1b[2K\r\u202eok"
    arguments = {"path": text, "content": "x"} if tool == "write_file" else {"command": text}

    await invoke(asks, arguments, glue.Ask(ask))

    assert asked[0].target.isprintable()
    assert json.dumps(text) in asked[0].target


GIT = glue.Rules(allow=["shell:git *"])


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git log", True),
        ("  git\tlog --oneline", True),
        ("git log 'a; b'", True),
        ("'git' log", True),
        (["git", "log"], True),
        ("git diff src/*.py", True),
        ("git log; rm -rf .", False),
        ("git log && rm x", False),
        ("git log | sh", False),
        ("git log &", False),
        ("git log\nrm x", False),
        ("git log $(rm x)", False),
        ("git log `rm x`", False),
        ("git log $HOME", False),
        ("git log > x", False),
        ("git log < x", False),
        ("PAGER=evil git log", False),
        ("git *", False),
        ("git log \x01", False),
        ("git add" + " x" * 600, False),  # too many words to check
        ("gitx log", False),
        ("'git log' x", False),
        ("git log 'open", False),
        (["sh", "-c", "git log"], False),
    ],
)
async def test_a_shell_rule_allows_one_simple_command(
    tmp_path: Path, command: Any, allowed: bool
) -> None:
    asked = shell.tool(tmp_path).target({"command": command})  # type: ignore[operator]
    made = glue.permission.PermissionRequest(
        tool="shell", action="shell", target=asked.text, arguments={}, touched=asked
    )

    assert GIT.decide(made).allowed is allowed  # type: ignore[union-attr]


NO_RM = glue.Rules(deny=["shell:rm *"], otherwise=glue.AllowAll())


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("ls -l", True),
        ("ls *.py", True),
        ("echo rm x", True),
        ("git log; ls", True),
        ("make > log 2>&1", True),
        ("find . -name '*.py' | xargs grep x", True),
        ("find src/env -name time -exec grep x {} +", True),
        ("bash -eu -c 'ls -l'", True),
        ("rm x", False),
        ("rm" + " x" * 600, False),
        ("\trm x", False),
        (" rm\tx", False),
        ("r''m x", False),
        ("r\\m x", False),
        ("$'\\x72m' x", False),
        ("/bin/rm x", False),
        ("A=1 rm x", False),
        ("ls; rm x", False),
        ("ls && (rm x)", False),
        ("if ls; then rm x; fi", False),
        ("env rm x", False),
        ("xargs rm x", False),
        ("sh -c 'rm x'", False),
        ("sh -c -- 'rm x'", False),
        ("bash -co errexit 'rm x'", False),
        ("bash script -c ls", False),  # runs the script
        ("env -S'rm' x", False),
        ("env -iSrm x", False),
        ("env --split-string=rm x", False),
        ("echo x | xargs rm", False),
        ("echo rm x | xargs env", False),
        ("echo 'rm x' | xargs -IX sh -c X", False),
        ("find /bin -name rm -exec {} x +", False),
        ("find /bin -name rm -exec nice {} x +", False),
        ("hash -p /bin/rm ls; ls x", False),
        ("echo rm x | parallel", False),
        ("rm $HOME", False),
        ("$RM x", False),
        ("x=rm; $x y", False),
        ("echo $(rm x)", False),
        ("eval 'rm x'", False),
        ("/bin/r? x", False),
        ("{rm,x}", False),
        (["rm", "x"], False),
    ],
)
async def test_a_denied_command_is_refused_wherever_it_is_in_a_line(
    tmp_path: Path, command: Any, allowed: bool
) -> None:
    asked = shell.tool(tmp_path).target({"command": command})  # type: ignore[operator]
    made = glue.permission.PermissionRequest(
        tool="shell", action="shell", target=asked.text, arguments={}, touched=asked
    )

    assert NO_RM.decide(made).allowed is allowed  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rule", "command", "allowed"),
    [
        ("rm", "rm x", False),
        ("rm", "/bin/rm x", False),
        ("rm *secret*", "rm x", True),
        ("rm *secret*", "rm a/sec*", False),  # only the shell knows which files match
        ("rm *--force", "rm x", True),
        ("rm *--force", "rm" + " x" * 600 + " --force", False),
    ],
)
def test_a_denied_pattern_also_refuses_words_that_only_the_shell_knows(
    tmp_path: Path, rule: str, command: str, allowed: bool
) -> None:
    asked = shell.tool(tmp_path).target({"command": command})  # type: ignore[operator]
    made = glue.permission.PermissionRequest(
        tool="shell", action="shell", target=asked.text, arguments={}, touched=asked
    )
    policy = glue.Rules(deny=[f"shell:{rule}"], otherwise=glue.AllowAll())

    assert policy.decide(made).allowed is allowed  # type: ignore[union-attr]


async def test_a_line_that_cannot_be_parsed_is_left_to_a_person(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path)
    asked, ask = asker(True)

    result = await invoke(
        tool,
        {"command": "echo $(echo a)"},
        glue.Rules(deny=["shell:rm *"], otherwise=glue.Ask(ask)),
    )

    assert result.text == "a\n[exit code 0]"
    assert asked[0].target.partition(" [")[0] == "echo $(echo a)"
    without_a_person: list[glue.permission.Permission] = [
        glue.permission.DenyAll(),
        glue.AllowAll(),
        glue.Rules(allow=["shell"]),
        glue.Rules(otherwise=glue.AllowAll()),
    ]
    for otherwise in without_a_person:
        policy = glue.Rules(allow=["shell"], deny=["shell:rm *"], otherwise=otherwise)
        assert (await invoke(tool, {"command": "echo $(echo a)"}, policy)).is_error


@pytest.mark.parametrize(
    "rules", [{"allow": ["wirte_file"]}, {"deny": ["shel:rm *"]}, {"deny": ["read_file"]}]
)
async def test_a_rule_that_can_never_apply_is_rejected(
    tmp_path: Path, rules: dict[str, Any]
) -> None:
    agent = glue.Agent(
        Script("done"), tools=fs.tools(tmp_path, write=True), permission=glue.Rules(**rules)
    )

    with pytest.raises(
        glue.errors.ConfigError, match=r"the rule '.*' (names no known tool|has no effect)"
    ):
        await agent.run("x")


async def test_rules_may_name_tools_of_sub_agents_and_registered_tools(
    tmp_path: Path,
) -> None:
    inner = glue.Agent(Script("done"), tools=[save], name="inner")
    rules = glue.Rules(allow=["write", "shell:ls", "edit_*"])
    agent = glue.Agent(Script("done"), tools=[inner.as_tool()], permission=rules)

    assert (await agent.run("x")).text == "done"


def test_the_names_of_all_tools_of_glue_are_registered(tmp_path: Path) -> None:
    made = [
        *fs.tools(tmp_path, write=True),
        *git.tools(tmp_path, trust=True),
        *shell.tools(tmp_path),
    ]

    assert {tool.name for tool in made} <= registered_tool_names()


async def test_a_remembered_decision_applies_only_to_the_same_file_or_command(
    tmp_path: Path,
) -> None:
    asked, ask = asker(*[glue.allow("target")] * 9)
    policy = glue.Ask(ask)
    run = shell.tool(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("")

    for given in (
        {"command": "true"},
        {"command": "true", "timeout": 9},
        {"command": "true", "cwd": "sub"},
    ):
        await invoke(run, given, policy)
    assert len(asked) == 2  # the folder counts, the timeout does not
    for path in ("a", "./a", "sub/../a", "b"):
        await invoke(writer(tmp_path)["write_file"], {"path": path, "content": path}, policy)
    assert len(asked) == 4


async def test_decisions_compare_long_arguments_completely() -> None:
    asked, ask = asker(glue.allow("target"), glue.deny())
    policy = glue.Ask(ask)

    def made(text: str) -> glue.permission.PermissionRequest:
        return glue.permission.PermissionRequest(
            tool="m", action="m", target=text[:500], arguments={"text": text}
        )

    assert (await policy.decide(made("x" * 600 + "safe"))).allowed
    assert not (await policy.decide(made("x" * 600 + "evil"))).allowed
    assert len(asked) == 2


async def test_a_decision_for_a_session_applies_to_its_sub_agents_only() -> None:
    def run(id: str, session: str, parent: Any = None) -> glue.Context[Any]:
        host = glue.context.Host(run_id=id, session_id=session, parent=parent, permission=policy)
        asked = call("save", {"path": "a"}, id="c")
        return glue.Context(
            call=asked,
            host=host,
            cancel=glue.Cancel(),
            spending=Spending(),
            report=lambda *said: None,
        )

    asked, ask = asker(*[glue.allow("session")] * 9)
    policy = glue.Ask(ask)
    mine = run("r1", "mine")
    for context in (mine, run("r2", "", parent=mine), run("r3", "mine")):
        assert not (await save.invoke(context.call, context)).is_error
    assert len(asked) == 1
    for context in (
        run("r4", "yours"),
        run("r5", "", parent=run("r6", "yours")),
        run("r7", ""),
        run("r8", ""),
    ):
        await save.invoke(context.call, context)
    assert len(asked) == 4


async def test_a_request_contains_the_lines_that_will_change(project: Path) -> None:
    asked, ask = asker(False, False, False)
    policy = glue.Ask(ask)
    tools = writer(project)

    await invoke(
        tools["edit_file"], {"path": "src/main.py", "old": "x = 1", "new": "x = 2"}, policy
    )
    await invoke(tools["write_file"], {"path": "src/main.py", "content": "x = 1\ny = 2\n"}, policy)
    await invoke(
        tools["edit_file"], {"path": "src/main.py", "old": "not there", "new": "x"}, policy
    )

    previews = [made.touched.preview.split("\n")[1:] if made.touched else [] for made in asked]
    assert previews == [["-x = 1", "+x = 2", " "], [" x = 1", "+y = 2", " "], []]
