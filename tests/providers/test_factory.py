"""A provider is built from its entry: key, base URL, default model, retries."""

from __future__ import annotations

from typing import Any

import pytest

from glue import providers
from glue.errors import ConfigError, MissingKey
from glue.providers import find_base_url
from glue.providers.retry import Retries

pytestmark = pytest.mark.usefixtures("bare_environment")


SECRET = "sk-" + "not" + "-a-real-one-0123456789"


def test_a_missing_key_names_the_variables() -> None:
    with pytest.raises(MissingKey, match="gemini: no key; set GEMINI_API_KEY or GOOGLE_API_KEY"):
        providers.new("gemini")


def test_a_provider_has_name_and_model_and_no_key_in_its_repr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    provider = providers.new("Groq:llama-x")

    assert isinstance(provider, Retries)
    assert (provider.name, provider.model) == ("groq", "llama-x")
    assert SECRET not in repr(provider)


def test_the_default_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.new("anthropic", key=SECRET).model == "claude-haiku-5-5"  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["vllm", "lmstudio", "openai-compatible"])
def test_a_provider_without_a_default_model_requires_a_model(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"{spec}:MODEL"):
        providers.new(spec, base_url="http://localhost:1/v1")


def test_retries_can_be_switched_off() -> None:
    assert not isinstance(providers.new("ollama", retries=False), Retries)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"retries": "no"}, TypeError),
        ({"base_url": 1}, TypeError),
        ({"key": 1}, TypeError),
        ({"tools": "xml"}, ValueError),
    ],
)
def test_an_option_of_a_wrong_type_is_an_error_that_names_it(
    option: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(option))):
        providers.new("ollama", **option)


def test_the_key_may_be_in_any_variable_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)

    provider: Any = providers.new("gemini", retries=False)

    assert (b"x-goog-api-key", SECRET.encode()) in provider.http._headers


def test_an_access_key_of_a_cloud_is_not_sent_as_a_bearer_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    signed: Any = providers.new("bedrock", retries=False)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", SECRET)
    bearer: Any = providers.new("bedrock", retries=False)

    assert not signed.http.authorized
    assert bearer.http.authorized


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        providers.new("ollama", colour="red")


@pytest.mark.parametrize("url", ["nonsense", "ftp://host"])
def test_a_malformed_base_url_is_an_error(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", url)

    with pytest.raises(ConfigError, match=r"ollama: .* is not a base URL"):
        providers.new("ollama")


def test_a_password_in_the_base_url_names_the_variable_of_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        providers.new("openai", base_url="https://me:hunter2@host/v1", key="x")
    with pytest.raises(ConfigError) as local:
        providers.new("vllm:qwen3", base_url="http://me:hunter2@host/v1")

    assert str(caught.value) == (
        "openai: the base URL must not contain a user or password; set OPENAI_API_KEY to the key"
    )
    assert "hunter2" not in str(local.value)


@pytest.mark.parametrize(
    ("name", "environ", "url"),
    [
        ("groq", {}, "https://api.groq.com/openai/v1"),
        ("groq", {"GROQ_BASE_URL": "http://localhost:1"}, "http://localhost:1"),
        (
            "azure",
            {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"},
            "https://r.openai.azure.com/openai/v1",
        ),
        ("azure", {"AZURE_OPENAI_BASE_URL": "https://r/x"}, "https://r/x"),
        ("bedrock", {}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        (
            "bedrock",
            {"AWS_DEFAULT_REGION": "eu-west-1"},
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
        ),
        (
            "vertex",
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "global"},
            "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google",
        ),
        ("openai-compatible", {"OPENAI_COMPATIBLE_BASE_URL": "http://h/v1"}, "http://h/v1"),
    ],
)
def test_base_urls(name: str, environ: dict[str, str], url: str) -> None:
    assert find_base_url(providers.lookup(name), environ) == url


@pytest.mark.parametrize(
    ("name", "variable"),
    [("azure", "AZURE_OPENAI_ENDPOINT"), ("openai-compatible", "OPENAI_COMPATIBLE_BASE_URL")],
)
def test_a_missing_base_url_names_the_variable_to_set(name: str, variable: str) -> None:
    for environ in ({}, {"AWS_DEFAULT_REGION": "eu-west-1"}):
        with pytest.raises(ConfigError, match=f"{name}: no base URL; set {variable}"):
            find_base_url(providers.lookup(name), environ)


def test_another_base_url_switches_to_the_compatible_wire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own: Any = providers.new("openai", key=SECRET)
    other: Any = providers.new("openai", key=SECRET, base_url="http://localhost:1/v1")
    named: Any = providers.new("openai", key=SECRET, wire="openai_chat")

    assert [type(provider.provider).__name__ for provider in (own, other, named)] == [
        "OpenAIResponses",
        "OpenAIChat",
        "OpenAIChat",
    ]
