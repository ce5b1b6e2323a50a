"""Trials: their figures, the file in which they are saved, and the comparison of two files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glue import AssistantMessage, Text, user
from glue.errors import ConfigError
from glue.trials import CaseTrial, Evaluation, differences, load, save


def trial(model: str, case: str, score: float) -> CaseTrial:
    return CaseTrial(model=model, case=case, repeat=1, score=score, outcome="done", text="hi")


def test_an_evaluation_is_saved_and_loaded(tmp_path: Path) -> None:
    reply = AssistantMessage(content=(Text(text="one\u2028two\x85three"),))
    done = replace(trial("m", "team", 0.5), messages=(user("Which team?"), reply), cost=0.1)
    found = Evaluation(models=("m",), trials=(done, trial("m", "city", 1)))

    save(found, tmp_path / "eval.jsonl")

    assert load(tmp_path / "eval.jsonl") == found
    lines = (tmp_path / "eval.jsonl").read_text().split("\n")
    assert json.loads(lines[0]) == {"type": "eval", "schema": 1, "models": ["m"]}
    assert len(lines) == 4  # the last one is empty


def test_fields_that_only_a_subclass_has_are_ignored(tmp_path: Path) -> None:
    save(Evaluation(models=("m",), trials=(trial("m", "team", 1),)), tmp_path / "eval.jsonl")
    lines = (tmp_path / "eval.jsonl").read_text().splitlines()
    more = [{**json.loads(line), "labels": {"a": "right"}} for line in lines]
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, more)))

    assert load(tmp_path / "more.jsonl") == load(tmp_path / "eval.jsonl")


def test_an_evaluation_without_trials_is_saved_and_loaded(tmp_path: Path) -> None:
    save(Evaluation(models=("m",), unfinished="cancelled"), tmp_path / "eval.jsonl")

    assert load(tmp_path / "eval.jsonl").unfinished == "cancelled"


@pytest.mark.parametrize("text", ["", "{}", "no", '{"type": "eval", "schema": 2}', "[1]"])
def test_another_file_is_not_an_evaluation(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text)

    with pytest.raises(ConfigError, match=r"x\.jsonl was not written by glue eval"):
        load(tmp_path / "x.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.jsonl")


def test_two_evaluations_are_compared_by_model_and_case() -> None:
    old = Evaluation(
        models=("a", "b"),
        trials=(trial("a", "1", 1), trial("a", "2", 0), trial("a", "old", 1), trial("b", "1", 1)),
    )
    new = Evaluation(models=("a",), trials=(trial("a", "1", 0), trial("a", "2", 1)))
    other = Evaluation(models=("c",), trials=(trial("c", "1", 1),))

    (pair,) = differences(new, old)
    (swap,) = differences(other, new)

    assert (pair.better, pair.worse, pair.unpaired) == (("2",), ("1",), ("old",))
    assert (swap.first, swap.second, swap.better) == ("c", "a", ("1",))
    with pytest.raises(ConfigError, match="no model in common: c and a, b"):
        differences(other, old)


def test_assert_passed_names_the_failed_cases() -> None:
    found = Evaluation(models=("a",), trials=(trial("a", "1", 1), trial("a", "2", 0)))

    found.assert_passed(at_least=0.5)
    with pytest.raises(AssertionError, match=r"a: 1 of 2 trials passed\n2:"):
        found.assert_passed()


def test_a_summary_has_the_figures_of_a_model() -> None:
    trials = [
        replace(trial("m", "1", 1), seconds=1.0, cost=0.5, tokens=10, judge_cost=0.25),
        replace(trial("m", "1", 0), seconds=3.0, cost=0.25, tokens=21, outcome="budget"),
        replace(trial("m", "2", 1), seconds=2.0, cost=0.0, tokens=0, judge_cost=0.75),
    ]
    [summary] = Evaluation(models=("m",), trials=tuple(trials)).summaries()

    assert (summary.model, summary.trials, summary.cases) == ("m", 3, 2)
    assert (summary.score, summary.passed) == (0.75, 2)
    assert (summary.cost, summary.judge_cost, summary.tokens) == (0.25, 0.5, 10)
    assert (summary.p50, summary.p95) == (2.0, 3.0)
    assert summary.outcomes == {"done": 2, "budget": 1}


def test_a_cost_is_unknown_if_the_cost_of_a_trial_is() -> None:
    trials = (replace(trial("m", "1", 1), cost=0.5), trial("m", "2", 1))
    [summary] = Evaluation(models=("m",), trials=trials).summaries()
    [empty] = Evaluation(models=("m",)).summaries()

    assert (summary.cost, summary.judge_cost) == (None, None)
    assert (empty.cost, empty.score, empty.p50, empty.tokens) == (None, 0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("replied", "model"),
    [("acme:large-2", "acme"), ("acme:acme", "acme"), ("offline:offline", "acme")],
)
def test_a_provider_without_a_model_is_shown_with_the_model_that_replied(
    replied: str, model: str
) -> None:
    first = replace(trial("acme", "1", 1), replied=replied)
    trials = (first, trial("acme", "2", 1), replace(first, case="3"))
    [summary] = Evaluation(models=("acme",), trials=trials).summaries()

    assert summary.model == (replied if replied.startswith("acme:") else model)


def test_the_first_model_is_compared_with_each_other() -> None:
    trials = [trial(model, str(case), model != "b") for model in "abc" for case in range(6)]
    found = Evaluation(models=("a", "b", "c"), trials=tuple(trials)).pairs()

    assert [(pair.first, pair.second, pair.p) for pair in found] == [
        ("a", "b", 0.0625),  # twice the p value of one comparison
        ("a", "c", 1.0),
    ]


def test_the_judge_agrees_if_both_pass_or_both_fail() -> None:
    scores = [(1.0, 1.0), (0.5, 0.0), (1.0, 0.0), (None, 1.0), (0.0, None)]
    trials = [replace(trial("m", "1", 1), plain=plain, judged=judged) for plain, judged in scores]

    assert Evaluation(models=("m",), trials=tuple(trials)).agreement() == (2, 3)


def test_an_unfinished_evaluation_has_not_passed() -> None:
    found = Evaluation(models=("m",), trials=(trial("m", "1", 1),), unfinished="cancelled")

    with pytest.raises(AssertionError, match=r"m: 1 of 1 trial passed\ncancelled$"):
        found.assert_passed()


def test_only_the_owner_can_read_a_saved_evaluation(tmp_path: Path) -> None:
    save(Evaluation(models=("m",)), tmp_path / "eval.jsonl")

    assert (tmp_path / "eval.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("name", "value"), [("type", "map"), ("schema", 2)])
def test_a_file_of_another_kind_or_of_a_newer_version_is_not_read(
    name: str, value: Any, tmp_path: Path
) -> None:
    save(Evaluation(models=("m",)), tmp_path / "eval.jsonl")
    head = json.loads((tmp_path / "eval.jsonl").read_text())
    (tmp_path / "eval.jsonl").write_text(json.dumps({**head, name: value}))

    with pytest.raises(ConfigError, match="must have the type 'eval' and a schema of at most 1"):
        load(tmp_path / "eval.jsonl")


def test_letters_of_other_languages_can_be_read_in_a_saved_evaluation(tmp_path: Path) -> None:
    save(Evaluation(models=("Z\u00fcrich",)), tmp_path / "eval.jsonl")

    assert "Z\u00fcrich" in (tmp_path / "eval.jsonl").read_text(encoding="utf-8")
