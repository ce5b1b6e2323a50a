"""Hooks for `make docs`: options of commands, links to other files, Markdown copies, llms.txt."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from reference import describe, find_leaks

from glue.cli.app import commands as glue

ROOT = Path(__file__).resolve().parent.parent
LINK_UP = re.compile(r"\]\(((?:\.\./)+[\w./-]+)\)")
OPTIONS = re.compile(r"^<!-- options: (\w+) -->$", re.MULTILINE)
REFERENCE = re.compile(r"^::: (\S+)\n(?:    .*\n)*", re.MULTILINE)
FRONT = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
SUMMARY = (
    "A small agent toolkit in Python: one loop, tools from typed functions, providers by name."
)

pages: dict[str, str] = {}  # the Markdown of each page, by its path
menu: list[tuple[str, list[tuple[str, str]]]] = []  # sections with the title and path of each page


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside `docs/` that a page links to, and return all files of the site."""
    for page in list(files.documentation_pages()):
        for target in LINK_UP.findall(page.content_string):
            path = _outside(page.src_uri, target)
            if path and _name(path) not in files.src_uris:
                files.append(File.generated(config, _name(path), abs_src_path=str(ROOT / path)))
    return files


def on_nav(nav: Any, **_: Any) -> None:
    """Store the title and the path of each page in `menu`, for llms.txt."""
    menu.clear()
    for item in nav.items:
        found = [item] if item.is_page else list(_pages(item))
        menu.append((item.title or "glue", [(each.title, each.file.src_uri) for each in found]))


def _pages(section: Any) -> Iterator[Any]:
    for item in section.children:
        if item.is_page:
            yield item
        else:
            yield from _pages(item)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's Markdown with tables of command options and with links to outside files.

    The Markdown is also stored in `pages`. The links lead to the files that `on_files` adds.
    Decisions and the API reference get a lower rank in the search.
    """
    if page.file.src_uri.startswith(("adr/", "api.")):  # guides first in the search
        page.meta["search"] = {"boost": 0.3}
    up = "../" * page.file.src_uri.count("/")
    markdown = OPTIONS.sub(lambda match: _options(match[1]), markdown)

    def link(match: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, match[1])
        return f"]({up}{_name(path)})" if path else match[0]

    pages[page.file.src_uri] = LINK_UP.sub(link, markdown)
    return pages[page.file.src_uri]


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Return the HTML of a page with a link to the Markdown copy of the page."""
    copy = page.file.src_uri.rsplit("/", 1)[-1]
    return f'{html}\n<p class="copy"><a href="{copy}">This page as Markdown</a></p>'


def on_post_build(config: Any, **_: Any) -> None:
    """Write the Markdown copy of each page, llms.txt, and llms-full.txt with all pages.

    The build fails if the site shows the environment or the memory of the build machine.
    """
    site = Path(config.site_dir)
    index, full = [f"# glue\n\n> {SUMMARY}\n"], []
    for section, members in menu:
        index.append(f"\n## {section}\n\n")
        for _, path in members:
            text = REFERENCE.sub(lambda match: describe(match[1]), FRONT.sub("", pages[path]))
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text, encoding="utf-8")
            index.append(f"- [{_title(text)}]({path}): {_summary(text)}\n")
            full.append(f"<!-- {path} -->\n\n{text.strip()}\n")
    (site / "llms.txt").write_text("".join(index), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")
    if leaks := find_leaks(site):
        raise PluginError(f"the site shows the environment or a memory address: {', '.join(leaks)}")


def _title(text: str) -> str:
    return text.partition("# ")[2].partition("\n")[0].replace("`", "")


def _summary(text: str) -> str:
    """Return the first sentence of the first paragraph of a page, without links."""
    body = text.partition("# ")[2].partition("\n")[2]
    words = [part for part in body.split("\n\n") if part.strip() and part.strip()[0] not in "<!#`|"]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(words[0].split()) if words else "")
    return re.split(r"(?<=\.)\s", plain)[0]


def _options(name: str) -> str:
    """Return the usage and the options of a command and of its subcommands, from click."""
    top = click.Context(glue, info_name="glue", **glue.context_settings)
    command = glue.get_command(top, name)
    assert command is not None, f"there is no command {name}"
    return _described(command, _context(command, top, name))


def _context(command: click.Command, parent: click.Context, name: str) -> click.Context:
    return click.Context(command, parent=parent, info_name=name, **command.context_settings)


def _described(command: click.Command, context: click.Context) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows = [
        f"| `{_cell(names)}` | {_cell(text).replace('[', '&#91;')} |"
        for each in command.get_params(context)
        if (record := each.get_help_record(context)) and record[0] != "-h, --help"
        for names, text in [record]
        if text
    ]
    table = ["", "| option | effect |", "| --- | --- |", *rows] if rows else []
    parts = ["\n".join([f"```text\n{' '.join(usage.split())}\n```", *table])]
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                inner = _context(found, context, each)
                summary = " ".join((found.help or "").split("\n\n")[0].split())
                parts.append(f"### {inner.command_path}\n\n{summary}\n\n{_described(found, inner)}")
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _outside(page: str, target: str) -> str:
    """Return the path in the repository of a link's target, or "" if it is below `docs/`."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(page), target))
    return "" if path.startswith("docs/") else path


def _name(path: str) -> str:
    return f"files/{path.replace('/', '-')}"


class Frozen(griffe.Extension):
    """A griffe extension that documents a dataclass by its constructor, without its fields.

    The tree of errors is shown as a code block.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _drop_fields(pkg)
        drawing = pkg["errors"].docstring
        if drawing is not None:  # a code block keeps the lines of the tree
            title, _, tree = drawing.value.partition("\n\n")
            drawing.value = f"{title}\n\n```text\n{tree}\n```"


def _drop_fields(parent: griffe.Module | griffe.Class) -> None:
    for name, member in list(parent.members.items()):
        if isinstance(member, (griffe.Module, griffe.Class)):
            _drop_fields(member)
        elif isinstance(parent, griffe.Class) and isinstance(member, griffe.Attribute):
            is_plain = not member.docstring and "property" not in member.labels
            if is_plain and "StrEnum" not in map(str, parent.bases):
                parent.del_member(name)
