"""The JSON-RPC connection: invalid lines, long lines, slow readers, cancelled requests."""

from __future__ import annotations

import io
import json
import os
import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from fakes.editor import Open, words

from glue.acp.rpc import MAX_BACKLOG, MAX_LINE, Peer, Response, RpcError, Work


class Pipes:
    """A peer that reads from one pipe and writes to another."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Work]) -> None:
        reading, self.to = os.pipe()
        self.back, writing = os.pipe()
        self.source, self.sink = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        self.peer = Peer(self.source, self.sink, call, lambda method, params: None)

    def close(self) -> None:
        for file in (self.source, self.sink):
            file.close()
        os.close(self.back)


def refuse_all(method: str, params: dict[str, Any]) -> Work:
    raise RpcError(-32601, method)


async def frames_for(line: bytes) -> list[dict[str, Any]]:
    """Return the messages that a peer sends for a line, before its input ends."""
    sink = io.BytesIO()
    peer = Peer(io.BytesIO(line), sink, refuse_all, lambda method, params: None)
    await peer.serve()
    return [json.loads(frame) for frame in sink.getvalue().splitlines()]


async def test_drain_waits_for_a_slow_reader_and_no_message_is_lost() -> None:
    started, finished = anyio.Event(), anyio.Event()

    async def work() -> dict[str, Any]:
        for _ in range(40):
            pipes.peer.notify("x", {"text": "y" * 100_000})
            started.set()
            await pipes.peer.drain()
        finished.set()
        return {}

    pipes = Pipes(lambda method, params: work)

    got = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipes.peer.serve)
        os.write(pipes.to, b'{"id": 1, "method": "go"}\n')
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        assert not finished.is_set()
        assert pipes.peer._backlog <= MAX_BACKLOG + 200_000
        while got.count(b"\n") < 41:
            got += await anyio.to_thread.run_sync(os.read, pipes.back, 65536)
        os.close(pipes.to)
    pipes.close()

    lines = [json.loads(line) for line in got.splitlines()]
    assert [line.get("method") for line in lines] == ["x"] * 40 + [None]
    assert lines[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_an_unexpected_exception_is_answered_and_the_connection_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> Any:
        raise KeyError("a bug")

    async def fine() -> Any:
        return {}

    pipes = Pipes(lambda method, params: broken if method == "broken" else fine)
    got = bytearray()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipes.peer.serve)
        for method in (b"broken", b"fine"):
            os.write(pipes.to, b'{"id": "%s", "method": "%s"}\n' % (method, method))
            got += await anyio.to_thread.run_sync(os.read, pipes.back, 65536)
        os.close(pipes.to)
    pipes.close()

    first, second = map(json.loads, got.splitlines())
    assert first["error"] == {"code": -32603, "message": "KeyError: 'a bug'"}
    assert second["result"] == {}
    assert "broken failed" in caplog.text


INVALID_LINES = [
    (b"not json\n", -32700),
    (b"\xff\xfe\x00\n", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": NaN}\n', -32700),
    (b"[" * 100_000 + b"\n", -32700),
    (b"[]\n", -32600),
    (b"7\n", -32600),
    (b"{}\n", -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": [1], "result": 1}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}\n', -32600),
]


def test_invalid_lines_are_answered_with_errors_and_the_connection_continues(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('still here'))")

    for line, code in INVALID_LINES:
        client.write(line)
        frame = client.answer(None)
        assert frame["error"]["code"] == code, line[:40]
    client.write(b"\n  \n")  # nothing at all
    client.write(b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n')  # an answer without a request
    client.write(b'{"jsonrpc": "2.0", "method": "session/update"}\n')  # an unknown notification
    client.write(b'{"jsonrpc": "2.0", "method": "session/prompt", "params": []}\n')
    client.write(b'{"jsonrpc": "2.0", "id": 77, "method": "session/prompt", "params": []}\n')

    assert client.answer(77)["error"]["code"] == -32602
    assert client.prompt(client.start(tmp_path))["stopReason"] == "end_turn"


def test_a_line_of_20_megabytes_is_refused_and_the_next_one_read(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('still here'))")

    client.write(b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 20_000_000 + b'"}\n')

    assert "longer than 16 MiB" in client.answer(1)["error"]["message"]
    assert client.prompt(client.start(tmp_path))["stopReason"] == "end_turn"


@pytest.mark.parametrize("id", [7, "a-7"], ids=["number", "text"])
@pytest.mark.parametrize("id_last", [False, True])
def test_a_prompt_with_a_picture_that_is_too_large_is_answered_by_its_id(
    editor: Open, tmp_path: Path, id: int | str, id_last: bool
) -> None:
    client = editor("agent = made(Script('still here'))")
    session = client.start(tmp_path)

    picture = b'{"type": "image", "id": 99, "mimeType": "image/png", "data": "%s"}' % (
        b"A" * 17_000_000
    )
    params = b'"params": {"id": 98, "sessionId": "%s", "prompt": [%s]}' % (
        session.encode(),
        picture,
    )
    fields = [b'"id": ' + json.dumps(id).encode(), b'"method": "session/prompt"']
    parts = [params, *fields] if id_last else [*fields, params]
    client.write(b'{"jsonrpc": "2.0", ' + b", ".join(parts) + b"}\n")

    assert "longer than 16 MiB" in client.answer(id)["error"]["message"]
    assert client.prompt(session)["stopReason"] == "end_turn"


@pytest.mark.parametrize("id_last", [False, True])
@pytest.mark.parametrize(
    ("id", "answered"),
    [
        (rb'"a\"7"', 'a"7'),
        (rb'"a\\"', "a\\"),
        (rb'"a\\\""', 'a\\"'),
        (b"-7", -7),
        (b"007", None),
        (b'"\xff"', None),
        (rb'"\x"', None),
        (b"[7]", None),
    ],
    ids=lambda value: repr(value),
)
async def test_a_line_that_is_too_long_is_refused_by_its_id_if_the_id_is_valid(
    id: bytes, answered: object, id_last: bool
) -> None:
    fields = [b'"meta": {"id": 2, "tags": []}', b'"id": ' + id, b'"method": "x"']
    fields.append(b'"params": {"id": 1, "text": "%s"}')
    line = b"{%s}\n" % b", ".join(reversed(fields) if id_last else fields)

    frames = await frames_for(line % (b"}" * MAX_LINE))

    assert [frame["id"] for frame in frames] == [answered]
    assert "longer than 16 MiB" in frames[0]["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"_meta": {"id": 1, "x": ["{"]}, "id": 7, "method": "x", "params": "%s"}\n',
        b'{"params": "%s", "method": "x", "id": 7, "_meta": {"id": 1, "x": ["}"]}}\n',
    ],
    ids=["first", "last"],
)
async def test_the_id_of_a_line_that_is_too_long_may_be_beside_a_nested_object(line: bytes) -> None:
    frames = await frames_for(line % (b"x" * MAX_LINE))

    assert [frame["id"] for frame in frames] == [7]


@pytest.mark.parametrize(
    ("surplus", "code"), [(0, -32601), (1, -32600)], ids=["16 MiB", "one byte more"]
)
async def test_a_line_may_have_16_mebibytes(surplus: int, code: int) -> None:
    line = b'{"id": 1, "method": "%s"}\n'
    line %= b"x" * (MAX_LINE + surplus - len(line) + len("%s"))

    frames = await frames_for(line)

    assert [(frame["id"], frame["error"]["code"]) for frame in frames] == [(1, code)]


@pytest.mark.parametrize("id_last", [False, True])
def test_a_request_fails_if_its_answer_is_longer_than_16_megabytes(
    editor: Open, tmp_path: Path, id_last: bool
) -> None:
    client = editor(ready="calls(call('read_file', {'path': 'a.txt'})), 'done'")
    session = client.start(tmp_path, client={"fs": {"readTextFile": True}})
    number = client.send("session/prompt", words(session))
    question = client.until(lambda frame: frame.get("method") == "fs/read_text_file")

    result, own = (
        b'"result": {"content": "' + b"x" * 17_000_000 + b'"}',
        b'"id": %d' % question["id"],
    )
    parts = (result, own) if id_last else (own, result)
    client.write(b'{"jsonrpc": "2.0", ' + b", ".join(parts) + b"}\n")

    assert client.answer(number)["result"]["stopReason"] == "end_turn"
    assert "longer than 16 MiB" in json.dumps(client.updates("tool_call_update"))


def test_an_incomplete_line_at_the_end_of_input_is_ignored(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    client.start(tmp_path)

    client.write(b'{"jsonrpc": "2.0", "id": 5, "meth')

    assert client.close() == 0


def test_a_line_may_arrive_in_several_pieces(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Script('a'))")
    session = client.start(tmp_path)

    number, line = client.line("session/prompt", words(session))
    for at in range(0, len(line), 7):
        client.write(line[at : at + 7])

    assert client.answer(number)["result"]["stopReason"] == "end_turn"


def test_a_request_can_be_cancelled_by_its_id(editor: Open, tmp_path: Path) -> None:
    client = editor("agent = made(Stuck())")
    session = client.start(tmp_path)

    behind, prompt = client.line("session/prompt", words(session))
    client.write(prompt + client.line("$/cancel_request", {"requestId": behind}, notice=True)[1])
    first = client.answer(behind)
    before = client.text()  # it may have begun
    number = client.send("session/prompt", words(session))
    client.until(lambda frame: client.text() == before + "first ")
    wrong: list[dict[str, Any]] = [
        {"requestId": 999},
        {"requestId": None},
        {},
        {"requestId": number},
    ]
    for params in wrong:
        client.notify("$/cancel_request", params)

    assert [each["error"]["code"] for each in (first, client.answer(number))] == [-32800, -32800]
    assert client.prompt(session, "/usage")["stopReason"] == "end_turn"


def test_a_question_to_the_editor_is_cancelled_with_its_prompt(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script(calls(call('danger', {'what': 'x'})), 'after'))")
    session = client.start(tmp_path)
    number = client.send("session/prompt", words(session))
    question = client.until(lambda frame: frame.get("method") == "session/request_permission")

    client.notify("session/cancel", {"sessionId": session})

    assert client.answer(number)["result"]["stopReason"] == "cancelled"
    cancelled = [
        frame["params"] for frame in client.frames if frame.get("method") == "$/cancel_request"
    ]
    assert cancelled == [{"requestId": question["id"]}]


# One peer with a scripted other side ------------------------------------------------------------


class OtherSide:
    """The other side of a connection: it sends lines, and leaves after some frames arrived.

    The functions in `replies` answer the frames of the peer, in their order.
    """

    def __init__(
        self,
        *lines: dict[str, Any] | bytes,
        frames: int,
        replies: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = (),
    ) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._left, self._replies, self._open = frames, list(replies), True
        self.frames: list[dict[str, Any]] = []
        for line in lines:
            self._put(line)

    def _put(self, line: dict[str, Any] | bytes) -> None:
        self._lines.put(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    def readline(self, size: int) -> bytes:
        return self._lines.get()

    def write(self, block: bytes) -> None:
        for line in block.splitlines():
            frame = json.loads(line)
            self.frames.append(frame)
            if self._replies and "method" in frame:
                self._put(self._replies.pop(0)(frame))
            if len(self.frames) == self._left:
                self._lines.put(b"")

    def flush(self) -> None:
        pass


class Handler:
    """The methods of a peer, and the requests and notifications that it received."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.notifications: list[tuple[str, Any]] = []
        self.then: list[str] = []

    def on_request(self, method: str, params: dict[str, Any]) -> Work:
        self.requests.append((method, params))
        if method == "absent":
            raise RpcError(-32601, "no such method", {"method": method})
        return getattr(self, method)  # type: ignore[no-any-return]

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        self.notifications.append((method, params))
        if method == "broken":
            raise RpcError(-32603, "broken")

    async def plain(self) -> Any:
        return {"n": 1}

    async def later(self) -> Any:
        return Response({"n": 2}, lambda: self.then.append("then"))

    async def refused(self) -> Any:
        raise RpcError(-32002, "not found", {"id": 7})

    async def forever(self) -> Any:
        await anyio.sleep_forever()


async def talk(
    *lines: dict[str, Any] | bytes, frames: int = 0, handler: Handler | None = None
) -> list[dict[str, Any]]:
    other, handler = OtherSide(*lines, frames=frames or len(lines)), handler or Handler()
    peer = Peer(cast(Any, other), cast(Any, other), handler.on_request, handler.on_notification)
    with anyio.fail_after(30):
        await peer.serve()
    return other.frames


def asks(id: Any, method: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **more}


async def test_a_request_is_answered_with_its_result_or_its_error() -> None:
    handler = Handler()

    first = await talk(asks(1, "plain", params={"a": 1}), handler=handler)
    second = await talk(asks("x", "refused"), handler=handler)
    third = await talk(asks(None, "absent", params=None), handler=handler)

    assert first == [{"jsonrpc": "2.0", "id": 1, "result": {"n": 1}}]
    missing = {"code": -32002, "message": "not found", "data": {"id": 7}}
    assert second == [{"jsonrpc": "2.0", "id": "x", "error": missing}]
    unknown = {"code": -32601, "message": "no such method", "data": {"method": "absent"}}
    assert third == [{"jsonrpc": "2.0", "id": None, "error": unknown}]
    assert handler.requests == [("plain", {"a": 1}), ("refused", {}), ("absent", {})]


async def test_a_function_of_a_response_is_called_after_its_result() -> None:
    handler = Handler()

    frames = await talk(asks(1, "later"), handler=handler)

    assert (frames[0]["result"], handler.then) == ({"n": 2}, ["then"])


async def test_a_notification_has_no_answer_even_if_it_fails() -> None:
    handler = Handler()
    told: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "method": "broken"},
        {"jsonrpc": "2.0", "method": "x", "params": {"a": 1}},
        {"jsonrpc": "2.0", "method": "x", "params": [1]},
    ]

    frames = await talk(*told, asks(1, "plain", params=[1]), frames=1, handler=handler)

    assert handler.notifications == [("broken", {}), ("x", {"a": 1})]
    assert [(frame["id"], frame["error"]) for frame in frames] == [
        (1, {"code": -32602, "message": "params must be an object"})
    ]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b"{\n", -32700, "the received line is not valid JSON"),
        ({"id": True, "method": "plain"}, -32600, "the received line is not a JSON-RPC message"),
        ({"id": 1.5, "method": "plain"}, -32600, "the received line is not a JSON-RPC message"),
        ({"id": 1}, -32600, "the received line is neither a request nor an answer"),
        (
            {"id": 1, "method": 7, "result": 1},
            -32600,
            "the received line is neither a request nor an answer",
        ),
    ],
)
async def test_an_invalid_line_is_refused_without_an_id(line: Any, code: int, message: str) -> None:
    [frame] = await talk(line)

    assert frame == {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


@pytest.mark.parametrize("id", [7, "a"])
async def test_a_cancelled_request_is_answered_as_cancelled(id: Any) -> None:
    def cancel(value: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": value}}

    frames = await talk(asks(id, "forever"), cancel([id]), cancel("other"), cancel(id), frames=1)

    error = {"code": -32800, "message": "the request was cancelled"}
    assert frames == [{"jsonrpc": "2.0", "id": id, "error": error}]


async def test_open_requests_end_without_an_answer_when_the_other_side_leaves() -> None:
    assert await talk(asks(1, "forever"), b"", frames=-1) == []


async def request_to(*replies: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Send a request to an other side that replies, and return the result or the error."""
    other = OtherSide(frames=-1, replies=replies)
    handler = Handler()
    peer = Peer(cast(Any, other), cast(Any, other), handler.on_request, handler.on_notification)
    found: list[Any] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.serve)
        with anyio.fail_after(30):
            try:
                found.append(await peer.request("ask", {"a": 1}))
            except RpcError as error:
                found.append((error.code, str(error), error.data))
        other._lines.put(b"")
    [frame] = other.frames
    assert frame == {"jsonrpc": "2.0", "id": 1, "method": "ask", "params": {"a": 1}}
    return found[0]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"result": {"b": 2}}, {"b": 2}),
        ({"result": None}, None),
        (
            {"error": {"code": -1, "message": "no", "data": [1]}},
            (-1, "no", [1]),
        ),
        ({"error": {}}, (-32603, "failed", None)),
        ({"error": "broken"}, (-32603, "failed", None)),
    ],
)
async def test_an_answer_is_returned_or_raised(fields: dict[str, Any], found: Any) -> None:
    assert await request_to(lambda frame: {"id": frame["id"], **fields}) == found


async def test_a_caller_that_is_cancelled_cancels_its_request() -> None:
    other, handler = OtherSide(frames=2), Handler()
    peer = Peer(cast(Any, other), cast(Any, other), handler.on_request, handler.on_notification)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.serve)
        with anyio.CancelScope() as scope:
            tasks.start_soon(anyio.lowlevel.checkpoint)
            async with anyio.create_task_group() as asking:
                asking.start_soon(peer.request, "ask", {})
                await anyio.wait_all_tasks_blocked()
                scope.cancel()

    first, second = other.frames
    assert (first["method"], second["method"]) == ("ask", "$/cancel_request")
    assert second["params"] == {"requestId": first["id"]}


async def test_messages_after_the_end_of_the_other_side_are_dropped() -> None:
    class Closed(OtherSide):
        def write(self, block: bytes) -> None:
            raise BrokenPipeError

    other, handler = Closed(asks(1, "plain"), b"", frames=0), Handler()
    peer = Peer(cast(Any, other), cast(Any, other), handler.on_request, handler.on_notification)

    with anyio.fail_after(30):
        await peer.serve()
        await peer.drain()

    assert handler.requests == [("plain", {})]
