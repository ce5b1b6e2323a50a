"""The conversations that every contender runs in a benchmark.

A prompt such as "work k=50 n=20 w=0" tells the server which replies to send.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

MODEL = "bench-1"
SYSTEM = "Use the tools you are given, then answer briefly."
MARK = "value-of-"
PAD = " and a little more text, as a real result would have" * 5
PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["key", "n"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A conversation to measure."""

    turns: int = 0  # turns before the answer
    deltas: int = 20  # deltas of the answer
    paced: bool = False  # whether each delta is a write, a millisecond after the last
    runs: int = 1  # runs at the same time
    warm: bool = True  # whether a first run is not counted

    @property
    def prompt(self) -> str:
        return f"work k={self.turns} n={self.deltas} w={int(self.paced)}"


WORKS = {
    "cold": Work(turns=1, warm=False),
    "turn": Work(turns=50),
    "delta": Work(deltas=20_000),
    "paced": Work(deltas=2_000, paced=True),
    "growth": Work(turns=400),
    "many": Work(turns=10, runs=200),
}

marks: list[float] = []  # the process's CPU clock at each call of the tool


def answer(deltas: int) -> str:
    return "".join(f"word{index % 1000} " for index in range(deltas))


def find(key: str, n: int) -> str:
    """Return the result of the tool, with MARK, which the server counts to know the turn."""
    marks.append(time.process_time())
    if type(key) is not str or type(n) is not int:
        raise TypeError("the arguments were not validated")
    return f"{MARK}{key}-{n}{PAD}"
