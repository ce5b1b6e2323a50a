"""Names, models, keys and addresses: from a text to a provider, or to one clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from glue import Agent, providers
from glue.errors import ConfigError, MissingKey, ProviderError, UnknownProvider
from glue.messages import Usage
from glue.provider import capabilities
from glue.providers import catalog, find_base_url, models
from glue.providers.failover import Failover
from glue.providers.retry import Retries
from glue.testing import Script

SECRET = "sk-" + "not" + "-a-real-one-0123456789"
NAMES = """openai azure anthropic gemini vertex bedrock openrouter groq mistral deepseek xai cerebras together fireworks
    nvidia huggingface moonshot alibaba zai perplexity deepinfra sambanova github vercel ollama llamacpp vllm lmstudio
    openai-compatible offline""".split()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start without any variable that a provider reads, and forget what a test registers."""
    variables = {variable for row in catalog.ROWS for variable in row.key} | {"GLUE_MODEL", "GOOGLE_CLOUD_PROJECT"}
    for name in list(os.environ):
        if name in variables or name.endswith(("_BASE_URL", "_proxy", "_PROXY")):
            monkeypatch.delenv(name)
    before = set(providers.known())
    yield
    for name in set(providers._registry) - before:
        del providers._registry[name]


def test_all_names_are_known_and_sorted() -> None:
    assert set(NAMES) <= set(providers.known())
    assert list(providers.known()) == sorted(providers.known())


@pytest.mark.parametrize("row", catalog.ROWS, ids=lambda row: row.name)
def test_the_fields_of_a_row_are_of_their_types(row: catalog.Row) -> None:
    for place in (row, row.quirks):
        for name, kind in get_type_hints(type(place)).items():
            if name != "_":
                check(kind, getattr(place, name))


def check(kind: Any, value: Any) -> None:
    """Hold a value that was read from the data file against an annotation, as a type checker holds those in code."""
    if get_origin(kind) is Literal:
        assert value in get_args(kind)
    elif get_origin(kind) is tuple:
        assert isinstance(value, tuple)
        for each in value:
            check(get_args(kind)[0], each)
    else:
        assert type(value) is kind


@pytest.mark.parametrize(
    ("spec", "name", "model"),
    [
        ("groq", "groq", ""),
        ("groq:llama-3.1-8b-instant", "groq", "llama-3.1-8b-instant"),
        ("groq/llama-3.1-8b-instant", "groq", "llama-3.1-8b-instant"),
        ("ollama:llama3.2:3b", "ollama", "llama3.2:3b"),
        ("openrouter:openai/gpt-oss-20b", "openrouter", "openai/gpt-oss-20b"),
        ("openrouter/openai/gpt-oss-20b:free", "openrouter", "openai/gpt-oss-20b:free"),
        (" Groq : x ", "groq", "x"),
        ("bedrock:arn:aws:bedrock:eu-west-1::model/a.b-v1:0", "bedrock", "arn:aws:bedrock:eu-west-1::model/a.b-v1:0"),
        ("", "", ""),
    ],
)
def test_a_spec_is_parted_at_the_first_sign(spec: str, name: str, model: str) -> None:
    assert providers.parse(spec) == (name, model)


def test_an_unknown_name_lists_what_there_is_and_the_closest() -> None:
    with pytest.raises(UnknownProvider) as caught:
        providers.new("antropic:claude")

    assert caught.value.close[0] == "anthropic"
    assert "unknown provider 'antropic'; did you mean anthropic" in str(caught.value)
    assert "zai" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("openia", "openai"), ("antropic", "anthropic"), ("grok", "groq"), ("xia", "xai"), ("lokal", "local")],
)
def test_a_near_miss_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(UnknownProvider, match=f"did you mean {meant}"):
        providers.lookup(name)


@pytest.mark.parametrize("name", ["nope", "acme", "google", "demo"])
def test_a_name_that_is_like_none_gets_no_suggestion(name: str) -> None:
    with pytest.raises(UnknownProvider) as caught:
        providers.lookup(name)

    assert caught.value.close == ()
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["ANTHROPIC", "Anthropic", " anthropic "])
def test_names_have_no_case(name: str) -> None:
    assert providers.lookup(name).name == "anthropic"


def test_a_missing_key_names_the_variables() -> None:
    with pytest.raises(MissingKey, match="gemini: no key; set GEMINI_API_KEY or GOOGLE_API_KEY"):
        providers.new("gemini")


def test_a_provider_has_name_and_model_and_no_key_in_its_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    provider = providers.new("Groq:llama-x")

    assert isinstance(provider, Retries)
    assert (provider.name, provider.model) == ("groq", "llama-x")
    assert SECRET not in repr(provider)


def test_the_default_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.new("anthropic", key=SECRET).model == "claude-haiku-5-5"  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["vllm", "lmstudio", "openai-compatible"])
def test_where_there_is_no_default_the_model_must_be_named(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"{spec}:MODEL"):
        providers.new(spec, base_url="http://localhost:1/v1")


def test_retries_can_be_left_off() -> None:
    assert not isinstance(providers.new("ollama", retries=False), Retries)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        providers.new("ollama", colour="red")


def test_an_unknown_wire_is_said() -> None:
    with pytest.raises(ConfigError, match="no wire 'nope'"):
        providers.new("ollama", wire="nope")


@pytest.mark.parametrize("url", ["nonsense", "ftp://host"])
def test_a_malformed_base_url_is_said(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", url)

    with pytest.raises(ConfigError, match=r"ollama: .* is no base URL"):
        providers.new("ollama")


# Addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "environ", "url"),
    [
        ("groq", {}, "https://api.groq.com/openai/v1"),
        ("groq", {"GROQ_BASE_URL": "http://localhost:1"}, "http://localhost:1"),
        ("azure", {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"}, "https://r.openai.azure.com/openai/v1"),
        ("azure", {"AZURE_OPENAI_BASE_URL": "https://r/x"}, "https://r/x"),
        ("bedrock", {}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock", {"AWS_DEFAULT_REGION": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
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
    ("name", "variable"), [("azure", "AZURE_OPENAI_ENDPOINT"), ("openai-compatible", "OPENAI_COMPATIBLE_BASE_URL")]
)
def test_an_address_that_only_the_user_knows_is_asked_for(name: str, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: no address; set {variable}"):
        find_base_url(providers.lookup(name), {})


def test_a_server_elsewhere_is_spoken_to_on_the_common_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = providers.new("openai", key=SECRET)
    other: Any = providers.new("openai", key=SECRET, base_url="http://localhost:1/v1")
    named: Any = providers.new("openai", key=SECRET, wire="openai_chat")

    assert [type(provider.provider).__name__ for provider in (own, other, named)] == [
        "OpenAIResponses",
        "OpenAIChat",
        "OpenAIChat",
    ]


# Keys and defaults ----------------------------------------------------------------------------------


def test_key_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.key_available("ollama")
    assert providers.key_available("offline")
    assert not providers.key_available("gemini")
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    assert providers.key_available("gemini")


def test_the_default_is_the_variable_then_the_first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="set GLUE_MODEL, or a key such as ANTHROPIC_API_KEY"):
        providers.new()
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    assert providers.default() == "groq"
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert providers.new().name == "openai"
    monkeypatch.setenv("GLUE_MODEL", "ollama:llama3.2:3b")
    assert providers.new().model == "llama3.2:3b"  # type: ignore[attr-defined]


# Chains ---------------------------------------------------------------------------------------------


def test_a_chain_leaves_out_who_has_no_key_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)

    provider = providers.new("openrouter, nvidia , gemini:gemini-2.5-flash, ollama")

    assert isinstance(provider, Retries)
    chain = provider.provider
    assert isinstance(chain, Failover)
    assert [(one.name, getattr(one, "model", "")) for one in chain.providers] == [
        ("gemini", "gemini-2.5-flash"),
        ("ollama", "qwen3:0.6b"),
    ]
    assert provider.skipped == ("openrouter", "nvidia")
    assert "left out for want of a key: openrouter, nvidia" in caplog.text


def test_a_chain_without_any_key_names_all_variables() -> None:
    with pytest.raises(MissingKey, match="anthropic,groq: no key; set ANTHROPIC_API_KEY or GROQ_API_KEY"):
        providers.new("anthropic,groq")


def test_a_wrong_name_in_a_chain_is_a_mistake() -> None:
    with pytest.raises(UnknownProvider, match="'nope'"):
        providers.new("ollama,nope")


# Registering ----------------------------------------------------------------------------------------


def test_anyone_may_register_a_provider() -> None:
    providers.register(
        "Acme", lambda model, **options: Script("hi", name="acme", model=model), key=["ACME_KEY"], model="a-1"
    )

    assert "acme" in providers.known()
    assert providers.new("acme:a-2").model == "a-2"  # type: ignore[attr-defined]
    assert providers.lookup("ACME").key == ("ACME_KEY",)
    assert not providers.key_available("acme")


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a,b", "a b"])
def test_a_name_that_could_not_be_parsed_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must not hold"):
        providers.register(name, lambda model, **options: Script())


def test_another_package_is_loaded_only_when_its_name_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "acme_glue.py").write_text(
        textwrap.dedent(
            """
            print("loaded")
            from glue.providers import register
            from glue.testing import Script
            register("acme", lambda model, **options: Script("hi", name="acme", model=model))
            """
        )
    )
    info = tmp_path / "acme_glue-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-glue\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[glue.providers]\nacme = acme_glue\n")
    program = (
        "import sys; from glue import providers; providers.new('ollama');"
        "assert 'importlib.metadata' not in sys.modules; assert 'acme' in providers.known(); print('before');"
        "print(providers.new('acme:x').model)"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)

    assert (done.stdout.split(), done.stderr) == (["before", "loaded", "x"], "")


def test_registering_and_listing_load_no_wire_and_no_client() -> None:
    program = (
        "import sys; from glue import providers; providers.known(); providers.lookup('openai');"
        "heavy = ('httpx', 'httpcore', 'httpcore2', 'ssl', 'glue.providers.openai_chat');"
        "print([name for name in sys.modules if name in heavy])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


# Prices and tables ----------------------------------------------------------------------------------


def test_cost_counts_each_token_once() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=400_000, cache_write=200_000)

    assert models.cost("anthropic", "claude-haiku-4-5", usage) == pytest.approx(0.4 * 1 + 0.4 * 0.1 + 0.2 * 1.25 + 0.5)
    overlap = Usage(input=2168, output=0, cache_read=2161, cache_write=2161)
    known = models.find("openrouter", "openai/gpt-oss-20b")
    assert known is not None
    plain, _, cached = (*known.price, None)[:3]
    wanted = 7 * (plain or 0) + 2161 * (plain if cached is None else cached)  # type: ignore[operator]
    assert models.cost("openrouter", "openai/gpt-oss-20b", overlap) == pytest.approx(wanted / 1e6)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18"])
def test_a_dated_model_costs_what_the_plain_one_costs(model: str) -> None:
    assert models.cost("openai", model, Usage(input=1_000_000)) == pytest.approx(0.15)


def test_an_unknown_model_has_no_cost() -> None:
    assert models.cost("openai", "gpt-99", Usage(input=5)) is None
    assert models.cost("nobody", "x", Usage(input=5)) is None


def test_every_price_belongs_to_a_provider() -> None:
    assert {row["model"].split(":")[0] for row in models.model_rows()} <= set(providers.known())
    assert len(models.date()) == 10


def test_capabilities() -> None:
    found = providers.capabilities("anthropic:claude-haiku-4-5")

    assert (found.window, found.tools, found.input_price, found.output_price) == (200_000, True, 1.0, 5.0)
    assert providers.capabilities("anthropic:unknown-9").window is None
    assert not providers.capabilities("perplexity").tools


def test_wrappers_and_chains_answer_for_what_they_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "PERPLEXITY_API_KEY"):
        monkeypatch.setenv(name, SECRET)

    one = capabilities(providers.new("anthropic"))
    chain = capabilities(providers.with_retries(providers.new("anthropic,perplexity")))

    assert (one.provider, one.window, one.tools) == ("anthropic", 1_000_000, True)
    assert (chain.window, chain.tools) == (128_000, False)
    assert capabilities(object()).window is None


# One tiny request -----------------------------------------------------------------------------------

CHAT = (
    b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


async def test_a_check_says_in_one_line_what_happened(loopback: Any) -> None:
    server = loopback(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(CHAT) + CHAT
    )

    code, text = await models.check("ollama:m", base_url=server.url)

    assert (code, text.startswith("ollama: m answered 'ok' in ")) == (0, True)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        ("401 Unauthorized", b'{"error":{"message":"bad key"}}', 2),
        ("404 Not Found", b'{"error":{"message":"no such model"}}', 2),
        ("503 Busy", b"", 1),
    ],
)
async def test_a_check_that_fails_says_why(loopback: Any, status: str, body: bytes, code: int) -> None:
    server = loopback(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body))

    found, text = await models.check("ollama:m", base_url=server.url)

    assert found == code
    assert text.startswith("ollama: ")
    assert "\n" not in text


@pytest.mark.parametrize(("spec", "code"), [("nope", 2), ("gemini", 2), ("llamacpp", 1)])
async def test_a_check_of_what_is_not_there(monkeypatch: pytest.MonkeyPatch, spec: str, code: int) -> None:
    monkeypatch.setenv("LLAMACPP_BASE_URL", "http://127.0.0.1:9")

    found, text = await models.check(spec)

    assert (found, "\n" in text) == (code, False)


# Models as data -------------------------------------------------------------------------------------


def test_the_data_holds_current_models_with_windows_prices_tiers_and_ends() -> None:
    haiku, nano, mini = (
        models.find(*name)
        for name in (("anthropic", "claude-haiku-5-5"), ("openai", "gpt-5-nano"), ("openai", "gpt-5.4-mini"))
    )

    assert haiku is not None
    assert haiku.window == 1_000_000
    assert haiku.tiers
    assert nano is not None
    assert nano.ends == "2026-12-11"
    assert mini is not None
    assert 300 < len(models.model_rows()) < 1000


def test_the_default_models_are_known_current_and_priced() -> None:
    for name in (
        "anthropic",
        "openai",
        "gemini",
        "vertex",
        "mistral",
        "deepseek",
        "xai",
        "groq",
        "cerebras",
        "bedrock",
    ):
        found = models.find(name, providers.lookup(name).model)
        assert found is not None, name
        assert (found.deprecated, found.ends) == (False, ""), name
        assert found.price[0], name


def test_a_longer_prompt_costs_what_its_tier_says() -> None:
    short, long = (models.cost("openai", "gpt-5.4", Usage(input=size, output=1_000_000)) for size in (272_000, 272_001))

    assert short == pytest.approx(2.5 * 0.272 + 15)
    assert long == pytest.approx(5 * 0.272001 + 22.5)


def test_a_region_of_bedrock_and_another_house_have_their_own_prices() -> None:
    usage = Usage(input=1_000_000)

    assert models.cost("bedrock", "eu.anthropic.claude-haiku-4-5-20251001-v1:0", usage) == pytest.approx(1.1)
    assert models.cost("bedrock", "global.anthropic.claude-haiku-4-5-20251001-v1:0", usage) == pytest.approx(1.0)
    assert models.cost("vertex", "gemini-2.5-flash", usage) == models.cost("gemini", "gemini-2.5-flash", usage)
    assert models.cost("ollama", "anything", usage) == 0.0


def test_the_data_is_read_only_when_asked_for() -> None:
    program = (
        "from glue import providers; providers.new('ollama'); providers.lookup('openai'); providers.known();"
        "import sys; print([name for name in sys.modules if name == 'glue.providers.models'])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


# Names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("gpt-4o", ("openai", "gpt-4o")),
        ("claude-haiku-5-5", ("anthropic", "claude-haiku-5-5")),
        ("claude-haiku-4-5-20251001", ("anthropic", "claude-haiku-4-5-20251001")),
        ("gemini-2.5-flash", ("gemini", "gemini-2.5-flash")),
        ("grok-4.5", ("xai", "grok-4.5")),
        ("deepseek", ("deepseek", "")),
        ("openai:gpt-4o", ("openai", "gpt-4o")),
    ],
)
def test_a_bare_model_name_means_the_vendor_that_has_it(spec: str, found: tuple[str, str]) -> None:
    assert providers.resolve(spec) == found
    assert providers.lookup(spec).name == found[0]
    assert providers.new(spec, key=SECRET).model == (found[1] or "deepseek-v4-flash")  # type: ignore[attr-defined]


def test_a_near_miss_of_a_model_suggests_whole_names() -> None:
    with pytest.raises(UnknownProvider, match=r"did you mean openai:gpt-4o"):
        providers.new("gpt-4o-")
    with pytest.raises(UnknownProvider, match=r"did you mean anthropic:claude-haiku-5-5"):
        providers.new("claude-haiku-5.5x")
    with pytest.raises(UnknownProvider, match=r"did you mean groq:llama-3.1-8b-instant"):
        providers.new("llama-3.1-8b-instant")


def test_a_plugin_that_fails_is_one_line_and_is_listed_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "broken_glue.py").write_text("import nothing_of_this_name\n")
    info = tmp_path / "broken_glue-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-glue\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[glue.providers]\nbroken = broken_glue\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    glue = [str(Path(sys.executable).with_name("glue"))]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*glue, *words], env=environ, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    failed, near, listed = run("run", "-m", "broken", "hi"), run("run", "-m", "brokn", "hi"), run("providers")

    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "broken: the package broken-glue cannot be loaded: ModuleNotFoundError" in failed.stderr
    assert "did you mean broken" in near.stderr
    assert "\nbroken " in listed.stdout


def test_the_users_own_providers_are_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(providers, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        '[providers.acme]\nwire = "anthropic"\nbase_url = "https://acme.example/v1"\nkey = "ACME_KEY"\nmodel = "a-1"\n'
        '[providers.acme.quirks]\nimages = []\n[providers.here]\nbase_url = "http://localhost:1/v1"\n'
    )

    row = providers.lookup("acme")

    assert (row.wire, row.key, row.model, row.quirks.images) == ("anthropic", ("ACME_KEY",), "a-1", ())
    assert {"acme", "here"} < set(providers.known())
    with pytest.raises(MissingKey, match="set ACME_KEY"):
        providers.new("acme")
    assert providers.new("here:m").model == "m"  # type: ignore[attr-defined]


def test_models_of_openai_have_their_own_levels_wherever_they_are_served() -> None:
    plain = catalog.row_of("acme", {"base_url": "https://a"})
    openai = catalog.row_of("acme", {"base_url": "https://a", "quirks": {"openai_models": True}})

    assert catalog.efforts(openai, "gpt-5-nano") == ("minimal", "low", "medium", "high")
    assert catalog.efforts(openai, "gpt-4o") == ()
    assert catalog.efforts(plain, "gpt-5-nano") == catalog.LEVELS
    assert [row.name for row in catalog.ROWS if row.quirks.openai_models] == ["openai", "azure"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('wire = "anthropic"', "base_url is missing"),
        ('base_url = "https://a"\nurl = "x"', "'url' is unknown; there are: wire, base_url"),
        ('base_url = "https://a"\nwire = "morse"', "there is no wire 'morse'; there are: anthropic, bedrock, gemini"),
        ('base_url = "https://a"\nwindow = "big"', "window is of the wrong kind"),
        ('base_url = "https://a"\nquirks = {speed = 1}', "quirks: 'speed' is unknown; there are: max_tokens, "),
        ('base_url = "https://a"\nquirks = {images = "image/png"}', "quirks: images is of the wrong kind"),
        ('base_url = "https://a"\n[providers."a b"]\nbase_url = "https://a"', "must not hold .* a space: 'a b'"),
    ],
)
def test_a_mistake_in_the_users_own_providers_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(providers, "_registry", {})
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "config.toml").write_text(f"[providers.acme]\n{text}\n")

    with pytest.raises(ConfigError, match=what):
        providers.new("acme")


def test_providers_that_are_no_table_are_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "config.toml").write_text("providers = 3\n")

    with pytest.raises(ConfigError, match=r"'providers' must be tables such as \[providers.acme\]"):
        providers.new("acme")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[providers.acme\nbase_url = "https://a"\n', r"is no valid TOML: .*\(at line 1, column 16\)"),
        (b"model = " + b"[" * 5000, r"is no valid TOML: .+"),
        (b"model = " + b"9" * 5000, r"is no valid TOML: .+"),
        (b"model = '\xff'\n", r"cannot be read: not a text"),
        (None, r"cannot be read: Is a directory"),
    ],
    ids=["torn", "deep", "huge", "no text", "a folder"],
)
def test_a_file_that_cannot_be_read_is_said_with_an_unknown_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(providers, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.mkdir() if content is None else file.write_bytes(content)

    with pytest.raises(UnknownProvider, match=rf"^unknown provider 'acme'; {file} {why}; there are: ") as caught:
        Agent("acme").run_sync("hi")

    assert "\n" not in str(caught.value)
    assert Agent("offline").run_sync("hi").text
    assert "openai" in providers.known()


def test_a_file_that_was_mended_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(providers, "_registry", {})
    file = tmp_path / "glue" / "config.toml"
    file.parent.mkdir()
    file.write_text("[providers.acme")
    with pytest.raises(UnknownProvider, match="is no valid TOML"):
        providers.lookup("acme")

    file.write_text('[providers.acme]\nbase_url = "https://a"\n')
    os.utime(file, (1, 1))  # another time, however coarse the clock of the disk is

    assert providers.lookup("acme").base_url == "https://a"
    with pytest.raises(UnknownProvider, match=r"^unknown provider 'acne'; did you mean acme"):
        providers.lookup("acne")


def test_a_checkout_defines_no_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    for name in ("config.toml", "glue.toml", ".glue.toml"):
        (tmp_path / name).write_text('[providers.acme]\nbase_url = "https://evil.example"\n')

    with pytest.raises(UnknownProvider):
        providers.new("acme")


# Clouds -------------------------------------------------------------------------------------------------


def test_keys_and_region_of_the_aws_files_count_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not providers.key_available("bedrock")

    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-3\naws_access_key_id = AK\naws_secret_access_key = SK\n"
    )

    assert providers.key_available("bedrock")
    assert {row["name"]: row["key_set"] for row in models.provider_rows()}["bedrock"]
    assert providers.new("bedrock").provider.http.base_url == "https://bedrock-runtime.eu-west-3.amazonaws.com"  # type: ignore[attr-defined]
    chain = providers.new("bedrock,offline")
    assert chain.skipped == ()  # type: ignore[attr-defined]


# What a server has ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "body", "found", "line"),
    [
        ("groq", {"data": [{"id": "b"}, {"id": "a"}]}, ["a", "b"], "GET /models HTTP/1.1"),
        ("anthropic", {"data": [{"id": "c"}]}, ["c"], "GET /models?limit=1000 HTTP/1.1"),
        ("gemini", {"models": [{"name": "models/g"}]}, ["g"], "GET /models?pageSize=1000 HTTP/1.1"),
        ("vllm", {"data": []}, [], "GET /models HTTP/1.1"),
    ],
)
async def test_a_server_is_asked_which_models_it_has(
    loopback: Any, spec: str, body: Any, found: Any, line: str
) -> None:
    answer = json.dumps(body).encode()
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    assert await models.server_models(spec, base_url=server.url, key=SECRET) == found
    assert server.seen[0].line == line
    assert SECRET in str(server.seen[0].headers)


async def test_a_server_that_lists_nothing_says_why(loopback: Any) -> None:
    body = b'{"error":{"message":"bad key ' + SECRET.encode() + b'"}}'
    refused = b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    server = loopback(refused, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")

    with pytest.raises(ProviderError, match=r"groq: HTTP 401: bad key \*\*\*") as caught:
        await models.server_models("groq", base_url=server.url, key=SECRET)
    assert caught.value.kind == "auth"
    with pytest.raises(ProviderError, match="cannot be read"):
        await models.server_models("groq", base_url=server.url, key=SECRET)
    with pytest.raises(ConfigError, match="cannot list"):
        await models.server_models("offline")
