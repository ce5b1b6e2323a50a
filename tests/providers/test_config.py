"""Providers that the user describes in config.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue import Agent, providers
from glue.errors import ConfigError, MissingKey, UnknownProvider
from glue.providers import registry

pytestmark = pytest.mark.usefixtures("bare_environment")


SECRET = "sk-" + "not" + "-a-real-one-0123456789"


def test_providers_of_the_users_config_are_catalog_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        '[providers.acme]\nwire = "anthropic"\nbase_url = "https://acme.example/v1"\n'
        'key = "ACME_KEY"\nmodel = "a-1"\n'
        "[providers.acme.quirks]\nimages = []\ntools = false\ntool_id_limit = 9\n"
        '[providers.here]\nbase_url = "http://localhost:1/v1"\n'
    )

    entry = providers.lookup("acme")

    assert (entry.wire, entry.key, entry.model) == ("anthropic", ("ACME_KEY",), "a-1")
    quirks = entry.quirks
    assert (quirks.images, quirks.tools, quirks.tool_id_limit) == ((), False, 9)
    assert {"acme", "here"} < set(providers.known())
    with pytest.raises(MissingKey, match="set ACME_KEY"):
        providers.new("acme")
    assert providers.new("here:m").model == "m"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('wire = "anthropic"', "base_url is missing"),
        (
            'base_url = "https://a"\nurl = "x"',
            "the field 'url' is unknown; the fields are: wire, base_url",
        ),
        (
            'base_url = "https://a"\nwire = "morse"',
            "there is no wire 'morse'; there are: anthropic, bedrock, gemini",
        ),
        ('base_url = "https://a"\nwindow = "big"', "window must be a whole number"),
        (
            'base_url = "https://a"\nquirks = {speed = 1}',
            "quirks: the field 'speed' is unknown; the fields are: max_tokens, ",
        ),
        (
            'base_url = "https://a"\nquirks = {images = "image/png"}',
            "quirks: images must be a list of strings",
        ),
        ('base_url = "https://a"\nwindow = true', "window must be a whole number"),
        ('base_url = "https://a"\nkey = [1]', "key must be a string or a list of strings"),
        (
            'base_url = "https://a"\nquirks = {files = ["text/*", 1]}',
            "quirks: files must be a list of strings",
        ),
        ('base_url = "https://a"\nquirks = {tools = 1}', "quirks: tools must be true or false"),
        (
            'base_url = "https://a"\nquirks = {tool_id_limit = true}',
            "quirks: tool_id_limit must be a whole number",
        ),
        ('base_url = "https://a"\nquirks = {echo = false}', "quirks: echo must be a string"),
        (
            'base_url = "https://a"\n[providers."a b"]\nbase_url = "https://a"',
            "must not be empty or contain .* a space: 'a b'",
        ),
    ],
)
def test_a_mistake_in_the_users_own_providers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_registry", {})
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "config.toml").write_text(f"[providers.acme]\n{text}\n")

    with pytest.raises(ConfigError, match=what):
        providers.new("acme")


def test_providers_that_are_not_a_table_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "config.toml").write_text("providers = 3\n")

    with pytest.raises(
        ConfigError, match=r"'providers' must contain tables such as \[providers.acme\]"
    ):
        providers.new("acme")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b'[providers.acme\nbase_url = "https://a"\n',
            r"is not valid TOML: .*\(at line 1, column 16\)",
        ),
        (b"model = " + b"[" * 5000, r"is not valid TOML: .+"),
        (b"model = " + b"9" * 5000, r"is not valid TOML: .+"),
        (b"model = '\xff'\n", r"cannot be read: it is not UTF-8 text"),
        (None, r"cannot be read: Is a directory"),
    ],
    ids=["torn", "deep", "huge", "no text", "a folder"],
)
def test_an_unreadable_config_is_reported_only_with_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.mkdir() if content is None else file.write_bytes(content)

    with pytest.raises(
        UnknownProvider, match=rf"^unknown provider 'acme'; {file} {why}; there are: "
    ) as caught:
        Agent("acme").run_sync("hi")

    assert "\n" not in str(caught.value)
    assert Agent("offline").run_sync("hi").text
    assert "openai" in providers.known()


def test_a_config_that_was_corrected_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.write_text("[providers.acme")
    with pytest.raises(UnknownProvider, match="is not valid TOML"):
        providers.lookup("acme")

    file.write_text('[providers.acme]\nbase_url = "https://a"\n')
    os.utime(file, (1, 1))  # a different time, even on a file system with a coarse clock

    assert providers.lookup("acme").base_url == "https://a"
    with pytest.raises(UnknownProvider, match=r"^unknown provider 'acne'; did you mean acme"):
        providers.lookup("acne")


def test_a_config_file_in_a_checkout_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    for name in ("config.toml", "glue.toml", ".glue.toml"):
        (tmp_path / name).write_text('[providers.acme]\nbase_url = "https://evil.example"\n')

    with pytest.raises(UnknownProvider):
        providers.new("acme")
