"""For mkdocs: files outside `docs/` that a page links to become files of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"\]\(\.\./([\w./-]+)\)")


def on_files(files: Files, config: Any) -> Files:
    for page in files.documentation_pages():
        for target in dict.fromkeys(OUTSIDE.findall(page.content_string)):
            if (ROOT / target).is_file() and target not in files.src_uris:
                files.append(File.generated(config, _name(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda match: f"]({up}{_name(match[1])})", markdown)


def _name(target: str) -> str:
    return f"files/{target.replace('/', '-')}"
