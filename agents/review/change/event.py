"""What CI says of the change that is to be reviewed: the event file of GitHub and Gitea, the variables of GitLab."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from glue.agents.review.change.config import Config
from glue.agents.review.delivery.forges.forge import Where
from glue.agents.review.records import Change

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def change_of(place: Where, environ: Mapping[str, str]) -> Change | None:
    """Read the change from the environment of a CI job; None outside of one, or where it is about no change."""
    if place.forge == "gitlab":
        return _gitlab(place, environ)
    pull = place.event.get("pull_request")
    if not isinstance(pull, dict):
        return None
    head, base = _dict(pull, "head"), _dict(pull, "base")
    labels = pull.get("labels")
    names = [_text(label, "name") for label in labels if isinstance(label, dict)] if isinstance(labels, list) else []
    origin = _dict(head, "repo")
    return Change(
        mode="pull_request",
        forge=place.forge,
        repo=place.repo,
        number=place.number,
        title=_text(pull, "title"),
        body=_text(pull, "body"),
        author=_text(_dict(pull, "user"), "login"),
        labels=tuple(names),
        draft=pull.get("draft") is True,
        # A deleted fork has no repository any more: it is a fork all the same.
        fork=not origin or origin.get("fork") is True or _text(origin, "full_name") != place.repo,
        head_ref=_text(head, "ref"),
        base_ref=_text(base, "ref"),
        head_sha=_sha(_text(head, "sha")),
        base_sha=_sha(_text(base, "sha")),
    )


def _gitlab(place: Where, environ: Mapping[str, str]) -> Change | None:
    if place.number is None:
        return None
    source, target = environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID"), environ.get("CI_MERGE_REQUEST_PROJECT_ID")
    return Change(
        mode="pull_request",
        forge="gitlab",
        repo=place.repo,
        number=place.number,
        title=environ.get("CI_MERGE_REQUEST_TITLE", ""),
        body=environ.get("CI_MERGE_REQUEST_DESCRIPTION", ""),
        author=environ.get("GITLAB_USER_LOGIN", ""),
        labels=tuple(label for label in environ.get("CI_MERGE_REQUEST_LABELS", "").split(",") if label),
        draft=environ.get("CI_MERGE_REQUEST_DRAFT") == "true",
        fork=source != target,
        head_ref=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", ""),
        base_ref=environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", ""),
        head_sha=_sha(environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environ.get("CI_COMMIT_SHA", "")),
        base_sha=_sha(environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")),
    )


def why_not(change: Change, config: Config) -> str:
    """Say why a change is not reviewed at all; the empty text where it is."""
    title = change.title.lower()
    for mark in config.skip_titles:
        if mark.lower() in title:
            return f"the title says {mark}"
    if label := next((label for label in change.labels if label in config.skip_labels), ""):
        return f"it has the label {label}"
    if change.author and change.author in config.skip_authors:
        return f"changes by {change.author} are not reviewed"
    if change.draft and config.skip_drafts:
        return "it is a draft"
    last = change.commits[0].message.lower() if change.commits else ""
    return next((f"the last commit says {mark}" for mark in config.skip_titles if mark.lower() in last), "")


def _dict(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _sha(text: str) -> str:
    return text if _SHA.fullmatch(text) else ""
