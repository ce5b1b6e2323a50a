"""Retention: the options of `prune` commands, and deleting old sessions of a store."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import click

from glue.durable.rows import outcome_of
from glue.errors import GlueError
from glue.limits import Outcome
from glue.stores.store import Store

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Age(click.ParamType[float]):
    """The click type of an age such as 30d, 12h or 90m, which it converts to seconds."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not an age; write 30d, 12h, 90m or 2w")
        return float(match[1]) * _UNITS[match[2]]


older_option = click.option(
    "--older",
    required=True,
    type=Age(),
    metavar="AGE",
    help="Delete sessions or rows that have not changed for this time: 30d, 12h or 2w.",
)
outcome_option = click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice([each.value for each in Outcome]),
    help="Delete only sessions or rows that ended with this outcome. Repeatable.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing."
)


async def prune_sessions(
    store: Store, older: float, outcomes: Sequence[str], *, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Delete old sessions that are not paused; return their ids, and ids that were skipped.

    Sessions that changed in the last `older` seconds are kept, and those that wait for an answer
    unless `outcomes` names `paused`. If `outcomes` has names, only sessions with these outcomes
    are deleted. `dry_run` deletes nothing, but returns the ids that would be deleted.

    Returns:
        The ids of the deleted sessions, and the ids of old sessions that were skipped because they
        are in use or cannot be read.
    """
    before, deleted, skipped = time.time() - older, list[str](), list[str]()
    for info in await store.list():
        if info.updated >= before:
            continue
        try:
            outcome = outcome_of(await store.load(info.id))
            if outcome not in outcomes if outcomes else outcome == Outcome.PAUSED:
                continue
            if not dry_run:
                await store.delete(info.id)
            deleted.append(info.id)
        except GlueError:  # in use, or unreadable
            skipped.append(info.id)
    vacuum = getattr(store, "vacuum", None)
    if deleted and not dry_run and vacuum is not None:
        await vacuum()
    return deleted, skipped
