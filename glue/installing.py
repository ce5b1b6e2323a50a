"""The pip command that installs an extra of glue, from the same source as glue itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = "glue-agents"


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra of glue, from the same source as glue itself.

    The source is the package index, a checkout, an archive or a repository. The command is, for
    example, `pip install 'glue-agents[chat]'` or `pip install -e '/my/checkout[chat]'`.
    """
    # Slow to import, and only needed for a hint.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        return command_for(_checkout_url(Path(__file__).resolve().parents[1]), extra)
    return command_for(text or "", extra)


def command_for(direct_url: str, extra: str) -> str:
    """Return the pip command that installs an extra from the source that pip recorded.

    `direct_url` is the content of the file `direct_url.json`, which pip writes for a package that
    does not come from an index, or "".

    >>> command_for("", "chat")  # the package comes from an index
    "pip install 'glue-agents[chat]'"
    """
    try:
        source = json.loads(direct_url or "{}")
        url, is_editable = source.get("url", ""), source.get("dir_info", {}).get("editable")
    except (ValueError, AttributeError):
        url, is_editable = "", False
    if not url:
        return f"pip install '{PACKAGE}[{extra}]'"
    if not url.startswith("file:"):
        scheme = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
        return f"pip install '{PACKAGE}[{extra}] @ {scheme}{url}'"
    path = unquote(urlsplit(url).path)
    return f"pip install {'-e ' if is_editable else ''}'{_short(path)}[{extra}]'"


def _checkout_url(folder: Path) -> str:
    """Return the direct_url.json text of an editable install, or "" if pyproject.toml is missing.

    pip would write this text for an editable install of the checkout `folder`. A folder without
    pyproject.toml is not a checkout of a package.
    """
    if not (folder / "pyproject.toml").is_file():
        return ""
    return json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})


def _short(path: str) -> str:
    """Return "." if `path` is the current folder, or else `path` unchanged."""
    return "." if os.path.realpath(path) == os.path.realpath(os.curdir) else path
