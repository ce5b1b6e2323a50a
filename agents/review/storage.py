"""Read and write the records of a review as JSON files: bundle.json, findings.json, scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from glue.agents.review.change.diff import parse
from glue.agents.review.records import VERSION, Bundle, ReviewRun
from glue.codec import from_json as decode
from glue.codec import to_json as encode
from glue.errors import ConfigError

RecordT = TypeVar("RecordT")


def from_json(cls: type[RecordT], data: Any, where: str = "") -> RecordT:
    """Return the record of class `cls` that the JSON value `data` contains.

    Raise ConfigError if a field is unknown, missing or of the wrong type, or if the record was
    written by another version. `where` names the source of the data in the message.
    """
    where = where or cls.__name__
    version = data.get("version", VERSION) if isinstance(data, Mapping) else VERSION
    if cls in (Bundle, ReviewRun) and version != VERSION:
        raise ConfigError(f"{where} has version {version!r}; this program reads version {VERSION}")
    try:
        record = decode(cls, data)
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from error
    if isinstance(record, Bundle):
        record = dataclasses.replace(record, files=parse(record.diff))
    return record


def save(record: Any, path: str | Path) -> None:
    """Write a record to a JSON file."""
    Path(path).write_text(json.dumps(encode(record), indent=1) + "\n", encoding="ascii")


def load(cls: type[RecordT], path: str | Path) -> RecordT:
    """Return the record of class `cls` in a file that `save` wrote.

    Raise ConfigError if the file cannot be read, is not JSON, or contains another record.
    """
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return from_json(cls, data, str(path))
