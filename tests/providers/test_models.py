"""Prices, tiers and windows of models, from the data file."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from glue import providers
from glue.messages import Usage
from glue.providers import listing, models
from glue.providers.catalog import LEVELS

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


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input=10), 10),
        (Usage(output=10), 50),
        (Usage(input=10, cache_read=10), 1),
        (Usage(input=10, cache_write=8), 2 + 8 * 1.25),
        (Usage(input=10, cache_read=4, cache_write=10), 4 * 0.1 + 6 * 1.25),
        (Usage(input=4, cache_read=10, cache_write=10), 10 * 0.1),  # counts that cannot be true
    ],
)
def test_each_kind_of_token_has_its_price(usage: Usage, cost: float) -> None:
    found = models.cost("anthropic", "claude-haiku-4-5", usage)

    assert found == pytest.approx(cost / 1e6, rel=1e-9)


def test_reasoning_may_have_a_price_of_its_own() -> None:
    name = next(
        (provider, model.name)
        for provider in models.providers_with_models()
        for model in models._table(provider).models
        if len(model.price) == 5 and model.price[4] not in (None, model.price[1])
    )
    found = models.find(*name)
    assert found is not None
    output, thought = found.price[1], found.price[4]
    assert output is not None
    assert thought is not None

    cost = models.cost(*name, Usage(output=100, reasoning=30))

    assert cost == pytest.approx((70 * output + 30 * thought) / 1e6 + found.fee)


def test_a_model_without_a_price_of_output_has_no_cost() -> None:
    assert models.cost("openai", "text-embedding-3-small", Usage(input=5)) is None


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


# Rules of names, fees and hours


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "regional.anthropic"),
        ("openai", "gpt-5.2-20251211", "gpt-5.2"),
        ("azure", "claude-haiku-4-5", "claude-haiku-4-5"),
        ("vertex", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-haiku-4.5", "claude-haiku-4-5"),
    ],
)
def test_a_name_is_matched_by_rules(provider: str, model: str, name: str) -> None:
    found = models.find(provider, model)

    assert found is not None
    assert found.name.startswith(name)


def test_a_part_of_the_file_is_read_as_the_whole_file_is() -> None:
    whole = json.loads(models._file())

    assert models.providers_with_models() == sorted(whole["models"])
    for provider, rows in whole["models"].items():
        assert models._value(provider) == rows
    assert models.date() == whole["date"]


def test_a_fee_for_each_request_is_part_of_the_cost() -> None:
    assert models.cost("perplexity", "sonar", Usage(input=1_000_000)) == pytest.approx(1.012)


def test_a_model_may_cost_more_at_certain_hours() -> None:
    usage = Usage(input=1_000_000)
    cheap, dear = (
        models.cost("deepseek", "deepseek-v4-flash", usage, now=hour * 3600.0) for hour in (0, 2)
    )

    assert cheap is not None
    assert dear == pytest.approx(2 * cheap)
    today, next_day = (
        [models.cost("deepseek", "deepseek-v4-flash", usage, now=60.0 * minute) for minute in day]
        for day in (range(0, 1440, 30), range(1440, 2880, 30))
    )
    assert today == next_day
    assert {*today} == {cheap, dear}
    assert models.cost("deepseek", "deepseek-v4-flash", usage) in (cheap, dear)


def test_special_hours_begin_at_their_minute_and_end_before_theirs() -> None:
    model = models.Model("m", None, (1.0,), hours=((60, 90, 2.0), (1380, None, 3.0)))

    prices = [model.price_at(1, minute)[0] for minute in (-1, 59, 60, 89, 90, 1379, 1380, 1439)]

    assert prices == [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0]


def test_the_first_model_with_a_matching_rule_is_found() -> None:
    rules: list[Any] = ["has:x", "=ax", ["starts:a", "ends:z"], "=az", "has:z"]
    rules += [{"all": ["starts:c", ["=cb", "=cc", "ends:d"]]}, "regex:^d.$"]
    table = models._Table(
        [{"name": str(at), "price": [1, 2], "match": rule} for at, rule in enumerate(rules)]
    )

    names = ("ax", "az", "bz", "az2", "b", "cb", "cc", "cad", "ca", "bcd", "de", "def")
    found = [table.find(name) for name in names]

    assert [model and model.name for model in found] == [
        *("0", "2", "2", "2", None),
        *("5", "5", "5", None, None, "6", None),
    ]
    assert [model and (model.deprecated, model.hidden, model.ends) for model in found[:1]] == [
        (False, False, "")
    ]


def test_a_model_is_retired_from_its_last_day() -> None:
    model = models.Model("m", None, (1.0, 1.0), ends="2026-12-11")

    assert not model.is_retired("2026-12-10")
    assert model.is_retired("2026-12-11")


# What a model accepts


def test_an_unknown_model_is_expected_to_accept_what_most_models_accept() -> None:
    assert models.Facts()._asdict() == {
        "efforts": (),
        "thinking": "",
        "least_budget": 0,
        "max_output": 8192,
        "sampling": True,
        "forced_thinking": True,
        "thinks": False,
        "output": True,
        "output_with_tools": True,
        "encrypted": True,
        "images": (),
        "files": (),
    }
    assert models.facts(providers.lookup("ollama"), "unknown").max_output == 8192


def levels(provider: str, model: str) -> tuple[str, ...]:
    return models.facts(providers.lookup(provider), model).efforts


@pytest.mark.parametrize(
    ("provider", "model", "first", "last"),
    [
        ("openai", "gpt-5-nano", "minimal", "high"),
        ("openai", "gpt-5.1", "none", "high"),
        ("azure", "gpt-5.4-mini", "none", "xhigh"),
        ("openai", "gpt-5.6", "none", "max"),
        ("openai", "gpt-5-pro", "high", "high"),
        ("openai", "o4-mini", "low", "high"),
        ("mistral", "mistral-small-latest", "none", "high"),
        ("xai", "grok-4.3", "low", "high"),
        ("anthropic", "claude-opus-4-8", "none", "max"),
        ("bedrock", "us.anthropic.claude-opus-4-6-v1:0", "none", "max"),
        ("gemini", "gemini-2.5-pro", "none", "high"),
        ("vertex", "gemini-3-pro", "low", "high"),
        ("gemini", "gemini-flash-latest", "minimal", "high"),
    ],
)
def test_reasoning_levels_are_those_of_the_model(
    provider: str, model: str, first: str, last: str
) -> None:
    found = levels(provider, model)

    assert (found[0], found[-1]) == (first, last)


def test_levels_that_recorded_servers_accepted_are_known() -> None:
    assert "medium" in levels("xai", "grok-4.3")
    assert "medium" not in levels("xai", "grok-4.20")
    assert levels("openai", "gpt-4o") == levels("gemini", "gemma-3-27b-it") == ()
    assert levels("mistral", "mistral-large-latest") == ()


def test_rules_of_a_vendor_hold_for_others_that_serve_its_models() -> None:
    own = providers.lookup("vllm")._replace(models_from="openai")

    assert models.facts(own, "gpt-5-nano").efforts == levels("openai", "gpt-5-nano")
    assert models.facts(providers.lookup("vllm"), "gpt-5-nano").efforts == LEVELS


def test_facts_name_what_a_model_refuses() -> None:
    openai, anthropic = providers.lookup("openai"), providers.lookup("anthropic")

    assert not models.facts(openai, "o3").sampling
    assert models.facts(openai, "gpt-5.4-nano").sampling
    assert models.facts(openai, "gpt-3.5-turbo").images == ()
    assert models.facts(openai, "gpt-4o").images
    assert not models.facts(openai, "gpt-4o").encrypted
    assert not models.facts(anthropic, "claude-opus-4-8").sampling
    assert not models.facts(anthropic, "claude-3-5-haiku-latest").output
    assert models.facts(anthropic, "claude-haiku-4-5").output


def test_every_rule_has_known_keys() -> None:
    allowed = {*models.Facts._fields}
    allowed |= {"at", "wires", "match", "family", "since"}

    for rule in models._facts_file()["rules"]:
        assert rule.keys() <= allowed
        assert set(rule.get("at", ())) <= set(providers.known())
        assert rule.get("family", "gpt-") in models._facts_file()["versions"]
