"""What every contender does. The script of a conversation travels in its prompt: "work k=50 n=20 w=0"."""

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
    turns: int = 0  # tool turns before the answer
    deltas: int = 20  # pieces of the answer
    paced: bool = False  # one write for each piece, a millisecond apart
    runs: int = 1  # at the same time
    warm: bool = True  # a run first that is not counted

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
    """Do what the tool does; the server counts the marks to know the turn."""
    marks.append(time.process_time())
    if type(key) is not str or type(n) is not int:
        raise TypeError("the arguments were not validated")
    return f"{MARK}{key}-{n}{PAD}"
