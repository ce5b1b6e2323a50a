"""Reading a recording."""

from __future__ import annotations

import json
from typing import Any

from glue.errors import ConfigError


def read_exchanges(path: str) -> list[dict[str, Any]]:
    """Give the recorded exchanges in order."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        if not lines or lines[0]["type"] != "recording":
            raise ValueError("its first line is no header")
        found = [line for line in lines if line["type"] == "exchange"]
        for line in found:
            if not isinstance(line["events"], list) or not isinstance(line["request"], dict):
                raise ValueError("an exchange is damaged")
        return sorted(found, key=lambda line: int(line["number"]))
    except OSError as error:
        raise ConfigError(f"the recording {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is no recording: {error}") from None


def first_prompt(exchanges: list[dict[str, Any]], path: str) -> str:
    """Give the text of the prompt that began the recorded run."""
    messages = exchanges[0]["request"].get("messages", ()) if exchanges else ()
    asked = [message for message in messages if message.get("role") == "user"]
    text = "".join(
        part.get("text", "") for part in (asked[-1]["content"] if asked else ()) if part.get("type") == "text"
    )
    if not text:
        raise ConfigError(f"{path} holds no prompt; give one")
    return text.replace("@", "@@", 1) if text.startswith("@") else text
