"""A small, Go-style agent toolkit: one loop, typed tools, providers by name.

Names are loaded at first use, so that `import glue` costs next to nothing.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.agent import Agent as Agent
    from glue.codec import message_from_json as message_from_json
    from glue.codec import message_to_json as message_to_json
    from glue.codec import messages_from_json as messages_from_json
    from glue.codec import messages_to_json as messages_to_json
    from glue.compaction import keep_recent as keep_recent
    from glue.compaction import summarize as summarize
    from glue.context import Cancel as Cancel
    from glue.context import Context as Context
    from glue.context import Host as Host
    from glue.context import ToolResult as ToolResult
    from glue.context import error_result as error_result
    from glue.context import text_result as text_result
    from glue.errors import ConfigError as ConfigError
    from glue.errors import GlueError as GlueError
    from glue.errors import ProviderError as ProviderError
    from glue.errors import RunError as RunError
    from glue.errors import ToolError as ToolError
    from glue.events import Event as Event
    from glue.field import Field as Field
    from glue.hooks import Abort as Abort
    from glue.hooks import Replace as Replace
    from glue.hooks import Skip as Skip
    from glue.hooks import ToolHook as ToolHook
    from glue.limits import Limits as Limits
    from glue.limits import Outcome as Outcome
    from glue.limits import StopReason as StopReason
    from glue.loop import run as run
    from glue.loop import run_continue as run_continue
    from glue.permission import AllowAll as AllowAll
    from glue.permission import Ask as Ask
    from glue.permission import Decision as Decision
    from glue.permission import DenyAll as DenyAll
    from glue.permission import Permission as Permission
    from glue.permission import PermissionRequest as PermissionRequest
    from glue.permission import Rules as Rules
    from glue.permission import allow as allow
    from glue.permission import deny as deny
    from glue.policies.base import Policy as Policy
    from glue.policies.base import Say as Say
    from glue.policies.base import Stop as Stop
    from glue.providers.escalation import with_escalation as with_escalation
    from glue.providers.failover import with_failover as with_failover
    from glue.providers.retry import with_retries as with_retries
    from glue.result import RunResult as RunResult
    from glue.session import Session as Session
    from glue.step import Step as Step
    from glue.stores.file import FileStore as FileStore
    from glue.stores.memory import MemoryStore as MemoryStore
    from glue.stores.protocol import Store as Store
    from glue.stores.sqlite import SQLiteStore as SQLiteStore
    from glue.tool import Tool as Tool
    from glue.tool import tool as tool
    from glue.truncation import collapse_continuations as collapse_continuations
    from glue.types import AssistantMessage as AssistantMessage
    from glue.types import Attempt as Attempt
    from glue.types import Done as Done
    from glue.types import File as File
    from glue.types import Image as Image
    from glue.types import Message as Message
    from glue.types import Opaque as Opaque
    from glue.types import Part as Part
    from glue.types import Provider as Provider
    from glue.types import ProviderEvent as ProviderEvent
    from glue.types import Request as Request
    from glue.types import Text as Text
    from glue.types import TextDelta as TextDelta
    from glue.types import Thinking as Thinking
    from glue.types import ThinkingDelta as ThinkingDelta
    from glue.types import ToolCall as ToolCall
    from glue.types import ToolCallDelta as ToolCallDelta
    from glue.types import ToolMessage as ToolMessage
    from glue.types import ToolSpec as ToolSpec
    from glue.types import Usage as Usage
    from glue.types import UserMessage as UserMessage
    from glue.types import user as user

__version__ = "0.1.0"

# Where each public name lives; a test compares this with the imports above and with __all__.
_HOMES = {
    "agent": "Agent",
    "codec": "message_from_json message_to_json messages_from_json messages_to_json",
    "compaction": "keep_recent summarize",
    "context": "Cancel Context Host ToolResult error_result text_result",
    "errors": "ConfigError GlueError ProviderError RunError ToolError",
    "events": "Event",
    "field": "Field",
    "hooks": "Abort Replace Skip ToolHook",
    "limits": "Limits Outcome StopReason",
    "permission": "AllowAll Ask Decision DenyAll Permission PermissionRequest Rules allow deny",
    "providers.escalation": "with_escalation",
    "providers.failover": "with_failover",
    "providers.retry": "with_retries",
    "result": "RunResult",
    "step": "Step",
    "tool": "Tool tool",
    "session": "Session",
    "stores.file": "FileStore",
    "stores.memory": "MemoryStore",
    "stores.protocol": "Store",
    "stores.sqlite": "SQLiteStore",
    "types": "AssistantMessage Attempt Done File Image Message Opaque Part Provider ProviderEvent Request Text"
    " TextDelta Thinking ThinkingDelta ToolCall ToolCallDelta ToolMessage ToolSpec Usage UserMessage user",
    "loop": "run run_continue",
    "policies.base": "Policy Say Stop",
    "truncation": "collapse_continuations",
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> object:
    home = _NAMES.get(name)
    if home is None:
        raise AttributeError(f"module 'glue' has no attribute {name!r}")
    value = getattr(__import__(f"glue.{home}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


class _Package(type(sys)):  # type: ignore[misc]
    def __setattr__(self, name: str, value: object) -> None:
        # An import of the module glue.tool would put it where the decorator of that name belongs.
        if name not in _NAMES or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
