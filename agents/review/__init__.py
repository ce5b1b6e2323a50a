"""The review bot: collect a change, review it, publish what was found.

Names are loaded at first use, so that the command line starts at once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.agents.review.change.collect import collect
    from glue.agents.review.change.config import Config
    from glue.agents.review.delivery.publish import publish
    from glue.agents.review.findings.model import review
    from glue.agents.review.records import Bundle, Change, Finding, ReviewRun

_HOMES = {
    "collect": "change.collect",
    "Config": "change.config",
    "publish": "delivery.publish",
    "review": "findings.model",
    **dict.fromkeys(("Bundle", "Change", "Finding", "ReviewRun"), "records"),
}
__all__ = ["Bundle", "Change", "Config", "Finding", "ReviewRun", "collect", "publish", "review"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'glue.agents.review' has no attribute {name!r}")
    return getattr(__import__(f"{__name__}.{_HOMES[name]}", fromlist=[name]), name)
