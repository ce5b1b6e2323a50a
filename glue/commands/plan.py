"""From flags, a file's header and the configuration to what holds for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glue.commands.asking import permission
from glue.commands.bundles import make_tools, split
from glue.config import Setting, settings
from glue.errors import ConfigError
from glue.header import glue_table
from glue.limits import Limits

if TYPE_CHECKING:
    from glue.agent import Agent

_LIMITS = {"max_turns": "max_turns", "budget_usd": "usd_budget", "timeout": "seconds"}


class Plan:
    """What holds: flags, then what the agent says (its header, its code), then the environment and files."""

    def __init__(self, given: Mapping[str, Any], *, path: str | None = None, agent: Agent[Any, Any] | None = None):
        self.given = given
        self.agent = agent
        self.header = glue_table(path) if path is not None else {}
        self.configured: dict[str, Setting] = settings()

    def find(self, name: str) -> Any:
        """Give a setting from the first place that makes it, the agent's code left out."""
        value = self.given.get(name)
        if value not in (None, (), ""):
            return value
        if name in self.header:
            return self.header[name]
        found = self.configured.get(name)
        return found.value if found is not None else None

    def _said(self, name: str) -> Any:
        """Give a setting that goes before the agent's code."""
        value = self.given.get(name)
        return value if value not in (None, (), "") else self.header.get(name)

    @property
    def model(self) -> Any:
        """Give the model that goes before the agent's own, or None."""
        return self._said("model") if self.agent is not None else self.find("model")

    @property
    def limits(self) -> Limits | None:
        """Give the limits, or None where the agent's own stand as they are."""
        own: Limits | None = self.agent.settings["limits"] if self.agent is not None else None
        find = self._said if own is not None else self.find
        changed = {field: find(name) for name, field in _LIMITS.items() if find(name) is not None}
        try:
            return replace(own or Limits(), **changed) if changed else None
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None

    def tools(self, root: str = ".") -> list[Any]:
        """Make the ready-made tools that were asked for, those left out that the agent has under the same name."""
        names = self._said("tools") if self.agent is not None else self.find("tools")
        made = make_tools(split(names or ()), root)
        own = list(self.agent.settings["tools"]) if self.agent is not None else []
        taken = {tool.spec.name for tool in own}
        return [*own, *(tool for tool in made if tool.spec.name not in taken)]

    def permission(self, ask: Callable[[Any], Any] | None) -> Any:
        own = self.agent.settings["permission"] if self.agent is not None else None
        yes = bool(self.given.get("yes"))
        return permission(own, allow=self._rules("allow"), deny=self._rules("deny"), yes=yes, ask=ask)

    def _rules(self, name: str) -> tuple[str, ...]:
        """Give the rules of all places together: a refusal must not be lost because a flag adds another."""
        found = self.configured.get(name)
        places = (self.given.get(name), self.header.get(name), found.value if found is not None else None)
        return tuple(rule for rules in places for rule in rules or ())
