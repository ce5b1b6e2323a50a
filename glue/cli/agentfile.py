"""Agent files: written by `glue new`, described by `glue inspect`, opened by `glue run`."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

import click

from glue.agent import Agent
from glue.cli.config import checked, glue_section, parse_header, read_source
from glue.cli.output import json_option, print_json
from glue.errors import ConfigError, GlueError
from glue.text import one_line

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
    if path.stem == "glue" or path.stem in sys.stdlib_module_names:
        raise click.UsageError(f"{path.name} would stand in the way of the module {path.stem}; choose another name")
    source = Path(__file__).parent / "templates" / f"{template}.py"
    text = source.read_text(encoding="utf-8").replace("NAME.py", path.name)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; --force writes over it") from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(path)
    prompt = f'"{PROMPTS[template]}"'
    click.echo(f"run it:     python {path} {prompt}", err=True)
    click.echo(f"or:         glue {f'chat {path}' if template == 'chat' else f'run {path} {prompt}'}", err=True)
    from glue.providers import default

    try:
        model = f"{default()} (-m or GLUE_MODEL names another)"
    except ConfigError:
        model = "an offline stand-in; set a key such as ANTHROPIC_API_KEY, or GLUE_MODEL=ollama:qwen3:0.6b"
    click.echo(f"the model:  {model}", err=True)


def open_agent(path: str) -> Agent[Any, Any]:
    """Run a file, not as a program, and give its agent: the one named `agent`, or the only one."""
    if not os.path.isfile(path):
        raise ConfigError(f"there is no file {path}; `glue new {os.path.basename(path)}` writes one")
    found = {name: value for name, value in vars(run_file(path)).items() if isinstance(value, Agent)}
    if "agent" in found:
        return found["agent"]
    if len(found) == 1:
        return next(iter(found.values()))
    what = "no agent" if not found else f"several agents ({', '.join(sorted(found))})"
    raise ConfigError(f"{path} defines {what}; name the one to run `agent`")


def import_file(name: str) -> ModuleType:
    """Import a user's module by its dotted name, or run a file; ConfigError where there is none."""
    if name.endswith(".py") or "/" in name:
        if not os.path.isfile(name):
            raise ConfigError(f"no such file: {name}")
        return run_file(name)
    with user_errors(name):
        try:
            return import_module(name)
        except (ModuleNotFoundError, TypeError) as error:  # "." is a relative import
            raise ConfigError(f"cannot import {name}: {error}; give a dotted name or a .py file") from None


def run_file(path: str) -> ModuleType:
    """Run a file, not as a program; it finds the modules that lie beside it."""
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = ModuleType("glue_agent")  # a name that shadows nothing
    with user_errors(path):
        vars(module).update(runpy.run_path(path, run_name=module.__name__))
    return module


@contextmanager
def user_errors(path: str) -> Iterator[None]:
    """Say what is wrong with a user's file in one line, and where in it."""
    try:
        yield
    except GlueError:
        raise
    except Exception as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError):
            hint = f"`uv run {path}` installs what its header names"
            raise ConfigError(f"{path} needs {error.name!r}, which is not installed; {hint}") from error
        if isinstance(error, SyntaxError):
            raise ConfigError(f"{os.path.relpath(error.filename or path)}, line {error.lineno}: {error.msg}") from error
        where = ""
        for frame, line in walk_tb(error.__traceback__):
            if frame.f_code.co_filename == path:
                where = f", line {line}"  # the last one of the file that the error came through
        raise ConfigError(f"{path}{where}: {type(error).__name__}: {error}; GLUE_DEBUG=1 shows where") from error


@click.command()
@click.argument("file", metavar="FILE.py")
@json_option
def inspect(file: str, as_json: bool) -> None:
    """Say what an agent file declares: its header, its settings, its tools and agents. Nothing is run."""
    found = describe(file)
    if as_json:
        print_json(found)
        return
    rows = [("file", file), ("about", found["about"]), ("python", found["requires_python"] or "any")]
    rows.append(("dependencies", ", ".join(found["dependencies"]) or "none named"))
    for name, value in found["settings"].items():
        rows.append((name, ", ".join(value) if isinstance(value, list) else str(value)))
    rows += [("agent", "{name} = Agent({model}), line {line}".format(**agent)) for agent in found["agents"]]
    for tool in found["tools"]:
        asks = ", needs permission" if tool["needs_permission"] else ""
        rows.append(("tool", f"{tool['name']}: {tool['description'] or 'no description'}{asks}"))
    for name, text in rows:
        if text:
            click.echo(f"{name:<14} {one_line(text)}")


def describe(path: str) -> dict[str, Any]:
    """Read a file and give what it declares."""
    text = read_source(path)
    header = parse_header(text, path)
    dependencies = header.get("dependencies", [])
    if not isinstance(dependencies, list):
        raise ConfigError(f"{path}: dependencies must be a list, not {dependencies!r}")
    settings = checked(glue_section(header), f"{path}, [tool.glue]")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ConfigError(f"{path}{line}: {getattr(error, 'msg', error)}") from None
    return {
        "file": path,
        "about": (ast.get_docstring(tree) or "").split("\n")[0],
        "requires_python": str(header.get("requires-python", "")) or None,
        "dependencies": [str(item) for item in dependencies],
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "agents": list(_agents(tree)),
        "tools": list(_tools(tree)),
    }


def _agents(tree: ast.Module) -> list[dict[str, Any]]:
    found = []
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call(func, args, keywords))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func, args, keywords))
            ) if _name(func) == "Agent":
                models = [*args[:1], *(word.value for word in keywords if word.arg == "model")]
                model = ast.unparse(models[0]) if models else "?"
                found.append({"name": name, "model": model, "line": node.lineno})
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
