"""The registry: names, models, keys and base URLs become a provider or a one-line error."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glue import providers
from glue.errors import ConfigError, MissingKey, ProviderError, UnknownProvider
from glue.messages import Request
from glue.provider import ask, capabilities
from glue.providers import listing, registry
from glue.providers.failover import Failover
from glue.providers.retry import Retries
from glue.testing import Reply, Script, fail, say

pytestmark = pytest.mark.usefixtures("bare_environment")

SECRET = "sk-" + "not" + "-a-real-one-0123456789"
NAMES = """openai azure anthropic gemini vertex bedrock openrouter groq mistral deepseek xai
    cerebras together fireworks nvidia huggingface moonshot alibaba zai perplexity deepinfra
    sambanova github vercel ollama llamacpp vllm lmstudio openai-compatible offline""".split()


def test_all_names_are_known_and_sorted() -> None:
    assert set(NAMES) <= set(providers.known())
    assert list(providers.known()) == sorted(providers.known())


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
        (
            "bedrock:arn:aws:bedrock:eu-west-1::model/a.b-v1:0",
            "bedrock",
            "arn:aws:bedrock:eu-west-1::model/a.b-v1:0",
        ),
        ("", "", ""),
    ],
)
def test_a_spec_is_split_at_the_first_colon_or_slash(spec: str, name: str, model: str) -> None:
    assert providers.parse(spec) == (name, model)


def test_an_unknown_name_lists_the_known_names_and_the_closest() -> None:
    with pytest.raises(UnknownProvider) as caught:
        providers.new("antropic:claude")

    assert caught.value.close[0] == "anthropic"
    assert "unknown provider 'antropic'; did you mean anthropic" in str(caught.value)
    assert "zai" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openia", "openai"),
        ("antropic", "anthropic"),
        ("grok", "groq"),
        ("xia", "xai"),
        ("lokal", "local"),
    ],
)
def test_a_near_miss_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(UnknownProvider, match=f"did you mean {meant}"):
        providers.lookup(name)


@pytest.mark.parametrize("name", ["nope", "acme", "google", "demo"])
def test_a_name_without_similar_names_gets_no_suggestion(name: str) -> None:
    with pytest.raises(UnknownProvider) as caught:
        providers.lookup(name)

    assert caught.value.close == ()
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["ANTHROPIC", "Anthropic", " anthropic "])
def test_names_are_case_insensitive(name: str) -> None:
    assert providers.lookup(name).name == "anthropic"


def test_an_unknown_wire_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no wire 'nope'"):
        providers.new("ollama", wire="nope")


# Keys and defaults


def test_key_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.key_available("ollama")
    assert providers.key_available("offline")
    assert not providers.key_available("gemini")
    monkeypatch.setenv("GOOGLE_API_KEY", SECRET)
    assert providers.key_available("gemini")


def test_the_default_is_the_variable_then_the_first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY"
    with pytest.raises(
        ConfigError, match=rf"or a key such as {first} \(`glue providers` lists all"
    ):
        providers.new()
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    assert providers.default() == "groq"
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert providers.new().name == "openai"
    monkeypatch.setenv("GLUE_MODEL", "ollama:llama3.2:3b")
    assert providers.new().model == "llama3.2:3b"  # type: ignore[attr-defined]


def test_the_default_is_found_before_any_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registry", {})

    assert providers.default({"GROQ_API_KEY": SECRET}) == "groq"


def test_the_default_is_chosen_by_the_given_environment() -> None:
    assert providers.default({"GROQ_API_KEY": SECRET}) == "groq"
    assert providers.default({"GROQ_API_KEY": SECRET, "GLUE_MODEL": " mine "}) == "mine"
    assert providers.default({}, otherwise="offline") == "offline"
    with pytest.raises(MissingKey):
        providers.default({})


# Failover lists


def test_a_failover_list_leaves_out_providers_without_a_key_and_logs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)

    provider = providers.new("openrouter, nvidia , gemini:gemini-2.5-flash, ollama")

    assert isinstance(provider, Retries)
    failover = provider.provider
    assert isinstance(failover, Failover)
    assert [(one.name, getattr(one, "model", "")) for one in failover.providers] == [
        ("gemini", "gemini-2.5-flash"),
        ("ollama", "qwen3:0.6b"),
    ]
    assert provider.skipped == ("openrouter", "nvidia")
    assert "left out because no key is set: openrouter, nvidia" in caplog.text


def test_a_failover_list_without_any_key_names_all_variables() -> None:
    with pytest.raises(
        MissingKey, match="anthropic,groq: no key; set ANTHROPIC_API_KEY or GROQ_API_KEY"
    ):
        providers.new("anthropic,groq")


@pytest.mark.parametrize("options", [{}, {"key": "x"}])
def test_a_wrong_name_in_a_failover_list_is_an_error(options: dict[str, str]) -> None:
    for spec in ("ollama,nope", "groq,nope", "nope,groq"):
        with pytest.raises(UnknownProvider, match="'nope'"):
            providers.new(spec, **options)


def test_a_list_without_any_name_is_an_error() -> None:
    with pytest.raises(UnknownProvider, match="unknown provider ''"):
        providers.new(",")


async def test_a_reply_of_a_failover_list_is_held_back_only_if_it_is_buffered() -> None:
    broken = Reply(content=say("half").content, error=fail("transient"))
    providers.register("acme", lambda model, **options: Script(broken, name="acme"))
    providers.register("acme2", lambda model, **options: Script("whole", name="acme2"))

    with pytest.raises(ProviderError):
        await ask(providers.new("acme,acme2"), Request())
    reply = await ask(providers.new("acme,acme2", buffer=True), Request())

    assert reply is not None
    assert reply.text == "whole"


# Registering


def test_a_registered_provider_is_known_by_its_name() -> None:
    providers.register(
        "Acme",
        lambda model, **options: Script("hi", name="acme", model=model),
        key=["ACME_KEY"],
        model="a-1",
    )

    assert "acme" in providers.known()
    assert providers.new("acme:a-2").model == "a-2"  # type: ignore[attr-defined]
    assert providers.lookup("ACME").key == ("ACME_KEY",)
    assert not providers.key_available("acme")


def test_a_provider_that_is_registered_first_hides_no_built_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_registry", {})

    providers.register("acme", lambda model, **options: Script("hi"))

    assert {"acme", "openai", "offline"} < set(providers.known())


def test_a_registered_provider_has_a_context_window_of_128_000_tokens_or_its_own() -> None:
    providers.register("acme", lambda model, **options: Script("hi"), model="a-1")
    providers.register("acme2", lambda model, **options: Script("hi"), model="a-2", window=9)

    assert providers.capabilities("acme").window == 128_000
    assert (providers.capabilities("acme").efforts, providers.capabilities("acme").files) == (
        (),
        (),
    )
    assert providers.capabilities("acme2").window == 9


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a,b", "a b"])
def test_a_name_with_separators_cannot_be_registered(name: str) -> None:
    with pytest.raises(ValueError, match="must not be empty or contain"):
        providers.register(name, lambda model, **options: Script())


def test_a_plugin_is_loaded_only_when_its_name_is_used(tmp_path: Path) -> None:
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
        "assert 'importlib.metadata' not in sys.modules;"
        "assert 'acme' in providers.known(); print('before');"
        "print(providers.new('acme:x').model)"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout.split(), done.stderr) == (["before", "loaded", "x"], "")


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Install a package with one module and with an entry point for the provider "acme"."""

    def write(code: str, entry_point: str) -> None:
        (tmp_path / "acme_module.py").write_text(textwrap.dedent(code))
        info = tmp_path / "acme_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[glue.providers]\nacme = {entry_point}\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry._entry_points.cache_clear()

    yield write
    registry._entry_points.cache_clear()
    sys.modules.pop("acme_module", None)


FACTORY = """
    from glue.testing import Script
    def make(model, **options):
        return Script("hi", name="made", model=model)
"""


def test_an_entry_point_may_be_a_factory(install: Callable[[str, str], None]) -> None:
    install(FACTORY, "acme_module:make")

    assert "acme" in registry.plugins()
    assert providers.new("acme:x").name == "made"
    assert "acme" not in registry.plugins()
    assert providers.lookup("acme").name == "acme"


def test_a_provider_that_a_package_registers_is_not_replaced_by_its_entry_point(
    install: Callable[[str, str], None],
) -> None:
    own = """
    from glue.providers import register
    register("acme", lambda model, **options: Script("hi", name="registered", model=model))
    """
    install(FACTORY + own, "acme_module:make")

    assert providers.new("acme:x").name == "registered"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_this_name", "the package acme-package cannot be loaded: ModuleNot"),
        ("", "the entry point acme_module does not register a provider named 'acme'"),
    ],
)
def test_a_package_without_the_provider_of_its_entry_point_is_an_error(
    install: Callable[[str, str], None], code: str, words: str
) -> None:
    install(code, "acme_module")

    with pytest.raises(ConfigError, match=f"^acme: {words}"):
        providers.new("acme")


def test_registering_and_listing_load_no_wire_and_no_client() -> None:
    program = (
        "import sys; from glue import providers; providers.known(); providers.lookup('openai');"
        "heavy = ('httpx', 'httpcore', 'httpcore2', 'ssl', 'glue.providers.openai_chat');"
        "print([name for name in sys.modules if name in heavy])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"


def test_capabilities() -> None:
    found = providers.capabilities("anthropic:claude-haiku-4-5")

    assert (found.window, found.tools, found.input_price, found.output_price) == (
        200_000,
        True,
        1.0,
        5.0,
    )
    assert providers.capabilities("anthropic:unknown-9").window is None
    assert not providers.capabilities("perplexity").tools


def test_a_provider_has_a_name_in_telemetry_only_if_that_differs() -> None:
    assert providers.capabilities("gemini").otel_names == (("gemini", "gcp.gemini"),)
    assert providers.capabilities("openrouter").otel_names == ()


def test_several_names_have_the_capabilities_that_all_of_them_share() -> None:
    one, two = (providers.capabilities(name) for name in ("anthropic", "perplexity"))
    both = providers.capabilities("anthropic,perplexity")

    assert (both.provider, one.provider) == ("anthropic,perplexity", "anthropic")
    assert both.window == min(one.window or 0, two.window or 0)
    assert both.input_price == max(one.input_price or 0, two.input_price or 0)
    assert (one.tools, two.tools, both.tools) == (True, False, False)


def test_a_failover_list_is_not_retried_if_retries_are_switched_off() -> None:
    assert isinstance(providers.new("ollama,llamacpp", retries=False), Failover)
    assert isinstance(providers.new("ollama,llamacpp"), Retries)


def test_wrappers_and_failover_lists_report_the_capabilities_of_their_providers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ANTHROPIC_API_KEY", "PERPLEXITY_API_KEY"):
        monkeypatch.setenv(name, SECRET)

    one = capabilities(providers.new("anthropic"))
    failover = capabilities(providers.with_retries(providers.new("anthropic,perplexity")))

    assert (one.provider, one.window, one.tools) == ("anthropic", 1_000_000, True)
    assert (failover.window, failover.tools) == (128_000, False)
    assert capabilities(object()).window is None


# Names


def test_at_most_three_similar_names_are_suggested() -> None:
    for number in range(4):
        providers.register(f"acme{number}", lambda model, **options: Script("hi"))

    for name in ("acmes", "claude-haiku-4-6x"):
        with pytest.raises(UnknownProvider) as caught:
            providers.lookup(name)
        assert len(caught.value.close) == 3
        assert f"did you mean {' or '.join(caught.value.close)}?" in str(caught.value)


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
    assert registry.resolve(spec) == found
    assert providers.lookup(spec).name == found[0]
    assert providers.new(spec, key=SECRET).model == (found[1] or "deepseek-v4-flash")  # type: ignore[attr-defined]


def test_a_near_miss_of_a_model_suggests_whole_names() -> None:
    with pytest.raises(UnknownProvider, match=r"did you mean openai:gpt-4o"):
        providers.new("gpt-4o-")
    with pytest.raises(UnknownProvider, match=r"did you mean anthropic:claude-haiku-5-5"):
        providers.new("claude-haiku-5.5x")
    with pytest.raises(UnknownProvider, match=r"did you mean groq:llama-3.1-8b-instant"):
        providers.new("llama-3.1-8b-instant")


def test_a_plugin_that_fails_is_a_one_line_error_and_still_listed(tmp_path: Path) -> None:
    (tmp_path / "broken_glue.py").write_text("import nothing_of_this_name\n")
    info = tmp_path / "broken_glue-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-glue\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[glue.providers]\nbroken = broken_glue\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    glue = [str(Path(sys.executable).with_name("glue"))]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*glue, *words], env=environ, capture_output=True, text=True, timeout=60, cwd=tmp_path
        )

    failed, near, listed = (
        run("run", "-m", "broken", "hi"),
        run("run", "-m", "brokn", "hi"),
        run("providers"),
    )

    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "broken: the package broken-glue cannot be loaded: ModuleNotFoundError" in failed.stderr
    assert "did you mean broken" in near.stderr
    assert "\nbroken " in listed.stdout


# Clouds


def test_keys_and_region_of_the_aws_files_count_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert {entry["name"]: entry["key_set"] for entry in listing.list_providers()}["bedrock"]
    assert (
        providers.new("bedrock").provider.http.base_url  # type: ignore[attr-defined]
        == "https://bedrock-runtime.eu-west-3.amazonaws.com"
    )
    failover = providers.new("bedrock,offline")
    assert failover.skipped == ()  # type: ignore[attr-defined]


def test_buffer_needs_a_failover_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    assert providers.new("groq,openai", buffer=True).name == "groq,openai"
    for spec, example in (("groq", "groq,gemini"), ("", "anthropic,gemini")):
        with pytest.raises(ConfigError) as caught:
            providers.new(spec, buffer=True)
        assert str(caught.value) == (
            f"buffer needs several providers, such as new('{example}', buffer=True)"
        )


def test_a_mistyped_alias_gets_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue/config.toml").write_text('[aliases]\nquickest = "offline"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    with pytest.raises(UnknownProvider, match="did you mean quickest"):
        providers.new("quickes")
    with pytest.raises(UnknownProvider, match="did you mean quickest"):
        registry.check_names("quickes")
    registry.check_names("quickest,openai:gpt-5.4-nano,claude-haiku-5-5")


def test_a_config_that_was_restored_after_a_mistake_is_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "glue/config.toml"
    file.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "_config_read", {})  # as in a new process

    for text, changed in (("quick = 'offline'", 1), ("quick = 5", 2), ("quick = 'offline'", 1)):
        file.write_text(f"[aliases]\n{text}\n")
        os.utime(file, (changed, changed))
        with pytest.raises(ConfigError) if changed == 2 else contextlib.nullcontext():
            providers.aliases()

    assert providers.new("quick").name == "offline"


def test_an_alias_does_not_replace_a_provider_and_may_name_several(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "glue").mkdir()
    text = '[aliases]\ngroq = "offline"\nboth = "openai:m, groq"\n'
    (tmp_path / "glue/config.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert providers.aliases()["both"] == "openai:m, groq"
    assert providers.split("groq, both") == ["groq", "openai:m", "groq"]
    assert registry.resolve("both") == ("openai", "m")


@pytest.mark.parametrize("text", ['aliases = "x"\n', "[aliases]\nquick = 5\n"])
def test_aliases_of_a_wrong_type_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue/config.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="'aliases' must be a table of texts, such as quick ="):
        providers.new("quick")


def test_the_stand_in_is_an_error_that_names_the_variables_if_no_person_reads_it() -> None:
    model = providers.default(otherwise="offline:stand-in")

    assert providers.is_stand_in(model)
    assert not providers.is_stand_in("offline")
    with pytest.raises(MissingKey) as caught:
        providers.new(model)
    assert "ANTHROPIC_API_KEY" in str(caught.value)
    assert "OPENAI_API_KEY" in caught.value.variables
