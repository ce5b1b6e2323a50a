"""A page of the sessions that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.stores.protocol import SessionInfo

PAGE = 50


def page(sessions: Sequence[SessionInfo], cwd: Any = None, cursor: Any = None) -> dict[str, Any]:
    """List sessions, the last changed first; a cursor names the last one seen, so that new ones shift nothing."""
    # Editors open sessions that nothing is ever said in; they can be loaded, but nobody looks for them.
    listed = [info for info in sessions if info.title and _home(info)]
    if cwd is not None:
        listed = [info for info in listed if _home(info) == cwd]
    listed.sort(key=_rank)
    if cursor is not None:
        after = _after(cursor)
        listed = [info for info in listed if _rank(info) > after]
    more = {"nextCursor": f"{listed[PAGE - 1].updated!r} {listed[PAGE - 1].id}"} if len(listed) > PAGE else {}
    return {"sessions": [_shown(info) for info in listed[:PAGE]], **more}


def _home(info: SessionInfo) -> str:
    return str((info.meta or {}).get("cwd", ""))


def _rank(info: SessionInfo) -> tuple[float, str]:
    return -info.updated, info.id


def _after(cursor: Any) -> tuple[float, str]:
    try:
        updated, name = cursor.split(" ", 1)
        return -float(updated), name
    except (AttributeError, ValueError):
        raise RpcError(INVALID_PARAMS, "cursor must be one that an earlier list gave") from None


def _shown(info: SessionInfo) -> dict[str, Any]:
    updated = datetime.fromtimestamp(info.updated, UTC).isoformat()
    return {"sessionId": info.id, "cwd": _home(info), "title": info.title, "updatedAt": updated}
