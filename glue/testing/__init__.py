"""Tests of agents without a model: a scripted provider, cassettes, and a provider in the place of a named one."""

from glue.testing.cassette import Recorder as Recorder
from glue.testing.cassette import Replay as Replay
from glue.testing.cassette import stand_in as stand_in
from glue.testing.script import Repeat as Repeat
from glue.testing.script import Reply as Reply
from glue.testing.script import Script as Script
from glue.testing.script import Step as Step
from glue.testing.script import call as call
from glue.testing.script import calls as calls
from glue.testing.script import fail as fail
from glue.testing.script import partial as partial
from glue.testing.script import repeat as repeat
from glue.testing.script import say as say
from glue.testing.script import shape as shape

__all__ = [
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
    "stand_in",
]
