"""Tests of the search that the worker of grep runs."""

from __future__ import annotations

import contextlib
import io
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.trees import Tools, write_tree

from glue.errors import ToolError
from glue.tasks import StopFlag
from glue.tools.fs import Blocklist, Root
from glue.tools.fs.functions import functions
from glue.tools.fs.grep_process import grep as run_grep
from glue.tools.fs.search import read_blocks, read_texts, search


async def test_hits_have_paths_line_numbers_and_context(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo needle\r\nthree\r\nfour\r\nneedle\r\n")
    write_tree(tmp_path, "sub/b.txt")

    plain = await tools["grep"]("needle$", context=1, path="a.txt")
    found = await tools["grep"]("needle", glob="sub/**")
    dotted = await tools["grep"]("needle", glob="./sub/*.txt")

    assert plain.split("\n") == [
        "a.txt-1- one",
        "a.txt:2: two needle",
        "a.txt-3- three",
        "a.txt-4- four",
        "a.txt:5: needle",
    ]
    assert found == dotted == "sub/b.txt:1: needle in sub/b.txt"


async def test_an_empty_file_has_no_lines_and_adjacent_contexts_are_joined(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a\n\nb\nc\nd\ne\n\n")

    found = await tools["grep"]("^$", context=1)
    first = await tools["grep"]("[abe]", context=1, limit=2)

    assert found.split("\n") == [
        "text-1- a",
        "text:2: ",
        "text-3- b",
        "--",
        "text-6- e",
        "text:7: ",
    ]
    assert first.split("\n")[:4] == ["text:1: a", "text-2- ", "text:3: b", "text-4- c"]


async def test_files_that_are_not_text_are_skipped(tools: Tools, tmp_path: Path) -> None:
    write_tree(tmp_path, "a", "ignored")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"needle\0")
    (tmp_path / "latin").write_bytes(b"needle \xe9\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "link").symlink_to("a")

    found = await tools["grep"]("needle")

    assert found.split("\n") == ["a:1: needle in a", "latin:1: needle é"]


def test_a_link_is_not_opened(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")

    assert list(read_texts(root.fd, "file", "file", b"")) == ["x"]
    with pytest.raises(OSError, match="symbolic link"):
        read_texts(root.fd, "link", "link", b"")


async def test_line_numbers_are_right_in_large_files(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "large").write_text(
        "".join(f"line {n}\n" for n in range(300_000)) + "needle\nend\n"
    )

    assert await tools["grep"]("needle") == "large:300001: needle"
    assert (
        await tools["grep"]("nee[d]le$", context=1)
        == "large-300000- line 299999\nlarge:300001: needle\nlarge-300002- end"
    )


async def test_a_fixed_pattern_is_plain_text(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("f(x)\nfx\nF(X)\n")

    assert await tools["grep"]("f(x)", fixed=True) == "a:1: f(x)"
    assert await tools["grep"]("(x", fixed=True) == "a:1: f(x)"
    assert await tools["grep"]("f(x)", fixed=True, ignore_case=True) == "a:1: f(x)\na:3: F(X)"
    assert await tools["grep"]("f(x)") == "a:2: fx"


async def test_the_number_of_hits_is_limited_with_a_note(tools: Tools, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("needle\nneedle\n")
    note = "hits are shown; narrow the pattern or raise the limit]"

    assert await tools["grep"]("needle", limit=1) == f"a:1: needle\n[only the first 1 {note}"
    assert (await tools["grep"]("needle", limit=3)).split("\n") == [
        "a:1: needle",
        "a:2: needle",
        "b:1: needle",
        f"[only the first 3 {note}",
    ]
    assert "[" not in await tools["grep"]("needle", limit=5)


async def test_a_single_file_that_cannot_be_searched_is_an_error(
    tools: Tools, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ToolError, match="'pipe' is a FIFO, not a regular file"):
        await tools["grep"]("x", "pipe")
    assert await tools["grep"]("x", ".") == "no match"


async def test_files_on_the_block_list_are_counted_and_not_searched(
    root: Root, tmp_path: Path
) -> None:
    write_tree(tmp_path, "a", ".env", "sub/.env")
    grep = functions(root, Blocklist())["grep"]

    assert await grep("needle") == (
        "a:1: needle in a\n[2 files are on the block list and were not searched]"
    )


async def test_a_line_of_500_characters_is_shown_in_full(tools: Tools, tmp_path: Path) -> None:
    lines = {
        "fits": "needle" + "x" * 494,
        "long": "needle" + "x" * 495,
        "late": "y" * 200 + "needle" + "x" * 494,
        "last": "y" * 1000 + "needle",
    }
    for name, line in lines.items():
        (tmp_path / name).write_text(line)

    found = dict(line.split(":1: ") for line in (await tools["grep"]("needle")).split("\n"))

    assert found["fits"] == lines["fits"]
    assert found["long"] == lines["long"][:500] + "..."
    assert found["late"] == "..." + "y" * 125 + "needle" + "x" * 369 + "..."
    assert found["last"] == "..." + "y" * 125 + "needle"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_long_line_beside_a_hit_is_cut_to_its_beginning(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("needle\n" + "x" * 499 + "yz\n")

    shown = await tools["grep"]("needle", context=1)

    assert shown == "a:1: needle\na-2- " + "x" * 499 + "y..."


async def test_a_long_pattern_is_refused(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 4096)

    assert (await tools["grep"]("x" * 4096)).startswith("a:1: ")
    with pytest.raises(ToolError, match="at most 4096 characters, not 4097"):
        await tools["grep"]("x" * 4097)


async def test_a_blocked_or_missing_path_is_not_searched(root: Root, tmp_path: Path) -> None:
    write_tree(tmp_path, ".env")
    grep = functions(root, Blocklist())["grep"]

    with pytest.raises(ToolError, match=r"\.env is on the block list"):
        await grep("needle", ".env")
    with pytest.raises(ToolError, match="'none': no such file or directory"):
        await grep("needle", "none")


async def test_a_long_line_is_cut_around_its_hit(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "minified").write_text("x" * 3_000_000 + "needle" + "y" * 1000)

    found = await tools["grep"]("needle")

    assert "needle" in found
    assert len(found) < 700


def children() -> list[str]:
    """Return the ids of the child processes of this process."""
    files = Path("/proc/self/task").glob("*/children")
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # the thread has ended
            found += file.read_text().split()
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_the_worker_has_little_memory_and_writes_no_core_dump(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("a" * 40 + "b\n")
    query: dict[str, object] = {"pattern": "(a+)+$", "path": ".", "glob": "", "limit": 9}
    query |= {"blocked": None, **dict.fromkeys(("ignore_case", "fixed", "ignored", "context"), 0)}
    stop, limits = StopFlag(), dict[str, list[str]]()
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))

    try:
        with Root(tmp_path) as root, ThreadPoolExecutor(1) as pool:
            search = pool.submit(run_grep, root, query, stop, 30.0)
            # The worker limits its memory first, so both limits are set soon after it has started.
            while limits.get("Max core file size") != ["0", "0"] and not search.done():
                for pid in children():
                    try:
                        text = Path(f"/proc/{pid}/limits").read_text()
                    except OSError:  # the process has ended
                        continue
                    limits = {line[:26].strip(): line[26:].split()[:2] for line in text.split("\n")}
            stop.set()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)

    memory = str(400 * 1024 * 1024)
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max address space"] == [memory, memory]


async def test_100_hits_are_shown_by_default(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("needle\n" * 101)

    hits = (await tools["grep"]("needle")).split("\n")

    note = "[only the first 100 hits are shown; narrow the pattern or raise the limit]"
    assert hits[99:] == ["file:100: needle", note]


async def test_up_to_1000_hits_and_10_lines_around_a_hit_are_shown(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "many").write_text("needle\n" * 1001)
    (tmp_path / "few").write_text("a\n" * 20 + "needle\n" + "b\n" * 20)

    async def count(path: str, **options: int) -> int:
        lines = (await tools["grep"]("needle", path, **options)).split("\n")
        return sum(line.startswith(path) for line in lines)

    assert await count("many", limit=5000) == 1000
    assert await count("many", limit=0) == 1
    assert await count("few") == 1
    assert await count("few", context=-1) == 1
    assert await count("few", context=1) == 3
    assert await count("few", context=50) == 21


@pytest.mark.skipif(not os.path.isdir("/proc/self/attr"), reason="needs /proc")
async def test_files_that_cannot_be_read_are_counted() -> None:
    count = sum(len(names) for _, _, names in os.walk("/proc/self/attr"))

    with Root("/proc/self/attr") as root:
        note = f"[{count} entries were skipped: unreadable or nested too deep]"
        assert await functions(root)["grep"]("needle", glob="*") == f"no match\n{note}"


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_search_stops_when_its_time_is_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], seconds: float
) -> None:
    write_tree(tmp_path, "a")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    query = {"pattern": "needle", "path": ".", "glob": "", "limit": 9, "blocked": None}
    query |= dict.fromkeys(("ignore_case", "fixed", "ignored", "context"), 0)

    notes = search({**query, "fd": fd, "spellings": [], "seconds": seconds})

    assert notes == ([] if seconds else ["the search stopped early (time is up): narrow the path"])
    assert capfd.readouterr().out == ("a:1: needle in a\n" if seconds else "")


async def test_a_pattern_sees_each_line_alone_and_its_case(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("Needle\nneedle\nneedles\n")

    assert await tools["grep"](r"\Aneedle\Z") == "a:2: needle"
    assert await tools["grep"]("^needle$") == "a:2: needle"
    assert await tools["grep"]("(?i)^needle$") == "a:1: Needle\na:2: needle"
    assert await tools["grep"](r"e\Bs") == "a:3: needles"


def test_a_block_of_a_large_file_without_the_literal_is_yielded_as_empty_lines() -> None:
    rows = "x" * 99 + "\n"
    text = rows * 20_000 + "needle\n"

    blocks = list(read_blocks(io.BufferedReader(io.BytesIO(text.encode())), b"needle"))

    assert "".join(blocks).count("\n") == 20_001
    assert set(blocks[0]) == {"\n"}
    assert "needle\n" in blocks[-1]
