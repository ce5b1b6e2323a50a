"""The store of a command: an option before a setting, and clear errors for missing sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.storage import configured_store, load_session, with_store
from glue.errors import ConfigError, StoreError
from glue.stores.store import Store

Cli = Callable[..., Any]


def test_the_option_wins_over_the_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_store(None) == ""

    monkeypatch.setenv("GLUE_STORE", "from-the-setting")

    assert configured_store(None) == "from-the-setting"
    assert configured_store("given") == "given"


def test_a_missing_session_is_a_mistake_of_the_user(cli: Cli) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_session("st", "nowhere")


def test_a_damaged_database_is_an_error_of_the_store(cli: Cli) -> None:
    Path("chats.db").write_bytes(b"this is not a database" * 200)

    with pytest.raises(StoreError, match=r"chats\.db"):
        load_session("chats.db", "demo")


def test_a_name_that_no_store_accepts_is_a_mistake_of_the_user(cli: Cli) -> None:
    async def work(store: Store) -> None:
        raise ValueError("a session needs a name")

    with pytest.raises(ConfigError, match="a session needs a name"):
        with_store("st", work)
