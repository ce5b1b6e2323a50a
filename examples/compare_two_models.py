# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Compare two models on cases: `python compare_two_models.py cases.jsonl anthropic openai`."""

import argparse
import sys

from glue import Agent, GlueError, tool
from glue.evaluation import evaluate_sync


@tool
def stock(title: str) -> int:
    """Return how many copies of a book are in the shop."""
    return {"emma": 3}.get(title.lower(), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two models on the same cases.")
    parser.add_argument("cases", help="a JSONL file: a prompt and checks per line")
    parser.add_argument("models", nargs=2, metavar="MODEL")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    agent: Agent[None, None] = Agent(given.models[0], tools=[stock])
    models = [{"model": model, "name": f"{n}. {model}"} for n, model in enumerate(given.models, 1)]

    evaluation = evaluate_sync(
        agent, given.cases, models=models, repeat=given.repeat, usd_budget=1.0
    )

    for summary in evaluation.summaries():
        cost = "unknown" if summary.cost is None else f"${summary.cost:.4f}"
        print(f"{summary.model}: {summary.score:.0%} of {summary.cases} cases, {cost} per case")
    for trial in evaluation.trials:
        if trial.reasons:
            print(f"  {trial.model}, {trial.case}: {'; '.join(trial.reasons)}")
    [pair] = evaluation.pairs()
    better, worse = len(pair.better), len(pair.worse)
    print(f"the first model is better in {better} cases, worse in {worse}; p = {pair.p:.2g}")
    return 1 if worse else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GlueError, OSError) as error:
        sys.exit(f"error: {error}")
