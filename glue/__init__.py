"""A small, Go-style agent toolkit: one loop, typed tools, providers by name.

Names are loaded at first use, so that `import glue` costs next to nothing.
"""

from glue.lazy import lazy_names as _lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue import errors as errors
    from glue import events as events
    from glue import permission as permission
    from glue import policies as policies
    from glue import prompts as prompts
    from glue import provider as provider
    from glue import providers as providers
    from glue import stores as stores
    from glue import telemetry as telemetry
    from glue import testing as testing
    from glue import tools as tools
    from glue.agent import Agent as Agent
    from glue.codec import from_json as from_json
    from glue.codec import to_json as to_json
    from glue.compaction import keep_recent as keep_recent
    from glue.compaction import summarize as summarize
    from glue.context import Cancel as Cancel
    from glue.context import Context as Context
    from glue.context import ToolResult as ToolResult
    from glue.context import error_result as error_result
    from glue.context import text_result as text_result
    from glue.decision import allow as allow
    from glue.decision import defer as defer
    from glue.decision import deny as deny
    from glue.durable.batch import map as map  # noqa: A004
    from glue.errors import GlueError as GlueError
    from glue.errors import ToolError as ToolError
    from glue.evaluation import evaluate as evaluate
    from glue.function.decorator import Tool as Tool
    from glue.function.decorator import tool as tool
    from glue.function.hooks import Abort as Abort
    from glue.function.hooks import Replace as Replace
    from glue.function.hooks import Skip as Skip
    from glue.function.hooks import Step as Step
    from glue.function.hooks import ToolHook as ToolHook
    from glue.function.schema import Field as Field
    from glue.limits import Limits as Limits
    from glue.limits import Outcome as Outcome
    from glue.limits import StopReason as StopReason
    from glue.loop.run import resume as resume
    from glue.loop.run import resume_sync as resume_sync
    from glue.loop.run import run as run
    from glue.loop.run import run_sync as run_sync
    from glue.loop.run import stream as stream
    from glue.loop.run import stream_sync as stream_sync
    from glue.messages import AssistantMessage as AssistantMessage
    from glue.messages import File as File
    from glue.messages import Image as Image
    from glue.messages import Message as Message
    from glue.messages import Part as Part
    from glue.messages import Request as Request
    from glue.messages import Text as Text
    from glue.messages import ToolCall as ToolCall
    from glue.messages import ToolMessage as ToolMessage
    from glue.messages import Usage as Usage
    from glue.messages import UserMessage as UserMessage
    from glue.messages import user as user
    from glue.permission import AllowAll as AllowAll
    from glue.permission import Ask as Ask
    from glue.permission import Rules as Rules
    from glue.provider import Provider as Provider
    from glue.providers.failover import with_failover as with_failover
    from glue.result import RunResult as RunResult
    from glue.session import Session as Session
    from glue.stores.jsonl import FileStore as FileStore
    from glue.stores.sqlite import SQLiteStore as SQLiteStore

__version__ = "0.1.0"

# The module that defines each public name. A test compares this with the imports above and __all__.
_HOMES = {
    "agent": "Agent",
    "codec": "from_json to_json",
    "compaction": "keep_recent summarize",
    "context": "Cancel Context ToolResult error_result text_result",
    "durable.batch": "map",
    "errors": "GlueError ToolError",
    "evaluation": "evaluate",
    "function.decorator": "Tool tool",
    "function.hooks": "Abort Replace Skip Step ToolHook",
    "function.schema": "Field",
    "limits": "Limits Outcome StopReason",
    "loop.run": "resume resume_sync run run_sync stream stream_sync",
    "messages": (
        "AssistantMessage File Image Message Part Request Text ToolCall ToolMessage Usage "
        "UserMessage user"
    ),
    "decision": "allow defer deny",
    "permission": "AllowAll Ask Rules",
    "provider": "Provider",
    "providers.failover": "with_failover",
    "result": "RunResult",
    "session": "Session",
    "stores.jsonl": "FileStore",
    "stores.sqlite": "SQLiteStore",
}
__all__ = sorted(" ".join(_HOMES.values()).split())

# `import glue` is enough to use these as `glue.errors` and so on.
_MODULES = (
    "errors",
    "events",
    "permission",
    "policies",
    "prompts",
    "provider",
    "providers",
    "stores",
    "telemetry",
    "testing",
    "tools",
)

_load, __dir__ = _lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return __import__(f"glue.{name}", fromlist=[name])
    return _load(name)
