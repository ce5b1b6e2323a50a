"""The review bot: collect a change, review it, and publish the findings."""

from glue.agents.review.change.collect import collect
from glue.agents.review.change.config import Config
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, Finding, ReviewedChange, ReviewRun

__all__ = [
    "Bundle",
    "Config",
    "Finding",
    "ReviewRun",
    "ReviewedChange",
    "collect",
    "publish",
    "review",
]
