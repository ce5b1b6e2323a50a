"""Events as JSON, one object a line: what `--json` prints. The schema is in docs/cli.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from glue.codec import message_to_json
from glue.types import AssistantMessage, Json, ToolMessage, Usage, UserMessage

if TYPE_CHECKING:
    from glue.result import RunResult

VERSION = 1


def event_to_json(event: Any) -> dict[str, Json]:
    """Encode an event: `type` is its class in snake_case, the rest are its fields."""
    name = _snake(type(event).__name__)
    if name == "request_start":  # the whole transcript with each request would be quadratic
        request = event.request
        return {
            "type": name,
            "number": event.number,
            "messages": len(request.messages),
            "tools": [tool.name for tool in request.tools],
            "max_tokens": request.max_tokens,
        }
    return {"type": name, **{field.name: plain(getattr(event, field.name)) for field in fields(event)}}


def result_to_json(result: RunResult[Any], session: str = "") -> dict[str, Json]:
    """Encode how a run ended: the last line."""
    return {
        "type": "result",
        "outcome": result.outcome.value,
        "exit_code": result.outcome.exit_code,
        "stop_reason": result.stop_reason.value if result.stop_reason is not None else None,
        "text": result.text,
        "output": plain(result.output),
        "usage": plain(result.usage),
        "cost": result.cost,
        "turns": result.turns,
        "requests": result.requests,
        "seconds": round(result.seconds, 3),
        "run_id": result.run_id,
        "session": session or None,
        "notice": result.notice or None,
        "error": error_to_json(result.error) if result.error is not None else None,
    }


def error_to_json(error: BaseException) -> dict[str, Json]:
    return {"class": type(error).__name__, "message": str(error), "kind": getattr(error, "kind", None)}


def plain(value: Any) -> Json:
    """Make JSON of whatever an event or an output may hold."""
    if isinstance(value, Enum):  # before str: a StrEnum is both
        return value.value
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (UserMessage, AssistantMessage, ToolMessage)):
        return message_to_json(value)
    if isinstance(value, Usage) or (is_dataclass(value) and not isinstance(value, type)):
        left_out = ("memo", "extra")
        named = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in left_out}
        inner = {name: plain(item) for name, item in named.items()}
        return {"type": _snake(type(value).__name__), **inner} if _is_event(value) else inner
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "model_dump"):  # pydantic
        return plain(value.model_dump(mode="json"))
    if hasattr(value, "__struct_fields__"):  # msgspec
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return str(value)


def _is_event(value: Any) -> bool:
    return type(value).__module__ == "glue.events"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
