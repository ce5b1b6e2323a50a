"""Hooks for `make docs`: links to files outside `docs/`, and shorter pages for dataclasses."""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LINK_UP = re.compile(r"\]\(((?:\.\./)+[\w./-]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside `docs/` that a page links to."""
    for page in list(files.documentation_pages()):
        for target in LINK_UP.findall(page.content_string):
            path = _outside(page.src_uri, target)
            if path and _name(path) not in files.src_uris:
                files.append(File.generated(config, _name(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change links to files outside `docs/` to the files that `on_files` added."""
    up = "../" * page.file.src_uri.count("/")

    def link(match: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, match[1])
        return f"]({up}{_name(path)})" if path else match[0]

    return LINK_UP.sub(link, markdown)


def _outside(page: str, target: str) -> str:
    """Return the path below the repository that a page links to; empty if it is below `docs/`."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(page), target))
    return "" if path.startswith("docs/") else path


def _name(path: str) -> str:
    return f"files/{path.replace('/', '-')}"


class Frozen(griffe.Extension):
    """Shows a dataclass by the signature of its constructor, without repeating each field."""

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
