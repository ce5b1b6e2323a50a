from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fakes.documents import pdf
from syrupy.assertion import SnapshotAssertion

import glue
from glue.context import Host
from glue.errors import ToolError
from glue.function.hooks import wait_for
from glue.testing import call
from glue.tools import fetch
from glue.tools.fetch import is_public, parse_url

# Every request goes to a loopback server, but under another name.
pytestmark = pytest.mark.glue_live

PRIVATE = [
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255"),
    *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
    *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9"),
    *("224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1"),
    *("::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "fc00::1"),
    *("fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001::1"),
    *("2001:db8::1", "2002:7f00:1::1", "3fff::1", "nonsense", ""),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111"]
PUBLIC += ["::ffff:8.8.8.8", "64:ff9b::808:808", "2001:4860:4860::8888"]


class Page:
    """A host name with the address of a loopback server, and the tool that may read it."""

    def __init__(self, server: Any, **options: Any) -> None:
        self.server = server
        self.looked_up: list[str] = []
        settings = {"allow": ["*"], "private": ["pages.test"], "resolve": self.resolve, **options}
        self.tool = fetch.fetch_url(**settings)

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.looked_up.append(host)
        return ["127.0.0.1"]

    def url(self, path: str = "/") -> str:
        return f"http://pages.test:{self.server.port}{path}"

    async def read(self, path: str = "/", **arguments: Any) -> Any:
        return await wait_for(self.tool.function(self.url(path), **arguments))


def response(
    body: bytes, kind: str = "text/html", *, status: str = "200 OK", head: str = ""
) -> bytes:
    """Return a complete HTTP response."""
    lines = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n"
    lines += f"content-type: {kind}\r\n" if kind else ""
    return f"{lines}{head}\r\n".encode() + body


def redirect(url: str, status: str = "302 Found") -> bytes:
    return response(b"", "", status=status, head=f"location: {url}\r\n")


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_recognised(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_recognised(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE[:-2])
async def test_no_connection_goes_to_a_name_with_an_address_that_is_not_public(
    loopback: Callable[..., Any], address: str, tally: Callable[[str, int], None]
) -> None:
    server = loopback(response(b"secret"))
    page = Page(server, private=[], resolve=lambda host, port: ["8.8.8.8", address])

    with pytest.raises(ToolError, match="is not public"):
        await page.read()

    assert server.connections == 0
    tally("fetches of private addresses", 1)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://127.1:{port}/",
        "http://0:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://127.0.0.1.:{port}/",
    ],
)
async def test_spellings_of_the_loopback_are_refused(
    loopback: Callable[..., Any], url: str, tally: Callable[[str, int], None]
) -> None:
    server = loopback(response(b"secret"))
    tool = fetch.fetch_url(allow=["*"])

    with pytest.raises(ToolError, match=r"is not public|was not found"):
        await wait_for(tool.function(url.format(port=server.port)))

    assert server.connections == 0
    tally("fetches of private addresses", 1)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://10.0.0.1:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]:{port}/",
        "//127.0.0.1:{port}/x",
        "http://other.test:{port}/",
    ],
)
async def test_a_redirect_does_not_reach_a_private_address(
    loopback: Callable[..., Any], url: str, tally: Callable[[str, int], None]
) -> None:
    secret = loopback(response(b"secret"))
    page = Page(loopback(redirect(url.format(port=secret.port))))

    with pytest.raises(ToolError, match="is not public"):
        await page.read()

    assert secret.connections == 0
    tally("redirects to private addresses", 1)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://pages.test/", "gopher://a/"])
async def test_a_redirect_to_another_scheme_is_refused(
    loopback: Callable[..., Any], url: str
) -> None:
    with pytest.raises(ToolError, match="only http:// and https://"):
        await Page(loopback(redirect(url))).read()


async def test_a_name_that_changes_its_address_is_looked_up_once_per_request(
    loopback: Callable[..., Any],
) -> None:
    """A rebinding name has a public address when it is checked and a private one afterwards."""
    secret = loopback(response(b"secret"))
    answers = [["0100::1"], ["127.0.0.1"]]
    looked_up: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return answers[min(len(looked_up), 2) - 1]

    tool = fetch.fetch_url(allow=["*"], resolve=resolve)

    for _ in range(2):
        with pytest.raises(ToolError, match="is not public"):
            await wait_for(tool.function(f"http://rebind.test:{secret.port}/"))

    assert looked_up == ["rebind.test", "rebind.test"]
    assert secret.connections == 0


async def test_the_connection_goes_to_the_checked_address(loopback: Callable[..., Any]) -> None:
    """The system's own lookup, which does not know the name, is not asked."""
    page = Page(loopback(response(b"here", "text/plain")))

    assert "here" in await page.read()
    assert page.looked_up == ["pages.test"]
    assert page.server.seen[0].headers["host"] == f"pages.test:{page.server.port}"


async def test_a_redirect_on_the_same_host_is_followed_and_looked_up_again(
    loopback: Callable[..., Any],
) -> None:
    page = Page(loopback(redirect("/next"), response(b"<p>there", "text/html")))

    assert "there" in await page.read()
    assert page.looked_up == ["pages.test", "pages.test"]
    assert page.server.seen[1].line == "GET /next HTTP/1.1"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_kind_of_redirect_is_followed(
    loopback: Callable[..., Any], status: int
) -> None:
    moved = redirect("/next", f"{status} Moved")

    assert "there" in await Page(loopback(moved, response(b"<p>there"))).read()


async def test_a_redirect_to_another_host_needs_a_call_of_its_own(
    loopback: Callable[..., Any],
) -> None:
    page = Page(loopback(redirect("https://elsewhere.test/x?secret=1")), allow=["pages.test"])

    with pytest.raises(ToolError, match="call fetch_url with that address"):
        await page.read()

    assert page.looked_up == ["pages.test"]


async def test_a_chain_of_redirects_ends(loopback: Callable[..., Any]) -> None:
    page = Page(loopback(redirect("/again")))

    with pytest.raises(ToolError, match="redirected more than 5 times"):
        await page.read()

    assert len(page.server.seen) == 6


@pytest.mark.parametrize("location", ["http://[", "http://a b/", "//", "http://u:p@pages.test/"])
async def test_a_broken_location_is_an_error(loopback: Callable[..., Any], location: str) -> None:
    with pytest.raises(ToolError):
        await Page(loopback(redirect(location))).read()


# Sizes and times


async def test_an_endless_body_is_cut_at_the_cap(loopback: Callable[..., Any]) -> None:
    def endless(connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    page = Page(loopback(endless), max_bytes=300_000)

    text = await page.read()

    assert "only the first 300000 bytes were read" in text.split("\n")[0]
    assert len(text) < fetch.PAGE + 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compression_bomb_is_cut_at_the_cap(
    loopback: Callable[..., Any], encoding: str
) -> None:
    plain = b"0" * 10_000_000
    bomb = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    page = Page(loopback(response(bomb, "text/plain", head=f"content-encoding: {encoding}\r\n")))

    text = await page.read()

    assert f"only the first {5 * 1024 * 1024} bytes were read" in text.split("\n")[0]


async def test_bombs_inside_bombs_are_not_unpacked_twice(loopback: Callable[..., Any]) -> None:
    bomb = gzip.compress(gzip.compress(b"0" * 10_000_000))
    page = Page(loopback(response(bomb, "text/plain", head="content-encoding: gzip, gzip\r\n")))

    with pytest.raises(ToolError, match="which the request does not accept"):
        await page.read()


async def test_slow_bytes_end_at_the_total_time(loopback: Callable[..., Any]) -> None:
    def slow(connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        connection.settimeout(0.01)
        while True:
            connection.sendall(b"x")
            try:
                if connection.recv(1) == b"":
                    return False
            except TimeoutError:
                continue

    with pytest.raises(ToolError, match=r"took longer than 0\.3"):
        await Page(loopback(slow), timeout=0.3).read()


async def test_a_slow_name_lookup_ends_at_the_total_time() -> None:
    released = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        released.wait(10)
        return ["127.0.0.1"]

    tool = fetch.fetch_url(allow=["*"], timeout=0.1, resolve=resolve)
    try:
        with pytest.raises(ToolError, match="took longer than"):
            await wait_for(tool.function("http://slow.test/"))
    finally:
        released.set()


async def test_all_redirects_share_one_time_limit(loopback: Callable[..., Any]) -> None:
    def late(connection: socket.socket) -> bool:
        connection.settimeout(0.2)
        try:
            connection.recv(1)
        except TimeoutError:
            connection.sendall(redirect("/again"))
        return True

    with pytest.raises(ToolError, match="took longer than"):
        await Page(loopback(late), timeout=0.5).read()


async def test_a_connection_that_breaks_off_is_an_error(loopback: Callable[..., Any]) -> None:
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-type: text/plain\r\n\r\nhalf"

    def half(connection: socket.socket) -> bool:
        connection.sendall(cut)
        return False

    with pytest.raises(ToolError, match="closed the connection"):
        await Page(loopback(half)).read()


@pytest.mark.parametrize(
    "status", ["404 Not Found", "500 Oops", "403 Forbidden", "304 Not Modified"]
)
async def test_an_error_status_is_an_error_with_its_number(
    loopback: Callable[..., Any], status: str
) -> None:
    with pytest.raises(ToolError, match=f"HTTP {status[:3]}"):
        await Page(loopback(response(b"", status=status))).read()


# Content


KINDS: list[tuple[str, bytes, str]] = [
    ("text/html", b"<h1>Rain</h1><p>dry", "# Rain\n\ndry"),
    ("text/html; charset=iso-8859-1", b"<p>caf\xe9 \x93q\x94", "café “q”"),
    ("text/html; charset=nonsense", "<p>café".encode(), "café"),
    ("text/html; charset=utf-7", "<p>café".encode(), "café"),
    ("text/html; charset=unicode_escape", rb"<p>\u0041", r"\u0041"),
    ("text/html", '<meta charset="shift_jis"><p>日本'.encode("shift_jis"), "日本"),
    ("text/html; charset=utf-8", b"<p>caf\xe9", "caf\ufffd"),
    ("text/html", b"<p>caf\xe9", "café"),
    ("text/html", "\ufeff<p>café".encode("utf-16"), "café"),
    ("application/xhtml+xml", b"<p>x</p>", "x"),
    ("", b"<!doctype html><p>bare", "bare"),
    ("", b"plain words", "plain words"),
    ("", b"<p>plain</p>", "<p>plain</p>"),
    ("text/plain", b"<html><p>plain</p>", "<html><p>plain</p>"),
    ("text/plain", b"a\r\nb\x1b[31m\xe2\x80\xaec", "a\nb[31mc"),
    ("application/json", b'{"a":[1,2]}', '{\n "a": [\n  1,\n  2\n ]\n}'),
    ("application/problem+json", b'{"a":1}', '{\n "a": 1\n}'),
    ("application/json", b'{"a":', '{"a":'),
    ("application/json", b"[" * 100_000, "[" * 2000),
    ("application/rss+xml", b"<rss><title>t</title></rss>", "<rss><title>t</title></rss>"),
    ("text/csv", b"a,b\n1,2\n", "a,b\n1,2"),
    ("text/markdown", b"# hi", "# hi"),
    ("image/svg+xml", b"<svg/>", "<svg/>"),
    ("application/javascript", b"let x", "let x"),
    ("text/html", b"<p>" + b"word " * 1000, "word word"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "expected"), KINDS)
async def test_content_becomes_text(
    loopback: Callable[..., Any], kind: str, body: bytes, expected: str
) -> None:
    page = Page(loopback(response(body, kind)))

    first, _, text = (await page.read()).partition("\n")

    assert first.startswith(f"[{page.url()}: ")
    assert expected in text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/zip", b"PK\x03\x04"),
        ("application/octet-stream", b"\x00\x01"),
        ("video/mp4", b"ftyp"),
        ("text/plain", b"a\x00b"),
        ("font/woff2", b"wOF2"),
    ],
)
async def test_content_that_is_not_text_is_refused(
    loopback: Callable[..., Any], kind: str, body: bytes
) -> None:
    with pytest.raises(ToolError, match="cannot be shown as text"):
        await Page(loopback(response(body, kind))).read()


async def test_a_picture_is_returned_as_a_part(loopback: Callable[..., Any]) -> None:
    data = b"\x89PNG\r\n\x1a\n" + b"\0" * 20

    text, image = await Page(loopback(response(data, "image/png"))).read()

    assert "image/png, 28 bytes" in text.text
    assert image == glue.Image(media_type="image/png", data=data)


async def test_a_long_page_is_read_in_pages_from_one_request(loopback: Callable[..., Any]) -> None:
    body = "\n".join(f"line {number}" for number in range(10_000)).encode()
    page = Page(loopback(response(body, "text/plain")))

    first = await page.read()
    offset = int(first.rpartition("offset ")[2].rstrip("]"))
    second = await page.read(offset=offset)

    assert 20_400 < len(first.rpartition("\n")[0]) <= 20_480
    assert second.startswith(f"line {offset - 2}\n")  # the first line of the text is its title
    assert len(page.server.seen) == 1


async def test_the_texts_of_the_last_four_addresses_are_kept(loopback: Callable[..., Any]) -> None:
    page = Page(loopback(response(b"x\n" * 10, "text/plain")))
    for number in range(5):
        await page.read(f"/{number}")

    for number in range(1, 5):
        await page.read(f"/{number}", offset=2)
    assert len(page.server.seen) == 5
    await page.read("/0", offset=2)
    assert len(page.server.seen) == 6
    await page.read("/0")  # the first page is always new
    assert len(page.server.seen) == 7


async def test_a_body_of_exactly_the_cap_is_whole(loopback: Callable[..., Any]) -> None:
    body = b"x" * 1000

    whole = await Page(loopback(response(body, "text/plain")), max_bytes=1000).read()
    cut = await Page(loopback(response(body + b"y", "text/plain")), max_bytes=1000).read()

    assert whole.endswith(": text/plain]\n" + "x" * 1000)
    assert cut.endswith("; only the first 1000 bytes were read]\n" + "x" * 1000)


@pytest.mark.parametrize(("status", "message"), [(300, "HTTP 300 .Multiple"), (599, "HTTP 599$")])
async def test_a_status_of_300_or_more_is_an_error(
    loopback: Callable[..., Any], status: int, message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await Page(loopback(response(b"x", status=f"{status} Odd"))).read()


async def test_a_status_below_300_is_an_answer(loopback: Callable[..., Any]) -> None:
    assert "fine" in await Page(loopback(response(b"fine", status="299 Odd"))).read()


async def test_a_redirect_to_the_www_name_is_followed(loopback: Callable[..., Any]) -> None:
    server = loopback(response(b"there", "text/plain"))
    start = loopback(redirect(f"http://www.pages.test:{server.port}/"))
    page = Page(start, allow=["pages.test"], private=["*pages.test"])

    assert "there" in await page.read()


async def test_a_name_without_an_address_is_not_found() -> None:
    def fail(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    def fail_without_reason(host: str, port: int) -> list[str]:
        raise UnicodeError("label too long")

    for resolve, message in (
        (lambda host, port: [], r"^a\.test was not found: the name has no IP address$"),
        (fail, r"^a\.test was not found: Name or service not known$"),
        (fail_without_reason, r"^a\.test was not found: the name is not known$"),
    ):
        tool = fetch.fetch_url(allow=["*"], resolve=resolve)
        with pytest.raises(ToolError, match=message):
            await wait_for(tool.function("http://a.test/"))


def shown(body: bytes, kind: str = "text/plain", *, most: int = 5_000_000, **fields: Any) -> Any:
    """Return what the model sees of a response."""
    given = {"charset": "", "is_cut": False, **fields}
    target = parse_url("http://a.test/")
    received = fetch._Response(target=target, media_type=kind, body=body, **given)
    return fetch._shown(received, most, None)


PNG = b"\x89PNG\r\n\x1a\n"


def test_a_picture_may_have_3900000_bytes() -> None:
    assert len(shown(PNG + b"\0" * (3_900_000 - 8))[1].data) == 3_900_000
    with pytest.raises(ToolError, match=r"picture is larger than 3900000 bytes$"):
        shown(PNG + b"\0" * (3_900_000 - 7))
    with pytest.raises(ToolError, match=r"picture is larger than 5000000 bytes|than 3900000"):
        shown(PNG, is_cut=True)
    with pytest.raises(ToolError, match=r"picture is larger than 1000 bytes$"):
        shown(PNG, is_cut=True, most=1000)


def test_a_pdf_that_is_cut_is_refused_and_another_one_is_read() -> None:
    with pytest.raises(ToolError, match=r"the PDF is larger than 1000 bytes$"):
        shown(pdf("Page"), is_cut=True, most=1000)

    text = shown(pdf("Page"), "application/octet-stream")
    assert text == "[http://a.test/: application/pdf]\n[page 1 of 1]\nPage"


def test_a_text_is_binary_if_a_nul_is_in_its_first_4096_bytes() -> None:
    with pytest.raises(ToolError, match=r"is binary, 4096 bytes"):
        shown(b"x" * 4095 + b"\0")

    assert "x" * 2000 in shown(b"x" * 4096 + b"\0")


def test_a_title_stands_before_the_text_of_a_page() -> None:
    assert shown(b"<title>Rain</title><p>dry", "text/html").endswith("]\nRain\n\ndry")
    assert shown(b"<title>Rain</title>", "").endswith("]\n<title>Rain</title>")
    assert shown(b"<p>dry", "text/html").endswith("]\ndry")


async def test_a_media_type_of_the_server_is_shown_in_100_characters(
    loopback: Callable[..., Any],
) -> None:
    with pytest.raises(ToolError, match=f" is a/{'b' * 98}, 1 bytes; it cannot"):
        await Page(loopback(response(b"x", "a/" + "b" * 200))).read()


def test_a_url_is_shown_in_200_characters() -> None:
    with pytest.raises(ToolError) as refused:
        parse_url("ftp://" + "a" * 300)

    assert str(refused.value).startswith(f"'ftp://{'a' * 193}…': only")


def test_a_long_line_is_cut_at_a_blank_in_its_second_half_or_after_2000_characters() -> None:
    def lines(text: str) -> list[str]:
        return list(fetch._wrapped(text))

    assert lines("x" * 2000) == ["x" * 2000]
    assert lines("x" * 2001) == ["x" * 2000, "x"]
    assert lines("x" * 1500 + " " + "y" * 1000) == ["x" * 1500, "y" * 1000]
    assert lines("x" * 1000 + " " + "y" * 1000) == ["x" * 1000, "y" * 1000]
    assert lines("x" * 999 + " " + "y" * 1500) == ["x" * 999 + " " + "y" * 1000, "y" * 500]
    assert lines("x" * 1999 + " yy") == ["x" * 1999, "yy"]


def test_the_first_two_million_characters_of_a_page_are_read() -> None:
    whole = shown(b"q" * 2_000_000, "text/html")
    cut = shown(b"q" * 2_000_001, "text/html")

    note = "[the page is longer; only its first 2000000 characters were read]"
    assert note not in whole
    assert cut.endswith(f"\n\n{note}")
    assert whole.count("q") == 2_000_000


def test_json_that_has_line_breaks_already_stays_as_it_is() -> None:
    few, many = (b"[1," + b"\n" * count + b"2]" for count in (9, 10))

    assert shown(few, "application/json").endswith("]\n[\n 1,\n 2\n]")
    assert shown(many, "application/json").endswith("[1," + "\n" * 10 + "2]")


def test_the_last_character_of_a_cut_text_may_be_incomplete() -> None:
    body = "café €".encode()

    assert shown(body[:-1], is_cut=True).endswith("\ncafé \ufffd")
    assert shown(body[:-1]).endswith("\ncafÃ© â‚")
    assert shown(b"caf\xe9 cut", is_cut=True).endswith("\ncafé cut")
    assert shown(b"cut \xf0\x9f\x98", is_cut=True).endswith("\ncut \ufffd")


def test_an_encoding_is_found_in_the_first_4096_bytes_of_a_page() -> None:
    meta, text = b'<meta charset="koi8-r">', "да".encode("koi8-r")

    assert "да" in shown(b" " * (4096 - len(meta)) + meta + text, "text/html")
    assert "да" not in shown(b" " * 4096 + meta + text, "text/html")
    assert "да" not in shown(meta + text, "text/plain")


# Permission


async def invoke(tool: glue.Tool[..., Any], url: str, permission: Any) -> glue.ToolResult:
    asked = call("fetch_url", {"url": url}, id="c1")
    return await tool.invoke(asked, glue.Context(call=asked, host=Host(permission=permission)))


async def test_a_host_that_is_not_allowed_asks_for_permission_with_the_address(
    loopback: Callable[..., Any],
) -> None:
    questions: list[str] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        questions.append(f"{request.action} {request.target}")
        return False

    page = Page(loopback(response(b"x")), allow=["docs.test", "*.example.test"])

    result = await invoke(page.tool, page.url("/a?b=c#d"), glue.Ask(ask))

    assert result.is_error
    assert questions == [f"fetch_url {page.url('/a?b=c')}"]
    assert page.server.connections == 0


@pytest.mark.parametrize("allow", [["pages.test"], ["*.test"], ["*"], ["PAGES.test"]])
async def test_an_allowed_host_needs_no_permission(
    loopback: Callable[..., Any], allow: list[str]
) -> None:
    page = Page(loopback(response(b"<p>fine")), allow=allow)

    result = await invoke(page.tool, page.url(), None)

    assert "fine" in result.text
    assert not result.is_error


@pytest.mark.parametrize("host", ["pages.test.evil.test", "evil.test", "pages-test", "xpages.test"])
async def test_a_similar_host_is_not_allowed(host: str) -> None:
    tool = fetch.fetch_url(allow=["pages.test"], resolve=lambda host, port: ["127.0.0.1"])

    result = await invoke(tool, f"http://{host}/", None)

    assert (
        result.text == f"permission denied: fetch_url http://{host}/: no permission policy is set"
    )


def test_a_rule_can_allow_addresses() -> None:
    rules = glue.Rules(allow=["fetch_url:https://docs.python.org/*"])

    rules.check([fetch.fetch_url()])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "pages.test",
        "javascript:alert(1)",
        "http://",
        "http:///x",
        "http://a\\@b/",
        "http://a b/",
        " http://a/",
        "http://a/\n",
        "http://a/\x00",
        "http://user@a/",
        "http://a:0/",
        "http://a:99999/",
        "http://[::1/",
        "http://a%2fb/",
        "http://-a/",
        "http://a/" + "x" * 5000,
    ],
)
def test_a_url_that_is_not_plain_is_refused(url: str) -> None:
    with pytest.raises(ToolError):
        parse_url(url)


def test_a_url_may_have_4096_characters() -> None:
    longest = "http://a/" + "x" * 4087

    assert parse_url(longest).url == longest
    with pytest.raises(ToolError, match=r"the url has 4097 characters; at most 4096 are allowed"):
        parse_url(longest + "x")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a:80/", "http://a"),
        ("https://a:443/", "https://a"),
        ("http://a:443/", "http://a:443"),
        ("https://a:80/", "https://a:80"),
        ("http://[2606:4700::1111]:8080/", "http://[2606:4700::1111]:8080"),
    ],
)
def test_only_the_usual_port_is_left_out(url: str, origin: str) -> None:
    assert parse_url(url).origin == origin


def test_a_url_is_normalised_for_rules() -> None:
    target = parse_url("HTTPS://Bücher.Example:443?a=b#c")

    assert target.url == "https://xn--bcher-kva.example/?a=b"
    assert (target.host, target.path) == ("xn--bcher-kva.example", "/?a=b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": "docs.python.org"}, "must be a list of hosts"),
        ({"allow": ["https://docs.python.org"]}, "must contain hosts such as"),
        ({"private": [1]}, "must contain hosts such as"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fetch.tools(**options)


def test_the_smallest_options_are_accepted() -> None:
    assert fetch.fetch_url(timeout=0.001, max_bytes=1).name == "fetch_url"
    assert fetch.web_search(max_uses=1).spec.settings == {"max_uses": 1}


def test_the_search_is_a_tool_of_its_own_kind() -> None:
    tool = fetch.web_search(allow=["Python.org"], max_uses=2)

    assert (tool.name, tool.spec.kind) == ("web_search", "web_search")
    assert tool.spec.settings == {"allow": ["python.org"], "max_uses": 2}


def test_the_search_takes_either_allowed_or_blocked_domains() -> None:
    with pytest.raises(ValueError, match="allow or block, not both"):
        fetch.web_search(allow=["a.org"], block=["b.org"])
    with pytest.raises(ValueError, match="max_uses must be at least 1"):
        fetch.web_search(max_uses=0)


async def test_a_call_of_the_search_is_an_error_for_the_model() -> None:
    asked = call("web_search", {}, id="c1")

    result = await fetch.web_search().invoke(asked, glue.Context(call=asked))

    assert result.is_error
    assert "only the provider can run it" in result.text


def test_texts_that_a_model_sees(snapshot: SnapshotAssertion) -> None:
    texts = [
        f"{tool.name}\n{tool.spec.description}\n{json.dumps(tool.spec.parameters, indent=1)}"
        for tool in fetch.tools()
    ]

    assert "\n\n".join(texts) == snapshot
