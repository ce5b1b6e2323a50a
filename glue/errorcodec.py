"""Errors as JSON and back, so that a stored or transferred result keeps the error of its run."""

from __future__ import annotations

from typing import Any, cast

from glue import errors, provider
from glue.codec import Json, from_json, register, to_json, to_plain
from glue.errors import GlueError, ProviderError
from glue.messages import Usage

# Attributes of errors that are dataclasses; every other attribute is stored as plain JSON.
_RECORDS = ("usage", "attempts", "pending")


def _type_of(name: str) -> Any:
    """Return the type of the values of the error attribute `name`, one of `_RECORDS`."""
    from glue.decision import PendingCall  # start-up: few errors have pending calls

    types = {
        "usage": Usage,
        "attempts": tuple[provider.Attempt, ...],
        "pending": tuple[PendingCall, ...],
    }
    return types[name]


def encode_error(error: BaseException) -> dict[str, Json]:
    """Return the class name, the message and the attributes of an error as JSON, without `result`.

    Attributes that are None are left out too.
    """
    fields = {
        name: to_json(value) if name in _RECORDS else to_plain(value)
        for name, value in vars(error).items()
        if value is not None and name != "result" and not name.startswith("__")
    }
    return {"class": type(error).__name__, "message": str(error), "fields": fields}


def decode_error(data: Json) -> GlueError:
    """Return the error that `encode_error` encoded as `data`.

    If the class is unknown, for example because a newer version wrote it, return a `RunError`.
    """
    cls = getattr(errors, data["class"], None)
    if not (isinstance(cls, type) and issubclass(cls, GlueError)):
        cls = errors.RunError
    error = cast(Any, cls.__new__(cls, data["message"]))
    if issubclass(cls, ProviderError):
        vars(error).update(dict.fromkeys(errors.PROVIDER_ERROR_FIELDS), usage=None, attempts=())
    for name, value in data["fields"].items():
        setattr(error, name, from_json(_type_of(name), value) if name in _RECORDS else value)
    return cast(GlueError, error)


register(GlueError, encode_error, decode_error)
