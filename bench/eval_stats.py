"""The statistics of `glue eval`: coverage of intervals and false alarms of the paired test.

    python bench/eval_stats.py [simulations]          2,000 by default, with a fixed seed
    python bench/eval_stats.py --loopback [cases]     500 cases on three models over HTTP, killed
                                                      in the middle and resumed

Each simulation draws cases of different difficulty, and repeats of each case for three models with
known pass rates. A fourth model is as good as the first on every case, and a fifth has the same
pass rate as the first with its own strengths. The table has the share of simulations in which the
interval contains the known rate, for our interval and for plain Wilson over all trials, and how
often the paired test finds a difference between models that are equally good.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar

from glue.statistics import compare, interval, mean

RATES = (0.97, 0.85, 0.57)
SIZES = ((20, 3), (50, 3), (500, 1), (500, 3))  # cases, repeats
CORRELATION = 0.5  # of the repeats of one case
SEED = 35


def chances(source: random.Random, rate: float, cases: int) -> list[float]:
    """Draw for each case the chance that a model passes it; `rate` is the mean of the chances."""
    total = 1 / CORRELATION - 1
    return [source.betavariate(rate * total, (1 - rate) * total) for _ in range(cases)]


def scores(source: random.Random, chances: Sequence[float], repeats: int) -> list[float]:
    """Draw for each case the share of `repeats` trials that pass, from the chance of the case."""
    return [sum(source.random() < chance for _ in range(repeats)) / repeats for chance in chances]


def by_case(scores: Sequence[float]) -> dict[str, float]:
    """Return scores by the names of their cases."""
    return {str(number): score for number, score in enumerate(scores)}


def wilson(passed: float, trials: int) -> tuple[float, float]:
    """Return Wilson's interval for a pass rate, which treats all trials as independent."""
    rate, z = passed / trials, 1.96
    middle = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    return middle - half, middle + half


def simulate(task: tuple[int, int, int]) -> tuple[list[bool], list[bool], list[bool]]:
    """Run one simulation; return three lists: whether intervals cover the rate, and false alarms.

    The first list is for our intervals and the second for Wilson's, with an entry for each of
    RATES. The third has an entry for each comparison of two equally good models.
    """
    number, cases, repeats = task
    source = random.Random(f"{SEED}-{number}-{cases}-{repeats}")
    own, plain = [], []
    first: list[float] = []
    twin: list[float] = []
    for rate in RATES:
        chance = chances(source, rate, cases)
        drawn = scores(source, chance, repeats)
        low, high = interval(drawn, seed=number)
        own.append(low <= rate <= high)
        low, high = wilson(mean(drawn) * cases * repeats, cases * repeats)
        plain.append(low <= rate <= high)
        if rate == RATES[1]:
            first, twin = drawn, scores(source, chance, repeats)
    other = scores(source, chances(source, RATES[1], cases), repeats)
    alarms = [compare(by_case(first), by_case(model)).significant for model in (twin, other)]
    return own, plain, alarms


class Models(BaseHTTPRequestHandler):
    """A server of models on the loopback: the model "m-97" passes 97 % of the cases."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()
    half = threading.Event()
    total = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name, prompt = body["model"], json.dumps(body["messages"][-1]["content"])
        self.asked[f"{name} {prompt}"] += 1
        if self.asked.total() * 2 > self.total:
            self.half.set()
        chance = random.Random(f"{SEED}-{name}-{prompt}").random()
        text = "yes" if chance < int(name.partition("-")[2]) / 100 else "no"
        usage = {"prompt_tokens": 800, "completion_tokens": 60, "total_tokens": 860}
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        event = {"id": "1", "object": "chat.completion.chunk", "model": name, "choices": [choice]}
        lines = [json.dumps(event | {"usage": usage}), "[DONE]"]
        data = "".join(f"data: {line}\n\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


def loopback(cases: int) -> None:
    """Run `glue eval` on a loopback server, kill it in the middle, resume it, print its table."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of killed clients
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = [f"m-{round(rate * 100)}" for rate in RATES]
    Models.total = cases * len(names)
    glue = [sys.executable, "-c", "from glue.cli.app import main; main()"]
    command = [*glue, "eval", "agent.py", "cases.jsonl", "--resume", "-q", "-n", "32"]
    command += [word for name in names for word in ("-m", f"groq:{name}")]
    environ = os.environ | {
        "GROQ_API_KEY": "none",
        "GROQ_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "agent.py").write_text('from glue import Agent\nagent = Agent("groq")\n')
        lines = ({"prompt": f"Case {number}?", "equals": "yes"} for number in range(cases))
        Path(folder, "cases.jsonl").write_text("\n".join(map(json.dumps, lines)))
        with subprocess.Popen(command, cwd=folder, env=environ) as process:
            Models.half.wait(300)
            process.kill()
        print(f"killed after {Models.asked.total():,} requests; resumed:\n")
        subprocess.run(command, cwd=folder, env=environ, check=True)
        trials = Path(folder, "eval.jsonl").read_text().splitlines()[1:]
        found = Counter((json.loads(line)["model"], json.loads(line)["case"]) for line in trials)
    server.shutdown()
    again = sum(number - 1 for number in Models.asked.values())
    print(f"\n{len(found):,} trials of {Models.total:,}, each {max(found.values())} time")
    print(f"{again} requests were sent twice; at most 32 were in progress when it was killed")


def main() -> None:
    if "--loopback" in sys.argv:
        loopback(int(sys.argv[2]) if len(sys.argv) > 2 else 500)
        return
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    print(f"{simulations:,} simulations, seed {SEED}; pass rates {RATES}\n")
    print("cases x repeats  intervals cover the truth   plain Wilson          false alarms")
    with ProcessPoolExecutor() as processes:
        for cases, repeats in SIZES:
            tasks = [(number, cases, repeats) for number in range(simulations)]
            found = list(processes.map(simulate, tasks, chunksize=20))
            columns = []
            for part in zip(*found, strict=True):
                shares = (mean(share) for share in zip(*part, strict=True))
                columns.append("  ".join(f"{share:6.1%}" for share in shares))
            print(f"{f'{cases} x {repeats}':<15}  {columns[0]}      {columns[1]}  {columns[2]}")


if __name__ == "__main__":
    main()
