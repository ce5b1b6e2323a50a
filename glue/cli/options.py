"""Command-line options of a run, and the class that merges them with the other settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from glue.agent import Agent
from glue.cli.bundles import make_tools
from glue.cli.env import load_env
from glue.cli.header import read_glue_section
from glue.cli.inputs import read_schema, read_text
from glue.cli.prompts import find_version
from glue.cli.settings import ON_QUESTION, QUESTIONS, SANDBOXES, check_settings, settings
from glue.errors import ConfigError
from glue.limits import BUDGETS, LimitsSource, override_limits
from glue.messages import EFFORTS
from glue.permission import (
    AllowAll,
    Ask,
    Decision,
    DeferAll,
    Permission,
    PermissionRequest,
    Rules,
    deny,
)
from glue.project import find_checkout, load_project, project_folder
from glue.providers import default, known
from glue.settings import checked
from glue.text import count

F = TypeVar("F", bound=Callable[..., Any])


def _check_folder(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Return `path` unchanged; raise BadParameter if the folder of the file does not exist."""
    folder = os.path.dirname(path or "") or "."
    if not os.path.isdir(folder):
        raise click.BadParameter(f"the folder {folder} does not exist")
    return path


FILE_TO_WRITE: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(dir_okay=False),
    "callback": _check_folder,
}


NO_LIMIT = "none"  # the value of a budget option that switches a limit off


def _budget(number: type[int] | type[float]) -> dict[str, Any]:
    """Return the click settings of a budget option: a number of 0 or more, or the word none."""
    kind = "a whole number" if number is int else "a number"

    def convert(text: str) -> int | float | str:
        if text.strip().lower() == NO_LIMIT:
            return NO_LIMIT
        try:
            value = number(text)
        except ValueError:
            value = -1
        if not 0 <= value < float("inf"):
            raise click.BadParameter(
                f"must be {kind} of 0 or more, or 'none' for no limit, not {text!r}"
            )
        return value

    return {"type": convert, "metavar": "N|none"}


def complete_model(text: str) -> list[str]:
    """Return the names of providers that begin with the typed text."""
    return [name for name in known() if name.startswith(text)]


_PERMISSIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--allow",
        multiple=True,
        metavar="RULE",
        help="Run tool calls that match RULE without asking: write_file, 'shell:git *'. "
        "Repeatable.",
    ),
    click.option(
        "--deny",
        multiple=True,
        metavar="RULE",
        help="Never run tool calls that match RULE, even with --allow or --yes. Repeatable.",
    ),
    click.option(
        "-y",
        "--yes",
        is_flag=True,
        help="Run every tool call without asking. A call that matches or may match a deny rule is "
        "refused.",
    ),
)
_SANDBOX: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--sandbox",
        type=click.Choice(SANDBOXES),
        help="Commands of the shell tool: in a sandbox if one works (auto, the default), only in a "
        "sandbox (require), or without (off). `glue doctor` names the sandbox.",
    ),
    click.option(
        "--network/--no-network",
        default=None,
        help="Let commands in the sandbox use the network, or not (the default).",
    ),
    click.option(
        "--questions",
        type=click.Choice(QUESTIONS),
        help="all (the default): ask before every command. writes: first run the command in a "
        "sandbox that can neither write to this folder nor use the network, and ask only if the "
        "sandbox makes the command fail.",
    ),
)
_QUESTION = click.option(
    "--on-question",
    type=click.Choice(ON_QUESTION),
    help="If no rule allows or denies a call: ask on the terminal, defer the decision to `glue "
    "sessions answer` (needs --session), or deny. By default ask, or deny without a terminal.",
)
_SETTINGS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-m",
        "--model",
        metavar="NAME",
        help="Model, as PROVIDER or PROVIDER:MODEL. Several, with commas, are tried in order.",
        shell_complete=lambda context, parameter, text: complete_model(text),
    ),
    click.option(
        "--system", metavar="TEXT", help="Instructions for the model; @FILE reads them from a file."
    ),
    click.option(
        "-t",
        "--template",
        metavar="NAME[@VERSION]",
        help="Use a prompt of the catalog as instructions (see `glue prompts`).",
    ),
    click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature."),
    click.option(
        "--max-tokens", type=click.IntRange(min=1), help="Maximum number of tokens in a reply."
    ),
    click.option("--reasoning", type=click.Choice(EFFORTS), help="Reasoning effort of the model."),
    click.option(
        "--tools",
        metavar="LIST",
        help="Tools, separated by commas: the bundles fs, edit, git, shell, web and coding, "
        "or names of tools of the agent.",
    ),
    click.option("--no-tools", is_flag=True, help="Use no tools, except the tools of --mcp."),
    click.option(
        "--mcp",
        metavar="CONFIG",
        type=click.Path(),
        help="Connect to the MCP servers in this JSON file, and add their tools.",
    ),
    click.option(
        "-s",
        "--session",
        metavar="NAME",
        help="Continue the session with this name, or create it if it does not exist.",
    ),
    click.option(
        "-c", "--continue", "resume", is_flag=True, help="Continue the most recent session."
    ),
    click.option(
        "--store",
        metavar="PATH",
        help="Folder, .db file or postgresql:// address that stores sessions.",
    ),
    click.option(
        "--env",
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=lambda _, __, path: load_env(Path(path)) if path else None,
        help="Load variables that are not set yet from a file of NAME=value lines.",
    ),
    click.option(
        "--project/--no-project",
        default=None,
        help="Give the model the AGENTS.md and the skills of this checkout.",
    ),
    click.option("--max-turns", **_budget(int), help="Maximum number of turns that call tools."),
    click.option("--max-requests", **_budget(int), help="Maximum number of requests to providers."),
    click.option("--token-budget", **_budget(int), help="Maximum number of tokens for the run."),
    click.option(
        "--usd-budget",
        **_budget(float),
        help="Maximum cost of the run, in US dollars; none for no limit.",
    ),
    click.option("--seconds", **_budget(float), help="Maximum duration of the run, in seconds."),
    *_PERMISSIONS,
    *_SANDBOX,
)
_OUTPUT: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-a",
        "--attach",
        multiple=True,
        metavar="FILE|URL",
        help="Attach an image, a PDF or a text file to the prompt. Repeatable.",
    ),
    click.option(
        "--schema",
        metavar='FILE|"NAME: TYPE, ..."',
        help="Answer with a JSON object of this schema.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the prompt, each event and the result of the run as lines of JSON.",
    ),
    click.option("--usage", is_flag=True, help="Print tokens, cost and time on stderr at the end."),
    click.option(
        "--show-wire", is_flag=True, help="Print every HTTP request on stderr, with keys masked."
    ),
    click.option("--as-curl", is_flag=True, help="With --show-wire: print curl commands."),
    click.option(
        "--buffer",
        is_flag=True,
        help="With several models: show a reply only when it is complete, so that the next model "
        "can replace one that fails in the middle.",
    ),
    click.option("--record", **FILE_TO_WRITE, help="Record the run to a cassette file."),
    click.option(
        "--replay",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Take the model's replies from a cassette file.",
    ),
    click.option(
        "--otel",
        is_flag=True,
        help="Send OpenTelemetry traces and metrics as configured by OTEL_* variables.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print only the answer and errors."),
    click.option(
        "-v",
        "--verbose",
        count=True,
        help="Print thinking, tool results and events such as compactions too; -vv adds the log.",
    ),
)


def _decorator(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


run_options = _decorator((*_SETTINGS, _QUESTION, *_OUTPUT))  # of `glue run` and of `Agent.cli`
chat_options = _decorator(_SETTINGS)
permission_options = _decorator(_PERMISSIONS)
sandbox_options = _decorator(_SANDBOX)
rate_options = _decorator(
    (
        click.option(
            "--rpm",
            multiple=True,
            metavar="[PROVIDER=]N",
            help="Maximum requests per minute, to each provider or to PROVIDER. Repeatable.",
        ),
        click.option(
            "--tpm",
            multiple=True,
            metavar="[PROVIDER=]N",
            help="Maximum tokens per minute, to each provider or to PROVIDER. Repeatable.",
        ),
    )
)


def batch_options(unit: str, batch: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of a batch, such as concurrency and budgets.

    `unit` is the name of one item of the batch in the help texts, such as "row", and `batch` that
    of the whole, such as "a map".
    """
    units = f"{unit}s"
    return _decorator(
        (
            click.option(
                "--resume",
                is_flag=True,
                help=f"Continue {batch} that was stopped or killed, "
                "or start a new one if nothing was run yet.",
            ),
            click.option(
                "--overwrite", is_flag=True, help="Delete an existing output and start again."
            ),
            click.option(
                "-n",
                "--concurrency",
                default=8,
                type=click.IntRange(min=1),
                help=f"Maximum number of {units} that run at once.",
            ),
            click.option(
                "--retries",
                default=1,
                type=click.IntRange(min=0),
                help=f"Maximum number of times that a failed {unit} is run again.",
            ),
            click.option(
                "--usd-budget",
                type=click.FloatRange(min=0),
                help=f"Maximum cost of all {units} together, in US dollars.",
            ),
            click.option(
                "--token-budget",
                type=click.IntRange(min=0),
                help=f"Maximum number of tokens for all {units} together.",
            ),
            rate_options,
            click.option(
                "--max-turns",
                type=click.IntRange(min=0),
                help=f"Maximum number of turns that call tools, for each {unit}.",
            ),
            click.option(
                "--seconds",
                type=click.FloatRange(min=0),
                help=f"Maximum duration of each {unit}, in seconds.",
            ),
            permission_options,
        )
    )


def check_output(given: Mapping[str, Any], *paths: Path) -> None:
    """Raise ConfigError if one of `paths` exists, unless --resume or --overwrite is given.

    Raise UsageError if both options are given.
    """
    if given["resume"] and given["overwrite"]:
        raise click.UsageError("--resume and --overwrite exclude each other; use one of them")
    existing = next((path for path in paths if path.exists()), None)
    if existing is not None and not given["resume"] and not given["overwrite"]:
        raise ConfigError(
            f"{existing} exists already; --resume continues it, --overwrite starts again"
        )


class Sources:
    """The settings of a run, merged from the sources below, from the strongest to the weakest.

    1. Flags of the command line.
    2. The header of the agent file.
    3. The agent's own code.
    4. GLUE_ variables, pyproject.toml and config.toml.

    The permission rules of all sources apply together. If no agent is given, `agent` is built from
    the model and the tools that the sources name.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        *,
        path: str | None = None,
        agent: Agent[Any, Any] | None = None,
    ):
        self.given = given
        self.path = path
        self.header: dict[str, Any] = {}
        if path is not None:
            where = f"{Path(path).name}, [tool.glue]"
            self.header = check_settings(read_glue_section(path), where)
        self.configured = {name: setting.value for name, setting in settings().items()}
        flags = {name: value for name, value in given.items() if value not in (None, (), "")}
        self.before_code = self.header | flags  # the sources that win over the agent's code
        self.has_shell = False  # whether the sources add the built-in shell tool
        self.is_built = agent is None
        self.agent = agent or self._default_agent()
        # A text for people: the files of the project that the model gets; "" if none.
        self.project = ""
        if given.get("project"):
            self._add_project()

    def _default_agent(self) -> Agent[Any, Any]:
        model = self.find("model") or default()
        tools = self._tools((), self.find("tools"))
        instructions = ""
        if tools:
            from glue.tools.coding import prompt  # an agent file needs no built-in tools

            instructions = prompt(tools)
            if (top := find_checkout()) is not None and top != Path.cwd().resolve():
                below = Path.cwd().resolve().relative_to(top).as_posix()
                instructions += (
                    f"The working folder is {below}/ in a git checkout. "
                    "The git tools name files from the top of the checkout.\n"
                )
        try:
            return Agent(model, tools=tools, instructions=instructions)
        except TypeError as error:  # a model name that is blank
            raise ConfigError(str(error)) from None

    def _add_project(self) -> None:
        """Replace `self.agent` by a copy with the AGENTS.md and the skills of the project folder.

        Raise ConfigError if the folder has neither.
        """
        folder = project_folder()
        found = load_project(folder)
        if not found.instructions and not found.skills:
            raise ConfigError(
                f"--project: {folder} has neither AGENTS.md nor .agents/skills/NAME/SKILL.md"
            )
        parts = ["AGENTS.md"] if found.instructions else []
        parts += [count(len(found.skills), "skill")] if found.skills else []
        self.project = f"{' and '.join(parts)} of {folder}"
        build, _ = self.agent.__reduce__()  # the class with all settings of the agent
        self.agent = build(project=folder)

    def find(self, name: str) -> Any:
        """Return a setting from the flags, else the file header, else the configuration, else None.

        The agent's code is not one of the sources.
        """
        return self.before_code.get(name, self.configured.get(name))

    def overrides(self, ask: Callable[[Any], Any] | None = None) -> dict[str, Any]:
        """Return the settings that override the agent's own settings, by name.

        `ask` puts a permission question to the user; None means that no user can be asked.
        """
        own = self.agent.settings
        tools = own.tools if self.is_built else None
        try:
            if tools is None:
                tools = self._tools(own.tools or (), self.before_code.get("tools"))
            self.check_shell_flags(self.has_shell)
            found: dict[str, Any] = {
                "model": self.before_code.get("model"),
                "instructions": self._instructions(),
                "limits": self._limits(own.limits),
                "tools": tools,
                "temperature": self.given.get("temperature"),
                "max_tokens": self.given.get("max_tokens"),
                "reasoning": self.given.get("reasoning"),
                "permission": self._permission(own.permission, ask),
            }
            return checked(found)
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None

    def output(self) -> Any:
        """Return the JSON schema that --schema names, or None if --schema is not given."""
        schema = self.given.get("schema")
        return None if schema is None else read_schema(schema)

    def _instructions(self) -> Any:
        system, template = self.given.get("system"), self.given.get("template")
        if not template:
            return read_text(system) if system else None
        if system:
            raise click.UsageError(
                "--system and --template both set the instructions; use one of them"
            )
        return find_version(template)

    def _tools(self, own: Iterable[Any], named: str | Sequence[str] | None) -> tuple[Any, ...]:
        """Return the agent's own tools, which `named` can reduce, and the tools of named bundles.

        If `named` contains names of the agent's own tools, its other own tools are left out. With
        --no-tools, return no tools. Set `has_shell` if the bundle `shell` is used.
        """
        if self.given.get("no_tools"):
            return ()
        if not named:
            return tuple(own)
        words = named.split(",") if isinstance(named, str) else named
        names = [name.strip() for name in words if name.strip()]
        own_tools = {tool.spec.name: tool for tool in own}
        chosen = {name: own_tools[name] for name in names if name in own_tools} or own_tools
        bundles = [name for name in names if name not in own_tools]
        self.has_shell = "shell" in (name.lower() for name in bundles)
        made = make_tools(bundles, own_tools, self.shell_options() if self.has_shell else {})
        built_in = [tool for tool in made if tool.spec.name not in chosen]
        return (*chosen.values(), *built_in)

    def shell_options(self) -> dict[str, Any]:
        """Return keyword arguments of the shell tool: its sandbox and when it asks for permission.

        Raise UsageError if a flag needs a sandbox and the sandbox is off.
        """
        # Loads the shell tool, which most runs do not use.
        from glue.tools.sandbox import Sandbox

        mode, network = self.find("sandbox") or "auto", bool(self.find("network"))
        questions = self.find("questions") or "all"
        if mode == "off":
            for name, is_set in (("network", network), ("questions", questions == "writes")):
                if is_set and self.given.get(name):
                    raise click.UsageError(
                        f"--{name} needs a sandbox, and the sandbox is off; leave out --{name}, or "
                        "use --sandbox auto"
                    )
            return {"sandbox": "off"}
        sandbox = Sandbox(network=network, required=mode == "require")
        return {"sandbox": sandbox, "questions": questions}

    def check_shell_flags(self, has_shell: bool) -> None:
        """Raise UsageError for a flag of the shell tool if the built-in shell tool is not used."""
        for name in ("sandbox", "network", "questions"):
            if self.given.get(name) is not None and not has_shell:
                raise click.UsageError(
                    f"--{name} has no effect without the built-in shell tool; "
                    "add it with --tools shell, or set the sandbox in the agent's file"
                )

    def _limits(self, own: LimitsSource | None) -> LimitsSource | None:
        changed = self.budgets(own)
        return override_limits(own, **changed) if changed else None

    def budgets(self, own: LimitsSource | None) -> dict[str, Any]:
        """Return the limits that flags, file header or configuration set, by name.

        The value None removes a limit. The limits `own` of the agent's code are not in the result.
        If `own` is not None, GLUE_ variables and configuration files are ignored.
        """
        find = self.before_code.get if own is not None else self.find
        found = {name: find(name) for name in BUDGETS if find(name) is not None}
        return {name: None if value == NO_LIMIT else value for name, value in found.items()}

    def rules(self) -> dict[str, tuple[str, ...]]:
        """Return the allow and deny rules of flags, file header and configuration together.

        No source replaces another, so a flag that allows one tool keeps the configured denials.
        """
        rules: dict[str, tuple[str, ...]] = {"allow": (), "deny": ()}
        for name in rules:
            for source in (self.given, self.header, self.configured):
                rules[name] += tuple(source.get(name) or ())
        return rules

    def _permission(
        self, own: Permission | None, ask: Callable[[PermissionRequest], Any] | None
    ) -> Permission:
        """Return the permission policy: the rules, then one policy for calls that no rule decides.

        With --yes this policy allows every call. Otherwise it is the agent's own policy `own`, or
        if that is None, a policy that asks the user, defers or denies as --on-question says.
        """
        wanted = self._on_question(own, ask)
        if self.given.get("yes"):
            own = AllowAll()
        elif own is None and wanted == "defer":
            own = DeferAll()
        elif own is None:
            can_defer = "on_question" in self.given
            unattended = deny_unattended if can_defer else deny_unattended_now
            own = Ask(ask if ask is not None and wanted == "ask" else unattended)
        rules = self.rules()
        return Rules(**rules, otherwise=own) if any(rules.values()) else own

    def _on_question(self, own: Permission | None, ask: object) -> str:
        """Return how a permission question is answered: "ask", "defer" or "deny".

        Raise UsageError if the flag --on-question cannot have an effect. The configured setting,
        in contrast, is ignored by a run that cannot follow it, such as `defer` without a session.
        """
        has_session = bool(self.given.get("session") or self.given.get("resume"))
        default = "ask" if ask is not None else "deny"
        if (flag := self.given.get("on_question")) is not None:
            if own is not None:
                raise click.UsageError(
                    "--on-question cannot be used: the agent has its own permission policy"
                )
            if flag == "ask" and ask is None:
                raise click.UsageError(
                    "--on-question ask needs a terminal on stdin and stderr; without a terminal, "
                    "--session NAME --on-question defer lets a person answer later"
                )
            if flag == "defer" and not has_session:
                raise click.UsageError(
                    "--on-question defer needs a session, which stores the calls that wait; "
                    "add --session NAME"
                )
            return str(flag)
        wanted = self.find("on_question") if "on_question" in self.given else None
        fits = wanted == "deny" or (wanted == "defer" and has_session)
        return str(wanted) if fits else default


async def deny_unattended(request: PermissionRequest) -> Decision:
    """Deny a call because no user can be asked; the reason names the options that would help."""
    decision = await deny_unattended_now(request)
    return deny(f"{decision.reason}; --session NAME --on-question defer lets a person answer later")


async def deny_unattended_now(request: PermissionRequest) -> Decision:
    """Deny a call because no user can be asked, in a command that cannot defer questions.

    The reason names the options that would help. It is part of the text that the model receives.
    """
    if request.reason:  # a rule may forbid the call; then no flag helps, only another rule
        return deny(f"{request.reason}, and no user can be asked")
    return deny(
        f"no user can be asked; --allow {request.action} allows it, --yes allows everything"
    )


def describe_confinement(confinement: str) -> str:
    """Return a line that names the sandbox of a command tool, or warns that it has none."""
    if confinement != "no sandbox":
        return confinement
    return (
        "no sandbox: an allowed command has all your rights and can read the provider keys of this "
        "program; "
        "`glue doctor` prints the reason"
    )
