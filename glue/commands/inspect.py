"""`glue inspect`: what an agent file declares. The file is read, never run."""

from __future__ import annotations

import ast
import json
from typing import Any

import click


@click.command()
@click.argument("file", metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(file: str, as_json: bool) -> None:
    """Say what an agent file declares: its header, its settings, its tools and agents. Nothing is run."""
    found = describe(file)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from glue.terminal import clean, one_line

    click.echo(f"file           {one_line(file)}")
    if found["about"]:
        click.echo(f"about          {one_line(found['about'], 200)}")
    click.echo(f"python         {one_line(found['requires_python'] or 'any')}")
    click.echo(f"dependencies   {one_line(', '.join(found['dependencies']) or 'none named')}")
    for name, value in found["settings"].items():
        click.echo(f"{name:<14} {one_line(', '.join(value) if isinstance(value, list) else str(value))}")
    for agent in found["agents"]:
        click.echo(clean(f"agent          {agent['name']} = Agent({agent['model']}), line {agent['line']}"))
    for tool in found["tools"]:
        asks = ", needs permission" if tool["needs_permission"] else ""
        click.echo(clean(f"tool           {tool['name']}: {tool['description'] or 'no description'}{asks}"))


def describe(path: str) -> dict[str, Any]:
    """Read a file and give what it declares."""
    from glue.config import checked
    from glue.errors import ConfigError
    from glue.header import MOST, parse_header

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
