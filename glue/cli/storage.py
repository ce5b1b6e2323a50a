"""Open the store that the option --store or a setting names, and load sessions from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import click

from glue.cli.settings import settings
from glue.errors import ConfigError, StoreError
from glue.messages import Message
from glue.stores import open_store
from glue.stores.store import Store

T = TypeVar("T")

store_option = click.option(
    "--store",
    metavar="PATH",
    # The option may also be given to the group, before the name of the command.
    callback=lambda ctx, _, path: path or ctx.obj,
    help="Folder, .db file or postgresql:// address that stores sessions.",
)


def configured_store(given: str | None) -> str:
    """Return the store's path or address from --store or a setting, or "" for the default store."""
    found = settings({"store": given}).get("store")
    return found.value if found is not None else ""


def with_store(named: str | None, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the named or configured store, and return the result of `work(store)`."""
    store = open_store(configured_store(named))

    async def main() -> T:
        try:
            return await work(store)
        except ValueError as error:  # a name that no store accepts
            raise ConfigError(str(error)) from None

    return anyio.run(main)


def load_session(named: str | None, name: str) -> tuple[Message, ...]:
    """Return the messages of a session; raise ConfigError if the session does not exist.

    Raise StoreError if the session is damaged.
    """

    async def load(store: Store) -> tuple[Message, ...]:
        try:
            return await store.load(name)
        except StoreError as error:
            if name in {info.id for info in await store.list()}:
                raise
            raise ConfigError(str(error)) from None

    return with_store(named, load)
