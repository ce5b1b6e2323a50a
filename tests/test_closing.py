"""`glue.closing`: objects that own connections."""

from __future__ import annotations

import pytest

from glue.closing import Closeable, close

pytestmark = pytest.mark.anyio


class Connection(Closeable):
    def __init__(self) -> None:
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_async_with_closes_the_object_at_the_end_of_the_block() -> None:
    async with Connection() as connection:
        assert connection.closed == 0

    assert connection.closed == 1


async def test_async_with_closes_the_object_if_the_block_raises() -> None:
    connection = Connection()

    with pytest.raises(KeyError):
        async with connection:
            raise KeyError("bug")

    assert connection.closed == 1


async def test_close_accepts_an_object_without_aclose() -> None:
    connection = Connection()

    await close(connection)
    await close(object())

    assert connection.closed == 1
