"""Decodes recorded traffic of public projects and counts the faults of the wires.

    python bench/recordings.py FOLDER... [--show 20] [--json]

Each FOLDER is a checkout or a bare git repository with recorded HTTP traffic: cassettes of vcrpy,
of Ruby's and R's vcr, and of similar tools (.yaml, .yml, .json, also compressed). The recordings
are read where they are and never copied. The environment of `make models` has the packages that
this script needs: genai-prices and PyYAML.

For each reply of a model it counts:

    wrong     the decoder fails, or its text or the names of its calls differ from a plain reading
    chunks    the reply differs if the body arrives in pieces of other sizes
    lost      a field that the server expects back is not sent back
    class     the kind of an error response, to be read (--show lists them)
    price     the cost differs from that of genai-prices
    level     a reasoning level that a server accepted is not known for the model
"""

from __future__ import annotations

import argparse
import base64
import binascii
import gzip
import hashlib
import json
import random
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from glue import AssistantMessage, ToolMessage, user
from glue.errors import ProviderError
from glue.messages import EFFORTS, Request, Text
from glue.providers import encoding, models
from glue.providers.catalog import ENTRIES, Entry
from glue.providers.errors import classify
from glue.providers.wire import capabilities_of, wire_class

NAMES = re.compile(r"(cassette|vcr|recording|fixture).*\.(ya?ml|json)(\.gz)?$", re.IGNORECASE)
PATHS = (
    (re.compile(r"/chat/completions$"), "openai_chat"),
    (re.compile(r"/responses$"), "openai_responses"),
    (re.compile(r"/messages$"), "anthropic"),
    (re.compile(r":(generateContent|streamGenerateContent)$"), "gemini"),
    (re.compile(r"/model/[^/]+/(converse|converse-stream)$"), "bedrock"),
)
HOSTS = {
    "azure.com": "azure",
    "amazonaws.com": "bedrock",
    "aiplatform.googleapis.com": "vertex",
    "api.aws": "bedrock-mantle",
    "dashscope": "alibaba",
    "snowflakecomputing.com": "snowflake",
}
THEIRS = {
    "anthropic": "anthropic", "openai": "openai", "gemini": "google", "vertex": "google",
    "mistral": "mistral", "deepseek": "deepseek", "xai": "x-ai", "bedrock": "aws", "azure": "azure",
    "openrouter": "openrouter", "groq": "groq", "cerebras": "cerebras", "together": "together",
    "fireworks": "fireworks", "moonshot": "moonshotai", "zai": "zai", "perplexity": "perplexity",
}  # fmt: skip
# Fields whose values a server expects back with the history.
SEALED = ("signature", "thoughtSignature", "encrypted_content", "namespace", "redactedContent")
# Events whose fields another event repeats, sometimes with another encryption.
REPEATED = ("response.output_item.added", "response.completed")


@dataclass(frozen=True)
class Reply:
    """A recorded response of a model, with the request that it answers."""

    wire: str
    entry: Entry
    model: str
    asked: dict[str, Any]
    status: int
    headers: dict[str, str]
    body: bytes
    source: str


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", help="checkouts or bare git repositories")
    parser.add_argument("--show", type=int, default=5, help="faults to print for each count (5)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    faults: dict[str, list[str]] = {}
    for folder in options.folders:
        for reply in replies(Path(folder)):
            for name, text in check(reply):
                counts[name] += 1
                if text:
                    faults.setdefault(name, []).append(f"{reply.source}: {text}")
    if options.json:
        print(json.dumps(counts, indent=1))
        return 0
    for name, count in sorted(counts.items()):
        print(f"{name:24} {count:6}")
    for name, texts in sorted(faults.items()):
        print(f"\n{name}")
        for text in sorted(set(texts))[: options.show]:
            print(f"  {text[:300]}")
    return 0


# Reading recordings


def replies(folder: Path) -> Iterator[Reply]:
    """Yield each different reply of a model below a folder."""
    seen: set[bytes] = set()
    for name, data in files(folder):
        for method, url, asked, status, headers, body in exchanges(name, data):
            found = recognised(method, url, asked)
            if found is None:
                continue
            wire, entry, model = found
            key = hashlib.sha1(url.encode() + asked + body).digest()
            if key in seen:
                continue
            seen.add(key)
            yield Reply(wire, entry, model, parsed(asked), status, headers, body, name)


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if (folder / "HEAD").exists():
        git = ["git", f"--git-dir={folder}"]
        listed = subprocess.run([*git, "ls-tree", "-r", "HEAD"], capture_output=True, text=True)
        rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
        wanted = [(row[2], row[3].split("\t")[-1]) for row in rows if NAMES.search(row[3])]
        with subprocess.Popen(
            [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as cat:
            assert cat.stdin is not None
            assert cat.stdout is not None
            for oid, name in wanted:
                cat.stdin.write(oid.encode() + b"\n")
                cat.stdin.flush()
                head = cat.stdout.readline().split()
                if len(head) == 3:
                    yield name, cat.stdout.read(int(head[2]) + 1)[:-1]
            cat.stdin.close()
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file() and NAMES.search(str(path)):
            yield str(path.relative_to(folder)), path.read_bytes()


def exchanges(name: str, data: bytes) -> Iterator[tuple[str, str, bytes, int, Any, bytes]]:
    """Yield the exchanges in a file: method, URL and body of the request, then the response.

    Of the response there are the status, the headers and the body.
    """
    import yaml

    if name.endswith(".gz"):
        data = gzip.decompress(data)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tape = json.loads(data) if ".json" in name else yaml.load(data, loader)
    except (ValueError, yaml.YAMLError):
        return
    rows = tape
    if isinstance(tape, dict):
        rows = tape.get("interactions") or tape.get("http_interactions") or [tape]
    if isinstance(tape, dict) and "requests" in tape and "responses" in tape:
        rows = [
            {"request": request, "response": response}
            for request, response in zip(tape["requests"], tape["responses"], strict=False)
        ]
    for row in rows if isinstance(rows, list) else ():
        request, response = (row.get(part) if isinstance(row, dict) else None
                             for part in ("request", "response"))  # fmt: skip
        if not isinstance(request, dict) or not isinstance(response, dict):
            continue
        status = response.get("status")
        status = status.get("code") if isinstance(status, dict) else status
        status = status or response.get("status_code")
        url = request.get("uri") or request.get("url")
        if not isinstance(url, str) or not isinstance(status, int):
            continue
        headers = {}
        for key, value in (response.get("headers") or {}).items():
            headers[str(key).lower()] = str(
                value[0] if isinstance(value, list) and value else value
            )
        body = unpacked(content(response), headers)
        yield str(request.get("method", "POST")), url, content(request), status, headers, body


def content(part: dict[str, Any]) -> bytes:
    if part.get("parsed_body") is not None:
        return json.dumps(part["parsed_body"]).encode()
    body = part.get("body", part.get("content"))
    if isinstance(body, dict) and body.keys() & {"string", "base64_string"}:
        if body.get("base64_string"):
            return base64.b64decode(body["base64_string"])
        body = body.get("string")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogateescape")
    return body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""


def unpacked(body: bytes, headers: dict[str, str]) -> bytes:
    """Return a body without compression; the recorder may have undone it already."""
    try:
        if body[:2] == b"\x1f\x8b":
            return gzip.decompress(body)
        if "deflate" in headers.get("content-encoding", ""):
            return zlib.decompress(body, 47)
        if re.fullmatch(rb"[A-Za-z0-9+/=\s]{40,}", body) and b"event" not in body[:200]:
            return unpacked(base64.b64decode(body), {})
    except (OSError, EOFError, zlib.error, binascii.Error):
        pass
    return body


def recognised(method: str, url: str, asked: bytes) -> tuple[str, Entry, str] | None:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    wire = next((name for pattern, name in PATHS if pattern.search(path)), None)
    if wire is None or method.upper() != "POST":
        return None
    host = (parts.hostname or "").lower()
    name = next((name for part, name in HOSTS.items() if part in host), "")
    for entry in ENTRIES:
        own = urlsplit(entry.base_url).hostname or ""
        if not name and host and host == own and not entry.quirks.local:
            name = entry.name
    if wire == "gemini" and not name:
        name = "gemini"
    known = next((entry for entry in ENTRIES if entry.name == name), None)
    if known is None:
        known = next(entry for entry in ENTRIES if entry.name == "openai-compatible")
    model = str(parsed(asked).get("model") or "")
    if wire in ("gemini", "bedrock"):
        named = re.search(r"/models?/([^/:]+(?::\d+)?)(?=[/:])", unquote(path))
        model = named[1] if named else model
    return wire, replace(known, wire=wire), model


def parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# Checks


def check(reply: Reply) -> Iterator[tuple[str, str]]:
    """Check one reply; yield the name of each counter to increase, with a text if it is a fault."""
    if not reply.body.strip() or b"<REDACTED" in reply.body[:40]:
        return
    if reply.status >= 400:
        error = classify(reply.status, reply.headers, reply.body, provider=reply.entry.name)
        text = " ".join(str(error).split())
        yield "errors", ""
        yield f"error {error.kind}", f"{reply.status} {text[:160]}"
        return
    if not 200 <= reply.status < 300 or not is_reply(reply):
        return
    yield "replies", ""
    wire = wire_class(reply.wire)
    try:
        done = wire.decoder(reply.entry.quirks, reply.entry.name, reply.model).decode(reply.body)
    except ProviderError as error:
        if is_failure(reply):
            yield "replies that fail", ""
        elif "cannot answer" in str(error):
            yield "unanswerable calls", str(error)
        else:
            yield "wrong", f"{error.kind}: {error}"
        return
    message = done.message
    wanted = plain_reading(reply)
    if wanted is not None:
        found = (message.text, [call.name for call in message.calls])
        if wanted != found:
            yield "wrong", f"{found!r} instead of {wanted!r}"
    yield from chunked(reply, wire, message)
    yield from sent_back(reply, wire, message)
    yield from priced(reply, message)
    yield from levelled(reply)


def is_reply(reply: Reply) -> bool:
    """Return whether a body looks like a reply of a model and was recorded whole."""
    start = reply.body.lstrip()[:1]
    if reply.wire == "openai_chat" and b"choices" not in reply.body:
        return False
    if re.search(rb'"finishReason":\s*\d', reply.body):
        return False  # an encoding of enumerations that glue does not ask for
    if reply.wire == "bedrock" and "stream" in reply.headers.get("content-type", ""):
        return len(reply.body) > 16
    return start in (b"{", b"[", b"d", b"e", b":", b"i")


def is_failure(reply: Reply) -> bool:
    """Return whether the server reports an error inside a response with status 200."""
    return bool(re.search(rb'"error":\s*[{"]|"status":\s*"failed"|event: error', reply.body))


def chunked(reply: Reply, wire: Any, whole: AssistantMessage) -> Iterator[tuple[str, str]]:
    rng = random.Random(len(reply.body))
    for _ in range(2):
        decoder = wire.decoder(reply.entry.quirks, reply.entry.name, reply.model)
        at = 0
        while at < len(reply.body):
            size = rng.choice((1, 2, 7, 64, 1000, 5000))
            decoder.feed(reply.body[at : at + size])
            at += size
        yield "chunkings", ""
        try:
            message = decoder.finish().message
        except ProviderError as error:
            yield "chunks differ", str(error)
            continue
        same = (message.text, message.stop_reason) == (whole.text, whole.stop_reason)
        if not same or len(message.calls) != len(whole.calls):
            yield "chunks differ", f"{message.text[:80]!r} instead of {whole.text[:80]!r}"


def sent_back(reply: Reply, wire: Any, message: AssistantMessage) -> Iterator[tuple[str, str]]:
    sealed = set(values(events(reply.body)))
    results = [
        ToolMessage(call_id=call.id, name=call.name, content=(Text(text="ok"),))
        for call in message.calls
    ]
    body = wire.encode(
        Request(messages=(user("hi"), message, *(results or [user("more")]))),
        reply.entry,
        reply.model,
    )
    encoding.loads(body)
    text = body.decode()
    for name, value in sealed:
        yield "sealed fields", ""
        # The pieces of a streamed value are joined.
        if json.dumps(value)[1:-1] not in text and value not in text:
            yield "lost", f"{name} of {reply.model}"


def values(place: Any) -> Iterator[tuple[str, str]]:
    if isinstance(place, list):
        for each in place:
            yield from values(each)
    elif isinstance(place, dict) and place.get("type") not in REPEATED:
        for key, value in place.items():
            if key in SEALED and isinstance(value, str) and value:
                yield key, value
            else:
                yield from values(value)


def events(body: bytes) -> list[Any]:
    """Return the JSON objects of a body: the body itself, or the events of a stream."""
    try:
        return [json.loads(body)]
    except ValueError:
        found = []
        for line in body.replace(b"\r", b"\n").split(b"\n"):
            if line.startswith(b"data:"):
                try:
                    found.append(json.loads(line[5:]))
                except ValueError:
                    continue
        return found


def priced(reply: Reply, message: AssistantMessage) -> Iterator[tuple[str, str]]:
    from genai_prices import Usage, calc_price

    source, usage = THEIRS.get(reply.entry.name), message.usage
    if source is None or usage is None or not usage.input:
        return
    read = usage.cache_read or 0
    write = max(0, min(usage.cache_write or 0, usage.input - read))
    try:
        theirs: float | None = float(
            calc_price(
                Usage(
                    input_tokens=usage.input,
                    output_tokens=usage.output,
                    cache_read_tokens=read,
                    cache_write_tokens=write,
                ),
                reply.model,
                provider_id=source,
            ).total_price
        )
    except (LookupError, ValueError):
        theirs = None
    ours = models.cost(reply.entry.name, reply.model, usage)
    yield "prices", ""
    if theirs is None and ours is None:
        yield "price unknown to both", reply.model
    elif ours is None:
        yield "price missing", f"{reply.entry.name} {reply.model}"
    elif theirs is None:
        yield "price only ours", f"{reply.entry.name} {reply.model}"
    elif abs(ours - theirs) > 1e-9 + 1e-6 * theirs:
        yield "price differs", f"{reply.entry.name} {reply.model}: {ours} instead of {theirs}"


def levelled(reply: Reply) -> Iterator[tuple[str, str]]:
    asked = reply.asked
    level = asked.get("reasoning_effort") or next(
        (
            asked[name]["effort"]
            for name in ("reasoning", "output_config")
            if isinstance(asked.get(name), dict) and asked[name].get("effort")
        ),
        None,
    )
    if level not in EFFORTS or reply.entry.name == "openai-compatible":
        return
    known = capabilities_of(reply.entry, reply.model).efforts
    yield "levels", ""
    if encoding.lower(level, known) != level:
        yield "level unknown", f"{reply.entry.name} {reply.model} takes {level!r}, not {known}"


# A plain reading of a reply, independent of the decoders


def plain_reading(reply: Reply) -> tuple[str, list[str]] | None:
    """Return the text and the call names of a reply, read without the decoder.

    Return None if this function cannot read the reply.
    """
    found = events(reply.body)
    if not found or (reply.wire == "bedrock" and "stream" in reply.headers.get("content-type", "")):
        return None
    reader = {
        "openai_chat": read_chat,
        "openai_responses": read_responses,
        "anthropic": read_messages,
        "gemini": read_gemini,
        "bedrock": read_converse,
    }[reply.wire]
    try:
        text, names = reader(found)
    except (KeyError, TypeError, AttributeError, IndexError):
        return None
    return text, names


def read_chat(found: list[Any]) -> tuple[str, list[str]]:
    texts, calls = [], {}
    for chunk in found:
        for choice in (chunk.get("choices") or [])[:1]:
            if choice.get("index"):
                continue
            part = choice.get("message") or choice.get("delta") or {}
            content = part.get("content") or ""
            if isinstance(content, list):
                content = "".join(
                    each.get("text") or "" for each in content if each.get("type") == "text"
                )
            texts.append(content + (part.get("refusal") or ""))
            listed = part.get("tool_calls") or ()
            for call in (*listed, {"function": part.get("function_call"), "id": "old"}):
                name = (call.get("function") or call.get("custom") or {}).get("name")
                key = call.get("id") or (call.get("index") if len(listed) == 1 else len(calls))
                if name and (call.get("id") or key not in calls):
                    calls[key] = name
        if chunk.get("object") == "chat.completion.done":
            break
    return "".join(texts), list(calls.values())


def read_responses(found: list[Any]) -> tuple[str, list[str]]:
    last = next(
        (
            each.get("response") or each
            for each in reversed(found)
            if (each.get("response") or each).get("output") is not None
        ),
        None,
    )
    if last is None or not last["output"]:
        raise KeyError("output")
    texts, calls = [], []
    for item in last["output"]:
        if item["type"] == "message":
            texts += [part.get("text") or part.get("refusal") or "" for part in item["content"]]
        elif item["type"] in ("function_call", "custom_tool_call"):
            calls.append(item["name"])
    return "".join(texts), calls


def read_messages(found: list[Any]) -> tuple[str, list[str]]:
    texts, calls = [], []
    for event in found:
        for block in event.get("content") or ():
            texts.append(block.get("text") or "" if block["type"] == "text" else "")
            calls += [block["name"]] if block["type"] == "tool_use" else []
        block = event.get("content_block") or {}
        calls += [block["name"]] if block.get("type") == "tool_use" else []
        texts.append(block.get("text") or "" if block.get("type") == "text" else "")
        delta = event.get("delta") or {}
        texts.append(delta.get("text") or "" if delta.get("type") == "text_delta" else "")
    return "".join(texts), calls


def read_gemini(found: list[Any]) -> tuple[str, list[str]]:
    if len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    texts, calls = [], []
    for event in found:
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                texts.append(part.get("text") or "" if not part.get("thought") else "")
                if (part.get("functionCall") or {}).get("name"):
                    calls.append(part["functionCall"]["name"])
    return "".join(texts), calls


def read_converse(found: list[Any]) -> tuple[str, list[str]]:
    texts, calls = [], []
    for block in found[0]["output"]["message"]["content"]:
        texts.append(block.get("text") or "")
        cited = (block.get("citationsContent") or {}).get("content") or ()
        texts += [piece.get("text") or "" for piece in cited]
        if "toolUse" in block and block["toolUse"].get("type") != "server_tool_use":
            calls.append(block["toolUse"]["name"])
    return "".join(texts), calls


if __name__ == "__main__":
    sys.exit(main())
