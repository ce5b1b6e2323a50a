"""Agent files: written by `glue new`, described by `glue inspect`, opened by `glue run`."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from glue.agent import Agent
from glue.errors import ConfigError, GlueError
from glue.text import clean_text, one_line

PROMPTS = {
    "tool": "What is the weather in Toronto?",
    "chat": "What day is it today?",
    "review": "Review this branch.",
    "structured": "The export button does nothing.",
    "subagents": "Compare Oslo and Bergen.",
}


@click.command()
@click.argument("name", metavar="NAME.py")
@click.option("-t", "--template", type=click.Choice(tuple(PROMPTS)), default="tool", show_default=True)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def new(name: str, template: str, force: bool) -> None:
    """Write a single-file agent. It runs at once, also without a key: the offline stand-in answers then."""
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if path.name.strip(".") in ("", "py"):
        raise click.UsageError(f"{name!r} is no name for a file")
    text = read_template(template).replace("NAME.py", path.name)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; --force writes over it") from None
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise click.UsageError(f"{path} cannot be written: no such folder, or a folder itself") from None
    click.echo(path)
    for line in hints(path, template):
        click.echo(line, err=True)


def read_template(name: str) -> str:
    return (Path(__file__).parent / "templates" / f"{name}.py").read_text(encoding="utf-8")


def hints(path: Path, template: str) -> list[str]:
    """Say what to do next."""
    prompt = f'"{PROMPTS[template]}"'
    lines = [f"run it:     python {path} {prompt}"]
    lines.append(f"or:         glue chat {path}" if template == "chat" else f"or:         glue run {path} {prompt}")
    from glue.providers import default

    try:
        lines.append(f"the model:  {default(os.environ)} (-m or GLUE_MODEL names another)")
    except ConfigError:
        lines.append("the model:  none yet; set a key such as ANTHROPIC_API_KEY, or GLUE_MODEL=ollama:qwen3:0.6b")
    return lines


def open_agent(path: str) -> Agent[Any, Any]:
    """Run a file, not as a program, and give its agent; ConfigError where it cannot be had."""

    if not os.path.isfile(path):
        raise ConfigError(f"there is no file {path}; `glue new {os.path.basename(path)}` writes one")
    with _user_errors(path):
        return load_agent(path)


def run_file(name: str) -> ModuleType:
    """Import a module by its dotted name, or run a file."""
    from glue.tools.check import load

    with _user_errors(name):
        return load(name)


@contextmanager
def _user_errors(path: str) -> Iterator[None]:
    try:
        yield
    except GlueError:
        raise
    except ModuleNotFoundError as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        hint = f"`uv run {path}` installs what its header names"
        raise ConfigError(f"{path} needs {error.name!r}, which is not installed; {hint}") from error
    except Exception as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        told = f"{path}{_line(error, path)}: {type(error).__name__}: {error}"
        raise ConfigError(f"{told}; GLUE_DEBUG=1 shows where") from error


def _line(error: Exception, path: str) -> str:
    """Say which line of the file it was, the last one that the error came through."""
    where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            where = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return where


def load_agent(path: str) -> Agent[Any, Any]:
    """Run a file, not as a program, and give its agent: the one named `agent`, or the only one."""
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        names = runpy.run_path(path, run_name="glue_agent")
    except SyntaxError as error:
        raise ConfigError(f"{path}: line {error.lineno}: {error.msg}") from error
    found = {name: value for name, value in names.items() if isinstance(value, Agent)}
    if isinstance(found.get("agent"), Agent):
        return found["agent"]
    if len(found) == 1:
        return next(iter(found.values()))
    what = "no agent" if not found else f"several agents ({', '.join(sorted(found))})"
    raise ConfigError(f"{path} defines {what}; name the one to run `agent`")


# As the specification gives it: a block of comments between `# /// script` and `# ///`.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
MOST = 8 * 1024 * 1024


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the metadata of a file: `requires-python`, `dependencies`, `tool`; empty where it has none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST)
    except IsADirectoryError:
        raise ConfigError(f"{os.fspath(path)} is a folder, not an agent file") from None
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error
    return parse_header(data.decode("utf-8", "replace").replace("\r\n", "\n"), os.fspath(path))


def parse_header(text: str, name: str = "the file") -> dict[str, Any]:
    """Do as `read_header`, with the text of a file."""
    if "# /// script" not in text:
        return {}
    found = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not found:
        return {}
    if len(found) > 1:
        raise ConfigError(f"{name} has several `# /// script` blocks; one is allowed")
    lines = found[0]["content"].splitlines(keepends=True)
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    import tomllib

    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: the `# /// script` block is no valid TOML: {error}") from None


def glue_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the checked `[tool.glue]` table of a file's header."""
    from glue.cli.config import checked

    tool = read_header(path).get("tool", {})
    table = tool.get("glue", {}) if isinstance(tool, dict) else {}
    return checked(table, f"{Path(path).name}, [tool.glue]")


@click.command()
@click.argument("file", metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(file: str, as_json: bool) -> None:
    """Say what an agent file declares: its header, its settings, its tools and agents. Nothing is run."""
    found = describe(file)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"file           {one_line(file)}")
    if found["about"]:
        click.echo(f"about          {one_line(found['about'], 200)}")
    click.echo(f"python         {one_line(found['requires_python'] or 'any')}")
    click.echo(f"dependencies   {one_line(', '.join(found['dependencies']) or 'none named')}")
    for name, value in found["settings"].items():
        click.echo(f"{name:<14} {one_line(', '.join(value) if isinstance(value, list) else str(value))}")
    for agent in found["agents"]:
        click.echo(clean_text(f"agent          {agent['name']} = Agent({agent['model']}), line {agent['line']}"))
    for tool in found["tools"]:
        asks = ", needs permission" if tool["needs_permission"] else ""
        click.echo(clean_text(f"tool           {tool['name']}: {tool['description'] or 'no description'}{asks}"))


def describe(path: str) -> dict[str, Any]:
    """Read a file and give what it declares."""
    from glue.cli.config import checked

    try:
        with open(path, "rb") as file:
            text = file.read(MOST).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    header = parse_header(text, path)
    tool = header.get("tool", {})
    settings = checked(tool.get("glue", {}) if isinstance(tool, dict) else {}, f"{path}, [tool.glue]")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{path}{line}: {getattr(error, 'msg', error)}") from None
    about = (ast.get_docstring(tree) or "").split("\n")[0]
    return {
        "file": path,
        "about": about,
        "requires_python": str(header.get("requires-python", "")) or None,
        "dependencies": [str(item) for item in header.get("dependencies", ())],
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "agents": list(_agents(tree)),
        "tools": list(_tools(tree)),
    }


def _agents(tree: ast.Module) -> list[dict[str, Any]]:
    found = []
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value
        if isinstance(value, ast.Call) and _name(value.func) == "Agent" and isinstance(target, ast.Name):
            first = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "model"), None)
            model = ast.unparse(first) if first is not None else "?"
            found.append({"name": target.id, "model": model, "line": node.lineno})
    return found


def _tools(tree: ast.Module) -> list[dict[str, Any]]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for mark in node.decorator_list:
            function = mark.func if isinstance(mark, ast.Call) else mark
            if _name(function) == "tool":
                options = {word.arg: word.value for word in mark.keywords} if isinstance(mark, ast.Call) else {}
                named = options.get("name")
                name = named.value if isinstance(named, ast.Constant) else node.name
                asks = options.get("needs_permission")
                needs = asks is not None and not (isinstance(asks, ast.Constant) and not asks.value)
                description = (ast.get_docstring(node) or "").split("\n")[0]
                found.append({"name": str(name), "description": description, "needs_permission": needs})
    return found


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
