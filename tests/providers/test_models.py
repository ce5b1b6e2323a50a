"""Prices, tiers and windows of models, from the data file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from glue import providers
from glue.messages import Usage
from glue.providers import listing, models

pytestmark = pytest.mark.usefixtures("bare_environment")


SECRET = "sk-" + "not" + "-a-real-one-0123456789"


def test_cost_counts_each_token_once() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=400_000, cache_write=200_000)

    assert models.cost("anthropic", "claude-haiku-4-5", usage) == pytest.approx(
        0.4 * 1 + 0.4 * 0.1 + 0.2 * 1.25 + 0.5
    )
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
    assert {entry["model"].split(":")[0] for entry in listing.list_models()} <= set(
        providers.known()
    )
    assert len(models.date()) == 10


def test_the_data_holds_current_models_with_windows_prices_tiers_and_ends() -> None:
    haiku, nano, mini = (
        models.find(*name)
        for name in (
            ("anthropic", "claude-haiku-5-5"),
            ("openai", "gpt-5-nano"),
            ("openai", "gpt-5.4-mini"),
        )
    )

    assert haiku is not None
    assert haiku.window == 1_000_000
    assert haiku.tiers
    assert nano is not None
    assert nano.ends == "2026-12-11"
    assert mini is not None
    assert 300 < len(listing.list_models()) < 1000


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


def test_a_longer_prompt_has_the_price_of_its_tier() -> None:
    short, long = (
        models.cost("openai", "gpt-5.4", Usage(input=size, output=1_000_000))
        for size in (272_000, 272_001)
    )

    assert short == pytest.approx(2.5 * 0.272 + 15)
    assert long == pytest.approx(5 * 0.272001 + 22.5)


def test_bedrock_regions_and_other_providers_have_their_own_prices() -> None:
    usage = Usage(input=1_000_000)

    assert models.cost(
        "bedrock", "eu.anthropic.claude-haiku-4-5-20251001-v1:0", usage
    ) == pytest.approx(1.1)
    assert models.cost(
        "bedrock", "global.anthropic.claude-haiku-4-5-20251001-v1:0", usage
    ) == pytest.approx(1.0)
    assert models.cost("vertex", "gemini-2.5-flash", usage) == models.cost(
        "gemini", "gemini-2.5-flash", usage
    )
    assert models.cost("ollama", "anything", usage) == 0.0


def test_the_file_of_models_is_read_only_when_a_price_or_window_is_needed() -> None:
    program = (
        "from glue import providers; from glue.providers import models; providers.new('ollama');"
        "providers.lookup('openai'); providers.known(); print(models._file.cache_info().misses)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "0\n"
