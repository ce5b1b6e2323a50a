"""`glue inspect`: print the settings, agents and tools of an agent file, without running it."""

from __future__ import annotations

import ast
from typing import Any

import click

from glue.cli.header import glue_section, parse_header, read_source
from glue.cli.settings import check_settings
from glue.cli.tables import json_option, print_json
from glue.errors import ConfigError
from glue.text import one_line


@click.command()
@click.argument("file", metavar="FILE.py")
@json_option
def inspect(file: str, as_json: bool) -> None:
    """Print the header, settings, agents and tools of an agent file, without running it."""
    found = describe(file)
    if as_json:
        print_json(found)
        return
    rows = [
        ("file", file),
        ("about", found["about"]),
        ("python", found["requires_python"] or "any"),
    ]
    rows.append(("dependencies", ", ".join(found["dependencies"]) or "none"))
    for name, value in found["settings"].items():
        rows.append((name, ", ".join(value) if isinstance(value, list) else str(value)))
    rows += [
        ("agent", "{name} = Agent({model}), line {line}".format(**agent))
        for agent in found["agents"]
    ]
    for tool in found["tools"]:
        asks = ", needs permission" if tool["needs_permission"] else ""
        rows.append(("tool", f"{tool['name']}: {tool['description'] or 'no description'}{asks}"))
    for name, text in rows:
        if text:
            click.echo(f"{name:<14} {one_line(text)}")


def describe(path: str) -> dict[str, Any]:
    """Parse an agent file and return its header, settings, agents and tools as JSON values."""
    text = read_source(path)
    header = parse_header(text, path)
    dependencies = header.get("dependencies", [])
    if not isinstance(dependencies, list):
        raise ConfigError(f"{path}: dependencies must be a list, not {dependencies!r}")
    settings = check_settings(glue_section(header), f"{path}, [tool.glue]")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None)
        line = f", line {number}" if number else ""
        raise ConfigError(f"{path}{line}: {getattr(error, 'msg', error)}") from None
    return {
        "file": path,
        "about": (ast.get_docstring(tree) or "").split("\n")[0],
        "requires_python": str(header.get("requires-python", "")) or None,
        "dependencies": [str(item) for item in dependencies],
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        },
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
                models = [*args, *(word.value for word in keywords if word.arg == "model")]
                model = ast.unparse(models[0]) if models else "?"
                found.append({"name": name, "model": model, "line": node.lineno})
    return found


def _tools(tree: ast.Module) -> list[dict[str, Any]]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _name(function) != "tool":
                continue
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            options = {word.arg: word.value for word in keywords}
            named = options.get("name")
            name = named.value if isinstance(named, ast.Constant) else node.name
            asks = options.get("needs_permission")
            is_false = isinstance(asks, ast.Constant) and not asks.value
            found.append(
                {
                    "name": str(name),
                    "description": (ast.get_docstring(node) or "").split("\n")[0],
                    "needs_permission": asks is not None and not is_false,
                }
            )
    return found


def _name(node: ast.expr) -> str:
    """Return `x` for the expressions `x` and `module.x`, and "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
