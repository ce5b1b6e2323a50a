"""A fast model server on loopback: each response is built once and then sent from memory."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the fastest server in the library; only the client is measured
import functools
import json
import re

from work import MARK

SCRIPT = re.compile(rb"work k=(\d+) n=(\d+) w=(\d)")
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 800, "completion_tokens": 60, "total_tokens": 860}


def event(choices: list[object], usage: object = None) -> bytes:
    body = {
        "id": "chatcmpl-0123456789abcdefghijklmn",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": "bench-1",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
        "usage": usage,
    }
    data = b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(body: dict[str, object], finish: str | None = None) -> bytes:
    return event([{"index": 0, "delta": body, "logprobs": None, "finish_reason": finish}])


@functools.cache
def pieces(turns: int, deltas: int, turn: int) -> list[bytes]:
    """Return the pieces of a response; a paced response is written piece by piece."""
    out = [HEAD, delta({"role": "assistant", "content": ""})]
    if turn < turns:
        arguments = json.dumps({"key": f"k{turn}", "n": turn})
        call = {"index": 0, "id": f"call_{turn:06d}abcdefghij", "type": "function"}
        out.append(delta({"tool_calls": [{**call, "function": {"name": "find", "arguments": ""}}]}))
        parts = [arguments[at : at + 4] for at in range(0, len(arguments), 4)]
        out += [
            delta({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in parts
        ]
    else:
        out += [delta({"content": f"word{index % 1000} "}) for index in range(deltas)]
    out += [delta({}, "tool_calls" if turn < turns else "stop"), event([], USAGE)]
    done = b"data: [DONE]\n\n"
    return [*out, b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)]


@functools.cache
def whole(turns: int, deltas: int, turn: int) -> bytes:
    return b"".join(pieces(turns, deltas, turn))


class LoopbackConnection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        length = LENGTH.search(self.buffer, 0, end) if end >= 0 else None
        if length is None or len(self.buffer) < end + 4 + int(length[1]):
            return
        request = bytes(self.buffer)
        self.buffer.clear()
        script = SCRIPT.search(request, end)
        assert script is not None, "no script in the request"
        turns, deltas, paced = map(int, script.groups())
        turn = request.count(MARK.encode(), end)  # counts the tool results that were sent
        if paced:
            self.task = asyncio.get_running_loop().create_task(
                self.pace(pieces(turns, deltas, turn))
            )
        else:
            self.transport.write(whole(turns, deltas, turn))  # type: ignore[attr-defined]

    async def pace(self, parts: list[bytes]) -> None:
        for part in parts:
            self.transport.write(part)  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(LoopbackConnection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
