"""The HTML page of an evaluation: the table, a chart, and the transcripts side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from glue.messages import UserMessage
from glue.statistics import Comparison
from glue.text import count, format_dollars, format_seconds
from glue.trials import CaseTrial, Evaluation, Summary
from glue.view.chart import Point, scatter
from glue.view.html import brief, escape, fold
from glue.view.page import article, articles, document, fact_list
from glue.view.sources import shown_message
from glue.view.transcript import arrange

MAX_TRANSCRIPTS = 600  # on one page; cases in which the models differ come first
_MAX_NOTICES = 5


def table(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Return the column heads and the rows of the table that compares the models."""
    judged = any(trial.judge_cost is not None for trial in evaluation.trials)
    heads = ["model", "pass", "cost/case", "p50 s", "p95 s", "tokens", "outcomes"]
    if judged:
        heads.insert(3, "judge/case")
    rows = []
    for each in evaluation.summaries():
        low, high = (round(share * each.trials) for share in (each.low, each.high))
        no_times = evaluation.replayed or not each.trials
        times = ["-", "-"] if no_times else [f"{each.p50:.1f}", f"{each.p95:.1f}"]
        cells = [
            each.model,
            f"{each.passed:.4g}/{each.trials} ({low}-{high})" if each.trials else "-",
            _dollars(each.cost),
            *([_dollars(each.judge_cost)] if judged else []),
            *times,
            f"{each.tokens:,}",
            ", ".join(f"{number:,} {name}" for name, number in each.outcomes.items()) or "not run",
        ]
        rows.append(cells)
    return heads, rows


def _dollars(cost: float | None) -> str:
    return "-" if cost is None else format_dollars(cost)


def notes(evaluation: Evaluation, page: str = "") -> list[str]:
    """Return the lines below the table: differences, the judge, notices and trials not run.

    `page` is the file name of the page that shows the cases in which the models differ.
    """
    lines = []
    for pair in evaluation.pairs():
        differing = len(pair.better) + len(pair.worse)
        cases = count(differing, "case is", "cases are")
        where = f"; the {cases} in {page}" if page and differing else ""
        lines.append(sentence(pair) + where)
    if evaluation.judge:
        same, both = evaluation.agreement()
        line = (
            f"the judge {evaluation.judge} agrees with the plain checks in {same} of {both} trials"
        )
        lines.append(
            line if both else "no case has both a judge and a plain check, so the judge is untested"
        )
    notices = Counter((trial.model, trial.notice) for trial in evaluation.trials if trial.notice)
    for (model, notice), number in notices.most_common(_MAX_NOTICES):
        lines.append(f"{model}, {count(number, 'trial')}: {notice}")
    if len(notices) > _MAX_NOTICES:
        lines.append(f"not shown: {count(len(notices) - _MAX_NOTICES, 'other notice')}")
    if evaluation.unfinished:
        lines.append(f"some trials were not run: {evaluation.unfinished}; --resume continues")
    return lines


def sentence(pair: Comparison) -> str:
    """Return a sentence that counts how often the first model did better and worse than the second.

    If the sample is too small to distinguish the two models, the sentence states how many cases
    would be needed.
    """
    names = f"{pair.first} against {pair.second}"
    if not pair.cases:
        return f"{names}: no case in common"
    if not pair.better and not pair.worse:
        return f"{names}: the same score in all {count(pair.cases, 'case')}"
    better, worse = count(len(pair.better), "case"), len(pair.worse)
    text = f"{names}: better in {better}, worse in {worse} (p = {pair.p:.2g})"
    if pair.significant:
        return text
    text += f"; {count(pair.cases, 'case')} cannot distinguish the models"
    if pair.needed is None:
        return f"{text}: both passed equally often"
    points = 100 * abs(pair.difference)
    wanted = max(pair.needed, pair.cases + 1)
    return (
        f"{text}: about {wanted:,} cases are needed to detect a difference of {points:.2g} points"
    )


def comparison_page(evaluation: Evaluation, title: str) -> str:
    """Return the HTML page of an evaluation: table, chart, notes and transcripts by case.

    If there are more than MAX_TRANSCRIPTS, the transcripts of some cases are left out, with a note.
    Cases in which all models passed are left out first.
    """
    trials: dict[str, list[CaseTrial]] = {}
    for trial in evaluation.trials:
        trials.setdefault(trial.case, []).append(trial)
    ordered = sorted(trials, key=lambda case: _order(evaluation, case, trials[case]))
    body, shown, left = [], 0, 0
    for number, case in enumerate(ordered, 1):
        if shown + len(trials[case]) > MAX_TRANSCRIPTS and shown:
            left += 1
            continue
        shown += len(trials[case])
        body.append(_case(evaluation, case, trials[case], f"c{number}"))
    lines = notes(evaluation)
    if left:
        lines.append(
            f"the transcripts of {count(left, 'case')} are not on this page; "
            "they are in the file of the evaluation"
        )
    facts = [
        ("models", f"{len(evaluation.models):,}"),
        ("cases", f"{len(trials):,}"),
        ("trials", f"{len(evaluation.trials):,}"),
        ("judge", escape(evaluation.judge)),
    ]
    top = _table(evaluation) + _chart(evaluation.summaries())
    top += "".join(f'<p class="note"><span>{escape(line)}</span></p>' for line in lines)
    known = [(name, value) for name, value in facts if value]
    return document(title, fact_list(known) + top, body, style="comparison.css")


def _order(evaluation: Evaluation, case: str, trials: Sequence[CaseTrial]) -> int:
    """Return the sort key of a case: 0 if its scores differ, 1 if a trial failed, else 2."""
    scores = {
        model: sum(trial.score for trial in trials if trial.model == model)
        for model in evaluation.models
    }
    if len(set(scores.values())) > 1:
        return 0
    return 1 if any(trial.score < 1 for trial in trials) else 2


def _table(evaluation: Evaluation) -> str:
    heads, rows = table(evaluation)
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table class="models">{body}</table></div>'


def _chart(summaries: Sequence[Summary]) -> str:
    return scatter(
        [
            Point(name=each.model, cost=each.cost, score=each.score, low=each.low, high=each.high)
            for each in summaries
            if each.trials
        ]
    )


def _case(evaluation: Evaluation, case: str, trials: Sequence[CaseTrial], anchor: str) -> str:
    """Return the HTML of a case, with one column of trials for each model."""
    differs = _order(evaluation, case, trials) == 0
    badge = '<b class="badge">the scores differ</b>' if differs else ""
    prompts = [each.text for each in trials[0].messages if isinstance(each, UserMessage)]
    head = (
        f'<header><a class="number" href="#{anchor}">{escape(case)}</a>'
        f'<span class="who" dir="auto">{brief(prompts[0] if prompts else "", 160)}</span>'
        f"{badge}</header>"
    )
    columns = []
    for place, model in enumerate(evaluation.models, 1):
        own = [trial for trial in trials if trial.model == model]
        passed = f"{sum(trial.score for trial in own):g}/{len(own)}" if own else "not run"
        folds = "".join(_trial(trial, f"{anchor}-{place}-{trial.repeat}-") for trial in own)
        columns.append(
            f'<section class="side"><h3>{escape(model)}<small>{passed}</small></h3>'
            f"{folds}</section>"
        )
    is_problem = any(trial.score < 1 for trial in trials)
    body = f'{head}<div class="sides">{"".join(columns)}</div>'
    return article("case", anchor, is_problem, "", body)


def _trial(trial: CaseTrial, prefix: str) -> str:
    """Return the HTML of a trial: one line, which the user can unfold to read the transcript."""
    is_good = trial.score >= 1
    mark = "✓" if is_good else "✗" if trial.score <= 0 else "~"
    figures = [f"repeat {trial.repeat}", trial.outcome, format_seconds(trial.seconds)]
    if trial.cost is not None:
        figures.append(format_dollars(trial.cost))
    title = f'<span class="mark">{mark}</span><span>{escape(" · ".join(figures))}</span>'
    reasons = "".join(
        f'<p class="note failed"><span>{escape(reason)}</span></p>' for reason in trial.reasons
    )
    title += f'<span class="why">{brief("; ".join(trial.reasons), 200)}</span>' if reasons else ""
    blocks = arrange([shown_message(message) for message in trial.messages])
    body = reasons + "".join(html for _, html in articles(blocks, prefix))
    return fold(f"trial {'good' if is_good else 'bad'}", title, body)
