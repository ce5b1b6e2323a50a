"""The page of an evaluation: the table, the chart, and the transcripts side by side."""

from __future__ import annotations

import re

from syrupy.assertion import SnapshotAssertion

from glue import AssistantMessage, Text, user
from glue.evaluation import CaseTrial, Evaluation
from glue.statistics import Comparison
from glue.view.comparison import MAX_TRANSCRIPTS, comparison_page, notes, sentence, table


def trial(model: str, case: str, score: float, **more: object) -> CaseTrial:
    reply = AssistantMessage(content=(Text(text=f"{model} <b>says</b> {score}"),), model=model)
    fields: dict[str, object] = {
        "model": model,
        "case": case,
        "repeat": 1,
        "score": score,
        "outcome": "done",
        "reasons": () if score == 1 else ("equals: got <nothing>",),
        "cost": 0.002,
        "tokens": 1204,
        "seconds": 1.9,
        "messages": (user(f"Prompt {case}"), reply),
    }
    return CaseTrial(**fields | more)  # type: ignore[arg-type]


def evaluation(*trials: CaseTrial, **more: object) -> Evaluation:
    models = tuple(dict.fromkeys(trial.model for trial in trials))
    return Evaluation(models=models, trials=trials, **more)  # type: ignore[arg-type]


def test_the_table_has_intervals_cost_times_tokens_and_outcomes() -> None:
    found = evaluation(
        *(trial("a", str(n), float(n < 9)) for n in range(10)),
        *(trial("b", str(n), 0.5, cost=None, outcome="max_turns") for n in range(10)),
    )

    heads, (first, second) = table(found)

    assert heads == ["model", "pass", "cost/case", "p50 s", "p95 s", "tokens", "outcomes"]
    assert re.fullmatch(r"9/10 \([5-7]-10\)", first[1])
    assert first[2:] == ["$0.0020", "1.9", "1.9", "1,204", "10 done"]
    assert second[1].startswith("5/10 (")
    assert second[2:] == ["-", "1.9", "1.9", "1,204", "10 max_turns"]


def test_a_replay_has_no_times_and_a_judge_has_a_column() -> None:
    found = evaluation(
        trial("a", "1", 1.0, judge_cost=0.01, judged=1.0, plain=1.0), judge="j", replayed=True
    )

    heads, (row,) = table(found)

    assert heads[3] == "judge/case"
    assert row[3:6] == ["$0.0100", "-", "-"]
    assert notes(found) == ["the judge j agrees with the plain checks in 1 of 1 trials"]


def test_an_untested_judge_and_missing_trials_are_mentioned() -> None:
    found = evaluation(trial("a", "1", 1.0, judged=1.0), judge="j", unfinished="cancelled")

    assert notes(found) == [
        "no case has both a judge and a plain check, so the judge is untested",
        "some trials were not run: cancelled; --resume continues",
    ]


def test_five_notices_are_shown_and_one_more_is_counted() -> None:
    def lines(number: int) -> list[str]:
        return notes(
            evaluation(*(trial("a", str(n), 1.0, notice=f"cut {n}") for n in range(number)))
        )

    assert lines(5) == [f"a, 1 trial: cut {number}" for number in range(5)]
    assert lines(6) == [*lines(5), "not shown: 1 other notice"]


def test_notices_of_trials_are_counted_by_model() -> None:
    invented = "a stand-in answered"
    found = evaluation(
        *(trial("a", str(n), 1.0, notice=invented) for n in range(3)),
        *(trial("b", str(n), 1.0, notice=f"cut {n}") for n in range(6)),
    )

    lines = notes(found)

    assert lines[1] == "a, 3 trials: a stand-in answered"
    assert "b, 1 trial: cut 0" in lines
    assert lines[-1] == "not shown: 2 other notices"


def test_a_sentence_says_if_the_sample_is_too_small() -> None:
    def pair(first: list[float], second: list[float]) -> str:
        trials = [trial("a", str(n), score) for n, score in enumerate(first)]
        trials += [trial("b", str(n), score) for n, score in enumerate(second)]
        return sentence(evaluation(*trials).pairs()[0])

    assert pair([1.0] * 8, [0.0] * 8) == "a against b: better in 8 cases, worse in 0 (p = 0.0078)"
    assert pair([1.0] * 8, [1.0] * 8) == "a against b: the same score in all 8 cases"
    assert pair([1.0, 0.0], [0.0, 1.0]) == (
        "a against b: better in 1 case, worse in 1 (p = 1); 2 cases cannot distinguish the models: "
        "both passed equally often"
    )
    assert pair([1.0, 0.0, 1.0], [0.0, 0.0, 1.0]).endswith(
        "3 cases cannot distinguish the models: "
        "about 24 cases are needed to detect a difference of 33 points"
    )


def test_a_note_counts_the_cases_that_differ_in_either_direction() -> None:
    def note(*scores: tuple[float, float]) -> str:
        pairs = [
            (trial("a", str(n), first), trial("b", str(n), second))
            for n, (first, second) in enumerate(scores)
        ]
        return notes(evaluation(*(each for pair in pairs for each in pair)), "page.html")[0]

    assert note((1, 0), (0, 1), (1, 1)).endswith("; the 2 cases are in page.html")
    assert note((1, 0), (1, 1)).endswith("; the 1 case is in page.html")
    assert "page.html" not in note((1, 1), (0, 0))


def test_a_sample_that_is_too_small_needs_at_least_one_more_case() -> None:
    pair = Comparison(
        first="a",
        second="b",
        cases=8,
        better=("1", "2", "3"),
        worse=(),
        unpaired=(),
        p=0.25,
        difference=0.375,
        needed=8,
    )

    assert "about 9 cases are needed to detect a difference of 38 points" in sentence(pair)


def test_the_page_has_every_transcript_with_cases_that_differ_first() -> None:
    found = evaluation(
        trial("a", "same", 1.0),
        trial("a", "other", 0.0),
        trial("b", "same", 1.0),
        trial("b", "other", 1.0),
    )

    page = comparison_page(found, "eval")

    assert page.index("Prompt other") < page.index("Prompt same")
    assert page.count('<section class="side">') == 4
    assert "the scores differ" in page
    assert "a &lt;b&gt;says&lt;/b&gt; 0.0" in page
    assert "equals: got &lt;nothing&gt;" in page
    assert "<b>says" not in page
    assert "score against cost" in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_page_that_would_be_too_large_says_what_is_left_out() -> None:
    trials = [trial("a", f"case-{n}", 1.0, messages=()) for n in range(MAX_TRANSCRIPTS + 2)]

    page = comparison_page(evaluation(*trials), "eval")

    assert page.count('class="case') == MAX_TRANSCRIPTS
    assert "the transcripts of 2 cases are not on this page; they are in the file" in page


def test_a_model_that_was_not_run_has_no_figures() -> None:
    found = Evaluation(models=("a", "b"), trials=(trial("a", "1", 1.0),), unfinished="cancelled")

    _, (_, row) = table(found)

    assert row == ["b", "-", "-", "-", "-", "0", "not run"]
    assert notes(found)[0] == "a against b: no case in common"
    assert "not run" in comparison_page(found, "eval")


def test_the_page_of_a_small_evaluation(snapshot: SnapshotAssertion) -> None:
    long = "x" * 240
    found = evaluation(
        trial("a", "differs", 1.0),
        trial("b", "differs", 0.5, reasons=(long, "also"), cost=None, seconds=0.2),
        trial("a", "fails", 0.0, outcome="failed"),
        trial("b", "fails", 0.0),
        trial("a", "passes", 1.0),
        trial("b", "passes", 1.0),
        trial("a", "swapped", 0.0),
        trial("a", "swapped", 1.0, repeat=2),
        trial("b", "swapped", 1.0),
        trial("b", "swapped", 0.0, repeat=2),
    )

    page = comparison_page(found, "eval")

    body = page[page.index("<main>") : page.index("</main>")]
    assert body.replace("><", ">\n<") == snapshot
