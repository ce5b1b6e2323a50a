"""A registry of tool names that a rule of `Rules` may name, even if the agent lacks the tool."""

from __future__ import annotations

# These names are actions that are not tools: an MCP server asks the user, asks the model, or has
# changed the definition of a tool.
_registered: set[str] = {"mcp-question", "mcp-sampling", "mcp-changed"}


def register_tool_names(*names: str) -> None:
    """Register names of ready-made tools, so that `Rules` does not report them as misspelt.

    A package of tools calls this when it is imported; registering a name twice is harmless.

    >>> register_tool_names("read_file", "write_file")
    """
    _registered.update(names)


def registered_tool_names() -> frozenset[str]:
    """Return every name that was registered so far."""
    return frozenset(_registered)
