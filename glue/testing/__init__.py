"""Helpers for tests of agents: scripted models, and cassettes of recorded requests and replies."""

from glue.testing.cassette import Cassette, Recorder, Replay, use_provider
from glue.testing.script import (
    Repeat,
    Reply,
    Script,
    call,
    calls,
    fail,
    partial,
    repeat,
    say,
    shape,
)
from glue.testing.script import ScriptStep as ScriptStep

__all__ = [
    "Cassette",
    "Recorder",
    "Repeat",
    "Replay",
    "Reply",
    "Script",
    "call",
    "calls",
    "fail",
    "partial",
    "repeat",
    "say",
    "shape",
    "use_provider",
]
