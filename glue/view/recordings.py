"""A recording as a transcript: each exchange repeats all that was said before, and agents may be mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from glue.codec import message_from_json
from glue.errors import StoreError
from glue.recording import read_exchanges
from glue.types import AssistantMessage, Json, ToolSpec
from glue.view.model import Entry, Note, Transcript, attempts_of
from glue.view.sources import entry_of


@dataclass(slots=True)
class _Thread:
    """One conversation of those that a recording holds."""

    system: str
    tools: tuple[ToolSpec, ...]
    entries: list[Entry | Note] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    unmatched: bool = False  # the last reply has not come back in a request yet

    def ask(self, request: Mapping[str, Json]) -> None:
        for said in request["messages"]:
            message = message_from_json(said)
            if message.id in self.ids:
                continue
            self.ids.add(message.id)
            if isinstance(message, AssistantMessage) and self.unmatched:
                self.unmatched = False  # the loop gives a reply another id than the provider did
                continue
            self.entries.append(entry_of(message))

    def answer(self, exchange: Mapping[str, Json]) -> None:
        events = exchange["events"]
        attempts = attempts_of([event for event in events if event["type"] == "attempt"])
        done = next((event for event in events if event["type"] == "done"), None)
        if done is not None:
            message = message_from_json(done["message"])
            self.ids.add(message.id)
            self.entries.append(replace(entry_of(message), attempts=attempts))
            self.unmatched = True
        elif (error := exchange.get("error")) is not None:
            who = ", ".join(filter(None, (error.get("provider"), error.get("model"))))
            text = f"{who or 'the provider'}: {error.get('kind')}: {error.get('message')}"
            self.entries.append(Note(kind="failed", text=text, attempts=attempts))
        else:
            self.entries.append(Note(kind="failed", text="the reply was broken off", attempts=attempts))


def read_recording(path: Path) -> Transcript:
    """Read a recording made by `Recorder` or `--record`."""
    provider, exchanges = read_exchanges(path)
    threads: list[_Thread] = []
    try:
        for exchange in exchanges:
            thread = _find(threads, exchange["request"])
            thread.ask(exchange["request"])
            thread.answer(exchange)
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: not an exchange of a recording: {error!r}") from error
    entries: list[Entry | Note] = []
    for number, thread in enumerate(threads, 1):
        if len(threads) > 1:
            entries.append(Note(kind="heading", text=f"Conversation {number} of {len(threads)}"))
        entries += thread.entries
    first = threads[0] if threads else _Thread("", ())
    return Transcript(
        title=path.name,
        source=f"recording of {provider}",
        entries=tuple(entries),
        system=first.system,
        tools=first.tools,
    )


def _find(threads: list[_Thread], request: Mapping[str, Json]) -> _Thread:
    ids = {message.get("id") for message in request["messages"]}
    for thread in threads:
        if thread.ids & ids:
            return thread
    tools = tuple(
        ToolSpec(name=str(tool["name"]), description=str(tool["description"]), parameters=tool["parameters"])
        for tool in request.get("tools", ())
    )
    threads.append(_Thread(str(request.get("system", "")), tools))
    return threads[-1]
