"""A blind trial of a review prompt: readers play the model, and their answers go through the bot.

    python bench/review_blind.py write --out DIR --prompt v2 --count 1 REPO [REPO ...]
    python bench/review_blind.py score --out DIR

`write` takes fixes that are undone and ordinary changes of each repository, mixes them, and writes
the exact request of each into `DIR/NN/request.txt`. What each of them is goes into `DIR/key`, which
readers must not open. A reader writes `DIR/NN/answer.json`: a list of tool calls, each an object
with `name` and `arguments`; the last one is `finish_review`. `DIR/NN/tree` names the repository and
the commit to read with git. `score` plays the answers through the real tools and the gate, and
prints what was found, what was delivered, and the findings on ordinary changes, which people have
to read and label. Answers for the second look, one `judge_finding` call for each finding, are in
`DIR/NN/second.json` and are optional.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from glue.agents.review import storage
from glue.agents.review.change.config import Config, make
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, ReviewRun
from glue.agents.review.selftest import Scratch, Trial, changes, judge
from glue.testing import Script, call, calls, repeat
from glue.tools.git import Repo

DONE = calls(call("finish_review", {"summary": "The change was read in full."}))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("act", choices=["write", "score"])
    parser.add_argument("repos", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_intermixed_args()
    if given.act == "write":
        write(given.repos, given.out, given.prompt, given.count, given.seed)
    else:
        score(given.out)
    return 0


def write(repos: list[Path], out: Path, prompt: str, count: int, seed: int) -> None:
    """Write the requests of all changes, in random order."""
    found: list[tuple[Bundle, Trial, str]] = []
    for number, root in enumerate(repos):
        home = out / "scratch" / str(number)
        home.mkdir(parents=True)
        scratch = Scratch(home, root)
        found += [(bundle, trial, scratch.home) for bundle, trial in changes(root, scratch, count)]
    random.Random(seed).shuffle(found)
    (out / "key").mkdir()
    for number, (bundle, trial, home_) in enumerate(found, 1):
        config = replace(make(bundle.config), prompt=prompt)
        script = Script(DONE)
        with Repo(home_, alternates=True) as repo:
            anyio.run(partial(review, bundle, providers=[script], config=config, repo=repo))
        request = script.requests[0]
        folder = out / f"{number:02}"
        folder.mkdir()
        text = f"{request.system}\n\n{'=' * 80}\n\n{request.messages[0].text}\n"
        (folder / "request.txt").write_text(text, encoding="utf-8")
        change = bundle.change
        (folder / "tree").write_text(f"{home_} {change.merge_base} {change.head_sha}\n")
        storage.save(bundle, out / "key" / f"{number:02}.bundle.json")
        storage.save(trial, out / "key" / f"{number:02}.trial.json")
    print(f"{len(found)} requests in {out}")


def score(out: Path) -> None:
    """Play the answers through the bot, and print the result of each change and the totals."""
    totals = dict.fromkeys(("undone", "reported", "delivered", "ordinary", "findings"), 0)
    dropped = 0
    for path in sorted(out.glob("[0-9]*/answer.json")):
        key = out / "key" / path.parent.name
        bundle = storage.load(Bundle, f"{key}.bundle.json")
        trial = storage.load(Trial, f"{key}.trial.json")
        home = (path.parent / "tree").read_text().split()[0]
        second = path.with_name("second.json")
        given = json.loads(path.read_text(encoding="utf-8"))
        checks = json.loads(second.read_text(encoding="utf-8")) if second.exists() else []
        run = anyio.run(partial(played, bundle, [*given, *checks], home, bool(checks)))
        report = publish(bundle, run, {}, post=False).report
        shown = replace(run, findings=report.findings, codes=report.codes)
        result = judge(shown, bundle, trial)
        count = sum(one["name"] == "report_finding" for one in given)
        totals["undone"] += trial.undone
        totals["reported"] += trial.undone and count > 0
        totals["delivered"] += result.found
        totals["ordinary"] += not trial.undone
        totals["findings"] += len(result.others)
        dropped += run.second_look.refuted
        kind = "undone" if trial.undone else "ordinary"
        state = "found" if result.found else "missed" if trial.undone else ""
        print(f"{path.parent.name} {kind:<9}{trial.sha[:12]} {count} reported {state}")
        for finding in (*result.others, *(one for one in run.dropped if one.dropped)):
            print(f"     {finding.where}: {finding.severity}: {finding.title} {finding.dropped}")
    print(
        f"{totals['undone']} undone fixes: reports in {totals['reported']},"
        f" delivered on the undone lines in {totals['delivered']};"
        f" {totals['ordinary']} ordinary changes; {totals['findings']} other findings to label;"
        f" {dropped} dropped by the second look"
    )


async def played(
    bundle: Bundle, answers: list[dict[str, Any]], home: str, looks: bool
) -> ReviewRun:
    steps = [calls(call(one["name"], one["arguments"])) for one in answers]
    script = Script(*steps, repeat(DONE))  # if the bot sends a report back, the reader has gone
    with Repo(home, alternates=True) as repo:
        return await review(
            bundle,
            providers=[script],
            config=Config(),
            repo=repo,
            second_look="always" if looks else "never",
        )


if __name__ == "__main__":
    sys.exit(main())
