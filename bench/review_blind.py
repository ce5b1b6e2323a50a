"""A blind trial of a review prompt: readers play the model, and their answers go through the bot.

    python bench/review_blind.py write DIR --key KEY.json --prompt v1 --prompt v2 REPO [REPO ...]
    python bench/review_blind.py tool DIR/v2/01 read_file '{"path": "shop.py"}'
    python bench/review_blind.py play DIR/v2/01
    python bench/review_blind.py score DIR --key KEY.json

`write` takes undone fixes and ordinary changes of git repositories, mixes them, and writes for each
prompt and change the exact request to `DIR/PROMPT/NN/request.md`. `--list FILE` names the changes
instead; each line is `REPO COMMIT undone|ordinary fix|parent`, and the last word says whose tests
the tree has. Readers must not see KEY.json, which says what each change is.

A reader answers in `DIR/PROMPT/NN/answer.json`: a list of tool calls, each an object with `name`
and `arguments`; the last one is `finish_review`. `tool` prints the answer of a reading tool, and
`play` prints the answers of the tools to all calls in `answer.json`, so that a reader can correct a
report that was refused. `play` also writes the requests of the second look to `second-N.md`; a
reader may answer them in `second.json`, an object from N to the arguments of `judge_finding`.

`score` sends the answers through the real tools and the gate. It prints for each prompt which bugs
were reported, which were delivered, and the findings on ordinary changes, which people have to read
and label.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from glue import Request
from glue.agents.review import storage
from glue.agents.review.change.collect import collect_range
from glue.agents.review.change.config import make
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, ReviewRun
from glue.agents.review.selftest import Sample, Scratch, Trial, changes, judge, sources
from glue.messages import ToolMessage
from glue.testing import Reply, Script, call, calls, repeat
from glue.tools.git import Repo

DONE = calls(call("finish_review", {"summary": "The change was read in full."}))
CHECK = re.compile(r"Check finding (\d+)\.")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    acts = parser.add_subparsers(dest="act", required=True)
    writing = acts.add_parser("write")
    writing.add_argument("out", type=Path, metavar="DIR")
    writing.add_argument("repos", nargs="*", type=Path, metavar="REPO")
    writing.add_argument("--list", type=Path)
    writing.add_argument("--key", type=Path, required=True)
    writing.add_argument("--prompt", action="append", default=[])
    writing.add_argument("--count", type=int, default=1)
    writing.add_argument("--seed", type=int, default=1)
    reading = acts.add_parser("tool")
    reading.add_argument("folder", type=Path, metavar="DIR/PROMPT/NN")
    reading.add_argument("name")
    reading.add_argument("arguments", type=json.loads, nargs="?", default={})
    playing = acts.add_parser("play")
    playing.add_argument("folder", type=Path, metavar="DIR/PROMPT/NN")
    scoring = acts.add_parser("score")
    scoring.add_argument("out", type=Path, metavar="DIR")
    scoring.add_argument("--key", type=Path, required=True)
    given = parser.parse_args()
    if given.act == "write":
        write(given.out, given.repos, given.list, given.key, given.prompt, given.count, given.seed)
    elif given.act == "tool":
        print(use_tool(given.folder, given.name, given.arguments))
    elif given.act == "play":
        show_play(given.folder)
    else:
        score(given.out, json.loads(given.key.read_text(encoding="utf-8")))
    return 0


def write(
    out: Path, repos: list[Path], listed: Path | None, key: Path, prompts: list[str], count: int,
    seed: int,
) -> None:  # fmt: skip
    """Write the requests of all changes, in random order, and the key."""
    found: list[tuple[Bundle, Sample, str]] = []
    if listed is not None:
        rows = [row.split() for row in listed.read_text(encoding="utf-8").splitlines() if row]
        random.Random(seed).shuffle(rows)  # the number of a tree must not tell what it is
        for number, (repo, sha, kind, tests) in enumerate(rows):
            found.append(neutral(out / "trees" / str(number), Path(repo), sha, kind, tests))
    for number, root in enumerate(repos, len(found)):
        scratch = make_scratch(out / "trees" / str(number), root)
        found += [(*pair, scratch.home) for pair in changes(root, scratch, count)]
    random.Random(seed).shuffle(found)
    for version in prompts or [""]:
        for number, (bundle, _, home) in enumerate(found, 1):
            folder = out / (version or "default") / f"{number:02}"
            folder.mkdir(parents=True)
            (folder / "tree").write_text(f"{home}\n", encoding="utf-8")
            (folder / "prompt").write_text(f"{version}\n", encoding="utf-8")
            storage.save(bundle, folder / "bundle.json")
            script = Script(DONE)
            with opened(folder) as trial:
                anyio.run(partial(trial.review, script))
            request = script.requests[0]
            text = f"{request.system}\n\n{'=' * 80}\n\n{request.messages[0].text}\n"
            (folder / "request.md").write_text(text, encoding="utf-8")
            offered = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in request.tools
            ]
            (folder / "tools.json").write_text(json.dumps(offered, indent=1) + "\n")
    rows_ = {
        f"{number:02}": {"sha": sample.sha, "subject": sample.subject, "undone": sample.undone}
        for number, (_, sample, _) in enumerate(found, 1)
    }
    key.write_text(json.dumps(rows_, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} changes in {out}, the key is {key}")


def make_scratch(folder: Path, root: Path) -> Scratch:
    folder.mkdir(parents=True)
    return Scratch(folder, root)


def neutral(
    folder: Path, root: Path, sha: str, kind: str, tests: str
) -> tuple[Bundle, Sample, str]:
    """Return a bundle of one commit without its history, its sample, and its repository.

    Only source files differ between base and head. If `kind` is "undone", the commit is undone.
    """
    scratch = make_scratch(folder, root)
    with Repo(root) as repo:
        commit = repo.log("", sha, limit=1)[0]
        found = sources(repo, commit.sha, tested=False)
    if found is None:
        raise SystemExit(f"{sha} is not a small change of source files")
    parent, paths, changed_tests = found
    kept = changed_tests if tests == "fix" else []
    old = scratch.tree(parent, commit.sha, kept)
    new = scratch.tree(parent, commit.sha, [*kept, *paths])
    first, second = (new, old) if kind == "undone" else (old, new)
    base = scratch.commit(first)
    head = scratch.commit(second, base)
    bundle = collect_range(scratch.home, f"{base}..{head}", alternates=True)
    subject = commit.message.partition("\n")[0]
    return bundle, Sample(sha=commit.sha, subject=subject, undone=kind == "undone"), scratch.home


@dataclass(slots=True)
class Played:
    """One change of a trial, with its repository."""

    bundle: Bundle
    repo: Repo
    prompt: str

    async def review(self, script: Script, *, second_look: bool = False) -> ReviewRun:
        """Review the change as in production; `script` is the model."""
        return await review(
            self.bundle,
            providers=[script],
            config=replace(make(self.bundle.config), prompt=self.prompt),
            repo=self.repo,
            second_look="always" if second_look else "never",
        )


@contextmanager
def opened(folder: Path) -> Iterator[Played]:
    bundle = storage.load(Bundle, folder / "bundle.json")
    home = (folder / "tree").read_text(encoding="utf-8").strip()
    with Repo(home, alternates=True) as repo:
        yield Played(bundle, repo, (folder / "prompt").read_text(encoding="utf-8").strip())


def player(answers: list[dict[str, Any]], checks: dict[str, Any]) -> Script:
    """Return a scripted model that makes the tool calls that a reader wrote down.

    Checks of the second look are answered by the number of the finding. If the reader has made all
    calls, the model finishes.
    """
    left = list(answers)

    def reply(request: Request) -> Reply:
        if any(tool.name == "judge_finding" for tool in request.tools):
            match = CHECK.search(request.messages[0].text)
            stands = {"verdict": "stands", "reason": "Not checked."}
            given = checks.get(match[1], stands) if match else stands
            return calls(call("judge_finding", given))
        if not left:
            return DONE
        one = left.pop(0)
        return calls(call(one["name"], one["arguments"]))

    return Script(repeat(reply))


def use_tool(folder: Path, name: str, arguments: dict[str, Any]) -> str:
    """Call a reading tool on the change in `folder`, and return its answer."""
    script = Script(calls(call(name, arguments)), repeat(DONE))
    with opened(folder) as trial:
        anyio.run(partial(trial.review, script))
    return next(one.text for one in script.requests[1].messages if isinstance(one, ToolMessage))


def show_play(folder: Path) -> None:
    """Print the answers of the tools to a reader's calls; write the requests of the second look."""
    answers = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    script = player(answers, {})
    with opened(folder) as trial:
        anyio.run(partial(trial.review, script, second_look=True))
    asked = [one for one in script.requests if not CHECK.match(one.messages[0].text)]
    for message in asked[-1].messages:
        if isinstance(message, ToolMessage):
            print(f"{'refused' if message.is_error else 'ok':<9}{message.text[:600]}")
    print("The answer to the call that ended the review is not shown.")
    for request in script.requests:
        if match := CHECK.match(request.messages[0].text):
            text = f"{request.system}\n\n{'=' * 80}\n\n{request.messages[0].text}\n"
            (folder / f"second-{match[1]}.md").write_text(text, encoding="utf-8")


def score(out: Path, key: dict[str, Any]) -> None:
    """Play the answers through the bot, and print the result of each change and the totals."""
    for version in sorted(path for path in out.iterdir() if (path / "01").is_dir()):
        totals = dict.fromkeys(("undone", "reported", "delivered", "ordinary", "findings"), 0)
        dropped = answered = 0
        print(f"prompt {version.name}")
        for path in sorted(version.glob("[0-9]*/answer.json")):
            answered += 1
            row = key[path.parent.name]
            sample = Sample(sha=row["sha"], subject=row["subject"], undone=row["undone"])
            run, result, count = play(path, sample)
            totals["undone"] += sample.undone
            totals["reported"] += sample.undone and count > 0
            totals["delivered"] += result.found
            totals["ordinary"] += not sample.undone
            totals["findings"] += len(result.others)
            dropped += run.second_look.refuted
            kind = "undone" if sample.undone else "ordinary"
            state = "delivered" if result.found else "missed" if sample.undone else ""
            print(f"  {path.parent.name} {kind:<9}{sample.sha[:12]} {count} reported {state}")
            for finding in (*result.others, *(one for one in run.dropped if one.dropped)):
                print(
                    f"     {finding.where}: {finding.severity}: {finding.title} {finding.dropped}"
                )
        print(
            f"  {answered} answers; {totals['undone']} undone fixes: reports in"
            f" {totals['reported']}, delivered on the undone lines in {totals['delivered']};"
            f" {totals['ordinary']} ordinary changes; {totals['findings']} other findings to label;"
            f" {dropped} dropped by the second look"
        )


def play(path: Path, sample: Sample) -> tuple[ReviewRun, Trial, int]:
    """Return the review of one change, its result, and the number of reports in the answer."""
    answers = json.loads(path.read_text(encoding="utf-8"))
    second = path.with_name("second.json")
    checks = json.loads(second.read_text(encoding="utf-8")) if second.exists() else {}
    with opened(path.parent) as played:
        script = player(answers, checks)
        run = anyio.run(partial(played.review, script, second_look=bool(checks)))
        report = publish(played.bundle, run, {}, post=False).report
        shown = replace(run, findings=report.findings, codes=report.codes)
        result = judge(shown, played.bundle, sample)
    return run, result, sum(one["name"] == "report_finding" for one in answers)


if __name__ == "__main__":
    sys.exit(main())
