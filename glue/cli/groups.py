"""Click groups: one that loads its commands when they are called, two with a default command."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from glue.text import suggest


class LazyCommand(NamedTuple):
    """A command of a LazyGroup: its name, the module that defines it, and its help text."""

    name: str
    home: str  # "package.module:attribute"
    help: str


class LazyGroup(click.Group):
    """A group that imports the module of a command only when that command is called."""

    def __init__(self, *args: Any, lazy: tuple[LazyCommand, ...] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = {command.name: command for command in lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, attribute = self.lazy[cmd_name].home.split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}; {suggest(args[0], self.lazy)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        # click.Group would import every command to read its help.
        named = [
            CompletionItem(command.name, help=command.help)
            for command in self.lazy.values()
            if command.name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.help) for command in self.lazy.values()])


class ListGroup(click.Group):
    """A group with a default command, `list`: `glue sessions --json` runs `glue sessions list`.

    With `takes_name` the default command takes a name: `glue queue rows` runs `glue queue list
    rows`, unless `rows` is a command.
    """

    def __init__(self, *args: Any, takes_name: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.takes_name = takes_name

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_word = bool(args) and not args[0].startswith("-")
        is_command = is_word and (args[0] in self.commands or not self.takes_name)
        if not is_command and {*self.commands, *ctx.help_option_names}.isdisjoint(args[:1]):
            others = () if self.takes_name else {*self.commands, *ctx.help_option_names}
            if set(others).isdisjoint(args):
                args = ["list", *args]
        return super().parse_args(ctx, args)


class RunGroup(click.Group):
    """A group whose default command is `run`: `glue eval a.py b.jsonl` runs `glue eval run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands.get(cmd_name, self.commands["run"])
