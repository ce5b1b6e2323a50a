# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Test a prompt in CI without a key: `python prompt_in_ci.py prompt.md cases.jsonl`.

`--record` asks the model and stores its replies, `--accept` makes the result the new baseline.
"""

import argparse
import sys
from pathlib import Path

from glue import Agent, GlueError, providers, tool
from glue.evaluation import Evaluation, differences, evaluate_sync, load, save
from glue.testing import Recorder, Replay


@tool
def stock(title: str) -> int:
    """Return how many copies of a book are in the shop."""
    return {"emma": 3}.get(title.lower(), 0)


def evaluate(prompt: Path, cases: Path, *, record: bool, repeat: int) -> Evaluation:
    """Evaluate a prompt on recorded replies; if `record`, ask a model and record its replies."""
    cassette = prompt.with_suffix(".cassette.jsonl")
    model: Recorder | Replay
    if record:
        model = Recorder(providers.new(providers.default()), cassette)
    else:
        model = Replay(cassette, by="hash")  # trials run at the same time, in any order
    agent = Agent(model, tools=[stock], instructions=prompt.read_text())
    return evaluate_sync(agent, cases, models=[{"name": "prompt"}], repeat=repeat, retries=0)


def report(found: Evaluation, baseline: Path) -> int:
    """Print the result and its difference from the baseline; return the exit code.

    The code is 1 if a case became worse or if there is no baseline.
    """
    [summary] = found.summaries()
    print(f"{summary.passed:g} of {summary.trials} trials passed")
    for trial in found.trials:
        if trial.reasons:
            print(f"  {trial.case}: {'; '.join(trial.reasons)}")
    if not baseline.exists():
        print("there is no baseline; --accept creates it")
        return 1
    [pair] = differences(found, load(baseline))
    print(f"better: {', '.join(pair.better) or 'none'}; worse: {', '.join(pair.worse) or 'none'}")
    return 1 if pair.worse else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Test a prompt against its baseline.")
    parser.add_argument("prompt", type=Path, help="the instructions of the agent, a text file")
    parser.add_argument("cases", type=Path, help="a JSONL file: a prompt and checks per line")
    parser.add_argument("--record", action="store_true", help="ask the model, store its replies")
    parser.add_argument("--accept", action="store_true", help="make the result the new baseline")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    try:
        found = evaluate(given.prompt, given.cases, record=given.record, repeat=given.repeat)
        baseline = given.prompt.with_suffix(".baseline.jsonl")
        if given.accept:
            save(found, baseline)
        sys.exit(report(found, baseline))
    except (GlueError, OSError) as error:
        sys.exit(f"error: {error}")
