"""One prompt of an agent: dependencies, versioned prompts, roles and projects reach the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from glue import (
    Agent,
    Context,
    Limits,
    ToolMessage,
    tool,
)
from glue.errors import (
    ConfigError,
)
from glue.events import Event, RunStart
from glue.project import Role
from glue.prompts import Catalog
from glue.testing import Script, call, calls, repeat


@dataclass
class Deps:
    unit: str


@tool
async def measure(context: Context[Deps]) -> str:
    """Measure."""
    return f"21 {context.deps.unit}"


async def test_deps_reach_the_tools_and_are_checked() -> None:
    agent = Agent(Script(calls("measure"), "ok", repeat("ok")), tools=[measure], deps_type=Deps)

    result = await agent.run("x", deps=Deps("degrees"))

    assert result.messages[2].text == "21 degrees"
    with pytest.raises(TypeError, match="needs deps of the type Deps; none was given"):
        await agent.run("x")
    with pytest.raises(TypeError, match="got str"):
        await agent.run("x", deps="degrees")  # type: ignore[call-overload]


async def test_a_versioned_prompt_can_be_traced_from_result_and_transcript(tmp_path: Path) -> None:
    (tmp_path / "v1.md").write_text("Be kind.")
    (tmp_path / "v2.md").write_text("Be brief.")
    catalog = Catalog(tmp_path, name="manner")
    script, events = Script("a", "b"), list[Event]()

    chosen = await Agent(script, instructions=catalog.get("v1")).run("x", on_event=events.append)
    default = await Agent(script, instructions=catalog).run("x")

    assert [request.system for request in script.requests] == ["Be kind.", "Be brief."]
    identity = catalog.get("v1").identity
    assert chosen.meta is not None
    assert identity.items() <= chosen.meta.items()
    assert chosen.messages[0].meta == identity
    assert isinstance(events[0], RunStart)
    assert events[0].identity == identity
    assert default.meta is not None
    assert default.meta["prompt_version"] == "v2"


async def test_roles_set_instructions_and_model(tmp_path: Path) -> None:
    (tmp_path / "critic.md").write_text(
        "---\ndescription: finds faults\nmodel: other\n---\n\nFind faults.\n"
    )
    (tmp_path / "plain.md").write_text("Be plain.")
    script = Script(repeat("ok"))
    agent = Agent(script, instructions="wide", roles=tmp_path)

    await agent.run("x", role="plain")
    await agent.run("x", role="plain", instructions="narrow")
    assert [request.system for request in script.requests] == ["Be plain.", "narrow"]
    with pytest.raises(ConfigError, match="other"):
        await agent.run("x", role="critic")
    await agent.run("x", role="critic", model=script)
    assert script.requests[-1].system == "Find faults."
    with pytest.raises(ConfigError, match="no role 'x'; there are: critic, plain"):
        await agent.run("x", role="x")
    given = Agent(script, roles={"r": Role(name="r", instructions="R")}, role="r")
    await given.run("x")
    assert script.requests[-1].system == "R"


async def test_project_context_is_opt_in_and_capped(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    skill = tmp_path / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: How to deploy.\n---\nPush the button.\n"
    )
    script = Script(
        "ok",
        calls(call("skill", {"name": "deploy"})),
        calls(call("skill", {"name": "x"})),
        "ok",
        "ok",
    )

    await Agent(script, instructions="Hi.").run("x")
    result = await Agent(script, instructions="Hi.", project=tmp_path).run("x")

    assert script.requests[0].system == "Hi."
    assert script.requests[1].system == (
        "Hi.\n\nUse tabs.\n\nSkills you can read with the tool `skill`:\n- deploy: How to deploy."
    )
    found, unknown = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert found.text == "Push the button."
    assert unknown.text == 'name: got "x", expected one of "deploy"'
    (tmp_path / "AGENTS.md").write_text("x" * 100_000)
    await Agent(script, project=tmp_path).run("x")
    assert len(script.requests[-1].system) < 33_000
    assert "the rest is left out" in script.requests[-1].system


async def test_a_project_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "secret")
    script = Script("ok")

    await Agent(script, project=tmp_path).run("x")

    assert script.requests[0].system == ""


async def test_a_result_keeps_its_own_meta_beside_that_of_the_prompt() -> None:
    agent = Agent(Script("ok"), name="helper", limits=Limits(token_budget=2))

    result = await agent.run("x" * 40, unwrap=False)

    assert result.meta == {"used": 10, "limit": 2, "input": 10, "output": 0}


async def test_a_tool_of_the_agent_replaces_the_tool_that_reads_skills(tmp_path: Path) -> None:
    folder = tmp_path / ".agents" / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("Tag it.")

    @tool
    def skill(name: str) -> str:
        """Read a skill."""
        return f"mine: {name}"

    asked = calls(call("skill", {"name": "release"}))
    own = await Agent(Script(asked, "ok"), tools=[skill], project=tmp_path).run("x")
    given = await Agent(Script(asked, "ok"), tools=[measure], project=tmp_path).run("x")

    assert [own.messages[2].text, given.messages[2].text] == ["mine: release", "Tag it."]
