"""For `make docs`: what mkdocs and its reader of docstrings do not know by themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"\]\(\.\./([\w./-]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Make files outside `docs/` that a page links to files of the site."""
    for page in list(files.documentation_pages()):
        for target in OUTSIDE.findall(page.content_string):
            if _name(target) not in files.src_uris:
                files.append(File.generated(config, _name(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda match: f"]({up}{_name(match[1])})", markdown)


def _name(target: str) -> str:
    return f"files/{target.replace('/', '-')}"


class Frozen(griffe.Extension):
    """Show our dataclasses by the signature of their constructor, and not each field once more."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            if decorator.callable_path == "glue.dataclass.dataclass" and isinstance(decorator.value, griffe.ExprCall):
                decorator.value.function = griffe.ExprName("dataclass", parent="dataclasses")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        _drop_fields(pkg)
        if (drawing := pkg["errors"].docstring) is not None:  # the tree keeps its lines
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
