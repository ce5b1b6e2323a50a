"""A small, Go-style agent toolkit: one loop, typed tools, providers by name.

Names are loaded at first use, so that `import glue` costs next to nothing.
"""

from glue.lazy import lazy_names as _lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.agent import Agent as Agent
    from glue.codec import from_json as from_json
    from glue.codec import to_json as to_json
    from glue.compaction import collapse_continuations as collapse_continuations
    from glue.compaction import keep_recent as keep_recent
    from glue.compaction import summarize as summarize
    from glue.context import AnyTool as AnyTool
    from glue.context import Cancel as Cancel
    from glue.context import Context as Context
    from glue.context import Host as Host
    from glue.context import ToolResult as ToolResult
    from glue.context import error_result as error_result
    from glue.context import text_result as text_result
    from glue.durable.batch import map as map  # noqa: A004
    from glue.errors import ConfigError as ConfigError
    from glue.errors import GlueError as GlueError
    from glue.errors import ProviderError as ProviderError
    from glue.errors import RunError as RunError
    from glue.errors import ToolError as ToolError
    from glue.events import Event as Event
    from glue.events import RunResult as RunResult
    from glue.function.call import Abort as Abort
    from glue.function.call import Replace as Replace
    from glue.function.call import Skip as Skip
    from glue.function.call import Step as Step
    from glue.function.call import ToolHook as ToolHook
    from glue.function.decorator import Tool as Tool
    from glue.function.decorator import tool as tool
    from glue.function.schema import Field as Field
    from glue.limits import Limits as Limits
    from glue.limits import Outcome as Outcome
    from glue.limits import StopReason as StopReason
    from glue.limits import estimate_tokens as estimate_tokens
    from glue.loop.run import run as run
    from glue.loop.run import run_continue as run_continue
    from glue.messages import AssistantMessage as AssistantMessage
    from glue.messages import File as File
    from glue.messages import Image as Image
    from glue.messages import Message as Message
    from glue.messages import Opaque as Opaque
    from glue.messages import Part as Part
    from glue.messages import Request as Request
    from glue.messages import Text as Text
    from glue.messages import Thinking as Thinking
    from glue.messages import ToolCall as ToolCall
    from glue.messages import ToolMessage as ToolMessage
    from glue.messages import ToolSpec as ToolSpec
    from glue.messages import Usage as Usage
    from glue.messages import UserMessage as UserMessage
    from glue.messages import message_from_json as message_from_json
    from glue.messages import message_to_json as message_to_json
    from glue.messages import messages_from_json as messages_from_json
    from glue.messages import messages_to_json as messages_to_json
    from glue.messages import user as user
    from glue.permission import AllowAll as AllowAll
    from glue.permission import Ask as Ask
    from glue.permission import Decision as Decision
    from glue.permission import DenyAll as DenyAll
    from glue.permission import Permission as Permission
    from glue.permission import PermissionRequest as PermissionRequest
    from glue.permission import PermissionTarget as PermissionTarget
    from glue.permission import Rules as Rules
    from glue.permission import allow as allow
    from glue.permission import deny as deny
    from glue.policies import Policy as Policy
    from glue.policies import Say as Say
    from glue.policies import Stop as Stop
    from glue.provider import Attempt as Attempt
    from glue.provider import Capabilities as Capabilities
    from glue.provider import Done as Done
    from glue.provider import Provider as Provider
    from glue.provider import ProviderEvent as ProviderEvent
    from glue.provider import TextDelta as TextDelta
    from glue.provider import ThinkingDelta as ThinkingDelta
    from glue.provider import ToolCallDelta as ToolCallDelta
    from glue.providers.failover import with_failover as with_failover
    from glue.providers.retry import with_escalation as with_escalation
    from glue.providers.retry import with_retries as with_retries
    from glue.secrets import find_secrets as find_secrets
    from glue.secrets import is_secret_name as is_secret_name
    from glue.secrets import mask_secrets as mask_secrets
    from glue.secrets import name_secrets as name_secrets
    from glue.session import Session as Session
    from glue.stores.jsonl import FileStore as FileStore
    from glue.stores.memory import MemoryStore as MemoryStore
    from glue.stores.postgres import PostgresStore as PostgresStore
    from glue.stores.sqlite import SQLiteStore as SQLiteStore
    from glue.stores.store import Store as Store
    from glue.stream import Events as Events
    from glue.text import HIDDEN_CHARACTERS as HIDDEN_CHARACTERS
    from glue.text import clean_text as clean_text
    from glue.text import dollars as dollars
    from glue.text import one_line as one_line
    from glue.text import seconds as seconds

__version__ = "0.1.0"

# Where each public name lives; a test compares this with the imports above and with __all__.
_HOMES = {
    "agent": "Agent",
    "codec": "from_json to_json",
    "compaction": "collapse_continuations keep_recent summarize",
    "context": "AnyTool Cancel Context Host ToolResult error_result text_result",
    "durable.batch": "map",
    "errors": "ConfigError GlueError ProviderError RunError ToolError",
    "events": "Event RunResult",
    "function.call": "Abort Replace Skip Step ToolHook",
    "function.decorator": "Tool tool",
    "function.schema": "Field",
    "limits": "Limits Outcome StopReason estimate_tokens",
    "loop.run": "run run_continue",
    "messages": "AssistantMessage File Image Message Opaque Part Request Text Thinking ToolCall ToolMessage "
    "ToolSpec Usage UserMessage message_from_json message_to_json messages_from_json "
    "messages_to_json user",
    "permission": "AllowAll Ask Decision DenyAll Permission PermissionRequest PermissionTarget Rules allow deny",
    "policies": "Policy Say Stop",
    "provider": "Attempt Capabilities Done Provider ProviderEvent TextDelta ThinkingDelta ToolCallDelta",
    "providers.failover": "with_failover",
    "providers.retry": "with_escalation with_retries",
    "secrets": "find_secrets is_secret_name mask_secrets name_secrets",
    "session": "Session",
    "stores.jsonl": "FileStore",
    "stores.memory": "MemoryStore",
    "stores.postgres": "PostgresStore",
    "stores.sqlite": "SQLiteStore",
    "stores.store": "Store",
    "stream": "Events",
    "text": "HIDDEN_CHARACTERS clean_text dollars one_line seconds",
}
__all__ = sorted(" ".join(_HOMES.values()).split())

__getattr__, __dir__ = _lazy_names(__name__, _HOMES)
