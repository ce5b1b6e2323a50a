"""The command that installs an optional dependency, for the way in which glue was installed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = "glue-agents"


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra: from the index, or from a checkout or archive.

    It is such as `pip install 'glue-agents[chat]'` or `pip install -e '/my/checkout[chat]'`.
    """
    # Slow to import, and only needed for a hint.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        return command_for(_checkout_url(Path(__file__).resolve().parents[1]), extra)
    return command_for(text or "", extra)


def command_for(direct_url: str, extra: str) -> str:
    """Return the pip command for the content of `direct_url.json`, in which pip records a source.

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
    """Return the source of a package that runs from its checkout and was never installed."""
    if not (folder / "pyproject.toml").is_file():
        return ""
    return json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})


def _short(path: str) -> str:
    """Return "." for the current folder, and other paths unchanged."""
    return "." if os.path.realpath(path) == os.path.realpath(os.curdir) else path
