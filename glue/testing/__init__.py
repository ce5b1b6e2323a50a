"""Tests of agents without a model: scripted providers, cassettes to record and replay, and `use_provider`."""

from glue.testing.cassette import Cassette as Cassette
from glue.testing.cassette import Recorder as Recorder
from glue.testing.cassette import Replay as Replay
from glue.testing.cassette import use_provider as use_provider
from glue.testing.script import Repeat as Repeat
from glue.testing.script import Reply as Reply
from glue.testing.script import Script as Script
from glue.testing.script import ScriptStep as ScriptStep
from glue.testing.script import call as call
from glue.testing.script import calls as calls
from glue.testing.script import fail as fail
from glue.testing.script import partial as partial
from glue.testing.script import repeat as repeat
from glue.testing.script import say as say
from glue.testing.script import shape as shape

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
