"""Tests of the file tools as a model calls them."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.documents import pdf, png
from fakes.trees import Tools, write_tree

import glue
from glue.errors import GlueError, ToolError, UnsafePath
from glue.function.spool import current_spool
from glue.testing import call
from glue.tools import fs
from glue.tools.documents import MAX_PICTURE
from glue.tools.fs import Blocklist, Root
from glue.tools.fs import functions as ready

NAMES = [
    "plain.txt",
    "with space.txt",
    " leading and trailing ",
    "naïve-Ünïcödé.txt",
    "日本語.txt",
    "emoji-🦊.txt",
    "..name",
    "...",
    "name..",
    "a..b",
    "-rf",
    "--help",
    "~",
    "~user",
    "$HOME",
    "%2e%2e",
    "back\\slash",
    "quote'\"",
    "semi;colon",
    "star*.txt",
    "[brackets]",
    "{braces}",
    "tab\there",
    "line\nbreak",
    ".env",
    ".gitignore",
    ".hidden",
    "e\u0301-decomposed",
    "é-composed",
    "\u202eright-to-left",
    "x" * 255,
    "a/b/c/d/e/f/g.txt",
    "deep/" * 60 + "file",
    "COM1",
    "con.txt",
    "spool:notes.txt",
    ".git/config",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_an_unusual_name_is_read(tools: Tools, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("hello\n")

    assert tools["read_file"](name) == "hello\n"
    assert tools["read_file"]("./" + name) == "hello\n"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(".git/")])
def test_a_file_with_an_unusual_name_is_written_and_edited(
    tools: Tools, tmp_path: Path, name: str
) -> None:
    tools["write_file"](name, "one two\n")
    tools["edit_file"](name, "two", "three")

    assert (tmp_path / name).read_text() == "one three\n"
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


def test_the_stored_output_of_another_tool_is_read(tools: Tools) -> None:
    address = current_spool.get().write("all of it\n")

    assert tools["read_file"](address) == "all of it\n"


def test_a_listing_shows_the_kind_of_each_entry(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd\nname").write_text("")

    assert tools["list_dir"]().split("\n") == [
        "file  5 bytes",
        "folder/",
        "link@",
        '"odd\\nname"  0 bytes',
        "pipe  (FIFO)",
    ]


def test_a_listing_of_long_names_is_continued_after_the_last_shown_entry(
    tools: Tools, tmp_path: Path
) -> None:
    names = [f"{number:04}{'n' * 230}" for number in range(900)]
    for name in names:
        (tmp_path / name).touch()

    *shown, note = tools["list_dir"]().split("\n")
    *rest, last = tools["list_dir"](offset=len(shown) + 1).split("\n")

    assert note == f"[entries 1-{len(shown)} of 900; continue with offset {len(shown) + 1}]"
    assert [line.split()[0] for line in (*shown, *rest, last)] == names


def test_a_long_listing_is_paged(tools: Tools, tmp_path: Path) -> None:
    for number in range(1005):
        (tmp_path / f"{number:04}").touch()

    first = tools["list_dir"]()
    second = tools["list_dir"](offset=1001)

    assert first.endswith("[entries 1-1000 of 1005; continue with offset 1001]")
    assert [line[:4] for line in second.split("\n")] == ["1000", "1001", "1002", "1003", "1004"]


def test_a_name_that_is_not_utf8_is_listed_and_can_be_read(tools: Tools, tmp_path: Path) -> None:
    try:
        os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system only takes UTF-8")

    assert tools["list_dir"]() == '"caf\\udce9"  0 bytes'
    assert tools["read_file"]("caf\udce9") == "[the file is empty]"
    assert tools["find_files"]("caf*") == '"caf\\udce9"'


async def test_patterns_may_be_absolute_paths_below_the_root(tools: Tools, tmp_path: Path) -> None:
    write_tree(tmp_path, "top.py", "src/a.py", "src/deep/b.py")

    for top in ("", str(tmp_path)):
        assert tools["find_files"](f"{top}/*.py") == "top.py"
        assert tools["find_files"](f"{top}/src/**/*.py") == "src/a.py\nsrc/deep/b.py"
        assert (await tools["grep"]("needle", glob=f"{top}/src/*.py")).startswith("src/a.py:1: ")
    assert tools["find_files"]("/elsewhere/*.py") == "no file matches"


def test_write_file_refuses_a_lone_surrogate(tools: Tools, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="half a character"):
        tools["write_file"]("file", "\ud800")

    assert not (tmp_path / "file").exists()


def test_only_the_writing_tools_need_permission(tmp_path: Path) -> None:
    reading = {tool.name: tool.needs_permission for tool in fs.tools(tmp_path)}
    writing = {tool.name: tool.needs_permission for tool in fs.tools(tmp_path, write=True)}

    assert reading == {"read_file": False, "list_dir": False, "find_files": False, "grep": False}
    assert {name for name, needs in writing.items() if needs} == {"write_file", "edit_file"}


def test_tools_declare_whether_they_only_read_and_their_kind(tmp_path: Path) -> None:
    made = {tool.name: tool for tool in fs.tools(tmp_path, write=True)}

    assert {name: (tool.read_only, tool.kind, tool.alone) for name, tool in made.items()} == {
        "read_file": (True, "read", False),
        "list_dir": (True, "read", False),
        "find_files": (True, "search", False),
        "grep": (True, "search", False),
        "write_file": (False, "edit", True),
        "edit_file": (False, "edit", True),
    }
    assert {tool.root for tool in made.values()} == {os.path.realpath(tmp_path)}
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with Root.adopt(fd) as root:  # the path of a descriptor is not known
        assert {tool.root for tool in fs.tools(root)} == {""}


def test_a_question_about_a_file_that_is_too_large_shows_only_the_new_text(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"old\n" * (2 * 1024 * 1024) + b"x")
    (tmp_path / "fits").write_bytes(b"old\n" + b"x" * (8 * 1024 * 1024 - 4))
    target = fs.write_file(tmp_path).target
    assert callable(target)

    large = target({"path": "large", "content": "new\n"})
    fits = target({"path": "fits", "content": "new"})

    assert large.preview.split("\n")[1:] == ["+new"]
    assert fits.preview.split("\n")[1] == "-old"


def test_every_tool_and_parameter_is_described(tmp_path: Path) -> None:
    for tool in fs.tools(tmp_path, write=True):
        assert tool.spec.description
        assert all("description" in each for each in tool.spec.parameters["properties"].values())


def test_tools_raise_an_error_if_the_root_is_not_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a directory"):
        fs.tools(tmp_path / "missing")


def test_the_block_list_applies_to_every_tool(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("needle\n")
    (tmp_path / "innocent").symlink_to(".env")
    tools = ready.functions(Root(tmp_path), Blocklist())

    for path in (".env", "innocent", "./.env"):
        with pytest.raises(GlueError, match="block list"):
            tools["read_file"](path)
        with pytest.raises(GlueError, match=r"block list|link"):
            tools["write_file"](path, "x")
        with pytest.raises(GlueError, match="block list"):
            anyio.run(tools["grep"], "needle", path)
    assert "no match" in anyio.run(tools["grep"], "needle")
    assert (tmp_path / ".env").read_text() == "needle\n"


def test_absolute_paths_below_the_root_are_accepted(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("hello\n")

    assert tools["read_file"](f"{tmp_path}/sub/a.txt") == "hello\n"
    assert tools["list_dir"](str(tmp_path)) == "sub/"
    assert "replaced" in tools["write_file"](f"{tmp_path}/sub/a.txt", "new\n")
    assert anyio.run(lambda: tools["grep"]("new", path=f"{tmp_path}/sub")) == "sub/a.txt:1: new"
    for path in ("/etc/passwd", f"{tmp_path}x/a", f"{tmp_path}/../a", f"{tmp_path}/sub/../../a"):
        with pytest.raises(GlueError):
            tools["read_file"](path)


def test_the_error_for_a_missing_file_suggests_similar_names(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/deep/settings.py").touch()
    (tmp_path / "src/README.md").touch()

    with pytest.raises(ToolError, match=r"did you mean src/deep/settings.py\?$"):
        tools["read_file"]("settings.py")
    with pytest.raises(ToolError, match=r"did you mean src/deep/settings.py"):
        tools["edit_file"]("src/deep/setings.py", "a", "b")
    with pytest.raises(ToolError, match=r"did you mean src/README.md"):
        tools["read_file"]("src/readme.md")
    with pytest.raises(ToolError, match=r"no such file or directory$"):
        tools["read_file"]("nothing-like-it.txt")


def test_tools_report_that_a_file_changed_since_it_was_read(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    tools["read_file"]("a")
    (tmp_path / "a").write_text("one\ntwo\nthree, by another\n")

    with pytest.raises(ToolError, match="changed since it was read"):
        tools["write_file"]("a", "mine\n")
    assert "the file had changed since it was read" in tools["edit_file"]("a", "two", "2")
    assert "changed" not in tools["edit_file"]("./a", "one", "1")
    assert "replaced" in tools["write_file"]("a", "mine\n")


def test_several_edits_of_one_call_are_all_made_or_none(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")

    said = tools["edit_file"](
        "a", edits=[{"old": "one", "new": "1"}, {"old": "three\n", "new": ""}]
    )
    assert (tmp_path / "a").read_text() == "1\ntwo\n"
    assert [line[7:] for line in said.split("\n")[1:]] == ["-one", "+1", " two", "-three"]
    with pytest.raises(ToolError, match="no edit was made"):
        tools["edit_file"]("a", edits=[{"old": "two", "new": "2"}, {"old": "missing", "new": ""}])
    assert (tmp_path / "a").read_text() == "1\ntwo\n"


@pytest.mark.parametrize("ignored", [{"new": "x"}, {"replace_all": True}])
def test_new_without_old_is_refused_beside_edits(
    tools: Tools, tmp_path: Path, ignored: dict[str, Any]
) -> None:
    (tmp_path / "a").write_text("one\n")

    with pytest.raises(ToolError, match="belong to old"):
        tools["edit_file"]("a", edits=[{"old": "one", "new": "1"}], **ignored)

    assert (tmp_path / "a").read_text() == "one\n"


def test_write_file_keeps_the_encoding_or_refuses_the_text(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("café\n".encode("latin-1"))

    assert tools["read_file"]("a") == "café\n"
    assert anyio.run(lambda: tools["grep"]("café")) == "a:1: café"
    tools["write_file"]("a", "thé\n")
    assert (tmp_path / "a").read_bytes() == "thé\n".encode("latin-1")
    with pytest.raises(ToolError, match="not in UTF-8"):
        tools["write_file"]("a", "☕\n")
    assert (tmp_path / "a").read_bytes() == "thé\n".encode("latin-1")


def test_write_file_keeps_utf16_and_turns_a_binary_file_into_text(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "wide").write_bytes(codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be"))
    (tmp_path / "binary").write_bytes(b"\0\1\2")

    tools["write_file"]("wide", "☕\n")
    tools["write_file"]("binary", "☕\n")

    assert (tmp_path / "wide").read_bytes() == codecs.BOM_UTF16_BE + "☕\n".encode("utf-16-be")
    assert (tmp_path / "binary").read_text() == "☕\n"


def test_write_file_refuses_a_placeholder(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")

    with pytest.raises(ToolError, match="placeholder"):
        tools["write_file"]("a.py", "one\n# ... rest of the code unchanged\n")
    assert (tmp_path / "a.py").read_text() == "one\ntwo\n"


# Pictures and PDF documents


async def test_a_picture_is_shown_as_a_part_after_a_line_about_it(tmp_path: Path) -> None:
    data = png(6, 4)
    (tmp_path / "dot.png").write_bytes(data)

    result = await invoked(tmp_path, path="dot.png")

    assert result.content == (
        glue.Text(text=f"[dot.png: image/png, {len(data)} bytes, 6 x 4 pixels]"),
        glue.Image(media_type="image/png", data=data),
    )


async def test_a_picture_that_is_too_large_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "big.gif").write_bytes(b"GIF89a\x01\x00\x01\x00" + b"\0" * MAX_PICTURE)

    result = await invoked(tmp_path, path="big.gif")

    assert "too large to show" in result.text
    assert len(result.content) == 1


async def test_pictures_are_shown_by_default(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(6, 4))

    for shown in (tools["read_file"]("a.png"), fs.tools(tmp_path)[0]("a.png")):
        assert [type(part) for part in shown] == [glue.Text, glue.Image]


async def test_pictures_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(png(6, 4))

    result = await invoked(tmp_path, pictures=False, path="dot.png")

    assert result.text.startswith("[binary file of")


async def test_a_pdf_is_read_as_text_in_pages(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("First page", "Second page"))

    whole = await invoked(tmp_path, path="a.pdf")
    part = await invoked(tmp_path, path="a.pdf", offset=4, limit=1, numbers=True)

    assert whole.text == "[page 1 of 2]\nFirst page\n\n[page 2 of 2]\nSecond page"
    assert part.text.split("\n")[0] == "     4| [page 2 of 2]"


async def test_the_pages_of_a_pdf_that_changed_are_read_again(tmp_path: Path) -> None:
    read = ready.tools(tmp_path)[0]
    (tmp_path / "a.pdf").write_bytes(pdf("before"))
    before = await call_of(read, path="a.pdf")
    (tmp_path / "a.pdf").write_bytes(pdf("after"))

    after = await call_of(read, path="a.pdf")

    assert ("before" in before.text, "after" in after.text) == (True, True)


async def test_a_pdf_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    with open(tmp_path / "a.pdf", "wb") as file:
        file.write(b"%PDF-1.7")
        file.truncate(32 * 1024 * 1024 + 9)

    result = await invoked(tmp_path, path="a.pdf")

    assert result.is_error
    assert result.text.endswith("at most 33554432 can be read")


async def test_a_damaged_pdf_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 nonsense")

    result = await invoked(tmp_path, path="a.pdf")

    assert result.is_error
    assert result.text.startswith("the PDF cannot be read: ")
    assert "\n" not in result.text


async def invoked(root: Path, *, pictures: bool = True, **arguments: Any) -> glue.ToolResult:
    return await call_of(ready.tools(root, pictures=pictures)[0], **arguments)


async def call_of(tool: glue.Tool[..., Any], **arguments: Any) -> glue.ToolResult:
    asked = call("read_file", arguments, id="c1")
    return await tool.invoke(asked, glue.Context(call=asked))


def test_a_link_inside_the_root_is_edited_through(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("one\n")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    tools = {tool.name: tool for tool in fs.tools(tmp_path, write=True)}
    target = tools["edit_file"].target
    assert callable(target)

    shown = target({"path": "CLAUDE.md", "old": "one", "new": "two"})
    tools["edit_file"]("CLAUDE.md", "one", "two")
    tools["write_file"]("CLAUDE.md", "three\n")

    assert (shown.text, shown.paths) == ("CLAUDE.md -> AGENTS.md", ("CLAUDE.md", "AGENTS.md"))
    assert (tmp_path / "AGENTS.md").read_text() == "three\n"
    assert (tmp_path / "CLAUDE.md").is_symlink()


def test_a_link_out_of_the_root_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text("before")
    (tmp_path / "root/link").symlink_to("../outside")
    (tmp_path / "root/absolute").symlink_to(tmp_path / "outside")
    tools = {tool.name: tool for tool in fs.tools(tmp_path / "root", write=True)}

    for name in ("link", "absolute"):
        with pytest.raises(UnsafePath, match="leads outside the root"):
            tools["write_file"](name, "x")

    assert (tmp_path / "outside").read_text() == "before"


def test_extended_attributes_survive_an_edit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one\n")
    try:
        os.setxattr(file, "user.origin", b"https://example.org")
    except (AttributeError, OSError) as error:
        pytest.skip(f"this file system has no extended attributes: {error}")
    edit = next(tool for tool in fs.tools(tmp_path, write=True) if tool.name == "edit_file")

    edit("file", "one", "two")

    assert file.read_text() == "two\n"
    assert os.getxattr(file, "user.origin") == b"https://example.org"


def writer(root: Path, **options: Any) -> tuple[Any, Any]:
    """Return the tool write_file, and the function that a permission question calls first."""
    tool = fs.write_file(root, **options)
    assert callable(tool.target)
    return tool, tool.target


def test_a_file_that_changed_after_the_question_is_not_written(tmp_path: Path) -> None:
    write, ask = writer(tmp_path)
    for name, before in (("file", "shown"), ("empty", "")):
        (tmp_path / name).write_text(before)

        ask({"path": name, "content": "new"})
        (tmp_path / name).write_text("by another")
        with pytest.raises(ToolError, match=f"'{name}' changed while permission was asked"):
            write(name, "new")

        assert (tmp_path / name).read_text() == "by another"


def test_a_file_that_was_created_after_the_question_is_not_written(tmp_path: Path) -> None:
    write, ask = writer(tmp_path)

    ask({"path": "file", "content": "new"})
    (tmp_path / "file").write_text("by another")
    with pytest.raises(ToolError, match="changed while permission was asked"):
        write("file", "new")

    assert (tmp_path / "file").read_text() == "by another"


def test_a_path_that_leads_to_another_file_after_the_question_is_not_written(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("same")
    (tmp_path / "link").symlink_to("one")
    write, ask = writer(tmp_path)

    ask({"path": "link/file", "content": "new"})
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("two")
    with pytest.raises(UnsafePath, match="'link/file' no longer leads to the permitted file"):
        write("link/file", "new")

    assert (tmp_path / "two/file").read_text() == "same"


def test_a_question_about_another_pipe_of_the_same_name_is_another_question(
    tmp_path: Path,
) -> None:
    _, ask = writer(tmp_path)

    os.mkfifo(tmp_path / "pipe")
    first, same = (ask({"path": "pipe", "content": "x"}).mark for _ in range(2))
    (tmp_path / "pipe").unlink()
    (tmp_path / "other").touch()
    os.mkfifo(tmp_path / "pipe")

    assert first == same != ask({"path": "pipe", "content": "x"}).mark


def test_a_question_counts_for_one_write(tmp_path: Path) -> None:
    write, ask = writer(tmp_path, blocklist=Blocklist())
    ask({"path": "file", "content": "one"})
    write("file", "one")

    (tmp_path / "file").write_text("by another")
    (tmp_path / "secrets.json").write_text("{}")

    assert write("new", "a\nb") == "created new: 3 bytes, 2 lines"
    with pytest.raises(UnsafePath, match="on the block list"):
        write("secrets.json", "x")
    ask({"path": "secrets.json", "content": "x"})
    with pytest.raises(UnsafePath, match="on the block list"):
        write("secrets.json", "x")
    assert (tmp_path / "secrets.json").read_text() == "{}"


def test_any_of_the_last_eight_questions_about_a_file_may_be_answered(tmp_path: Path) -> None:
    def write_after(questions: int) -> str:
        write, ask = writer(tmp_path)
        (tmp_path / "file").write_text("first")
        ask({"path": "file", "content": "new"})
        for number in range(questions):
            (tmp_path / "file").write_text(f"later {number}")
            ask({"path": "file", "content": "new"})
        (tmp_path / "file").write_text("first")  # the content of the first question again
        return str(write("file", "new"))

    assert write_after(7) == "replaced file: 3 bytes, 1 line"
    with pytest.raises(ToolError, match="changed while permission was asked"):
        write_after(8)


def test_a_question_about_an_edit_shows_the_diff_or_only_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\ntwo\n")
    ask = fs.edit_file(tmp_path).target
    assert callable(ask)

    shown = ask({"path": "file", "old": "two", "new": "2"})
    several = ask({"path": "file", "edits": [{"old": "one", "new": "1"}]})

    assert shown.preview.split("\n")[1:] == [" one", "-two", "+2", " "]
    assert several.preview.split("\n")[1:] == ["-one", "+1", " two", " "]
    assert ask({"path": "file", "old": "three", "new": "3"}).preview == ""


def test_the_lines_around_an_edit_of_a_file_with_two_names_are_hidden(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("secret\none\n")
    os.link(tmp_path / "file", tmp_path / "other")

    assert tools["edit_file"]("file", "one", "1") == (
        "edited file: 1 replacement\n"
        "[the file has other names (hard links), so its lines are not shown]"
    )
    assert "secret" in tools["edit_file"]("file", "1", "2")  # the edit made a file of its own


def test_a_file_of_up_to_8_mib_is_edited(tools: Tools, tmp_path: Path) -> None:
    limit = 8 * 1024 * 1024
    (tmp_path / "fits").write_bytes(b"old\n" + b"x" * (limit - 4))
    (tmp_path / "large").write_bytes(b"old\n" + b"x" * (limit - 3))

    assert "1 replacement" in tools["edit_file"]("fits", "old", "new")
    with pytest.raises(ToolError, match=f"has {limit + 1} bytes; edit_file takes at most {limit}"):
        tools["edit_file"]("large", "old", "new")


def test_the_number_of_replacements_is_reported(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\na\nb \n")

    every = tools["edit_file"]("file", "a", "c", replace_all=True)
    loose = tools["edit_file"]("file", "b\n", "d\n")

    assert every.split("\n")[0] == "edited file: 2 replacements"
    assert loose.split("\n")[0] == (
        "edited file: 1 replacement, quoted exactly except for trailing whitespace"
    )


def test_up_to_200_paths_are_found_by_default_and_1000_if_asked(
    tools: Tools, tmp_path: Path
) -> None:
    for number in range(1001):
        (tmp_path / f"{number:04}").touch()

    def found(**options: Any) -> tuple[int, str]:
        lines = tools["find_files"]("*", **options).split("\n")
        return len(lines) - lines[-1].startswith("["), lines[-1]

    note = "[only the first {} files are shown; narrow the pattern or the path]"
    assert found() == (200, note.format(200))
    assert found(limit=0) == (1, note.format(1))
    assert found(limit=5000) == (1000, note.format(1000))
    (tmp_path / "0000").unlink()
    assert found(limit=5000) == (1000, "1000")


def test_no_folder_is_entered_after_the_last_shown_path(tools: Tools, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    for name in ("y/", "z/"):
        (tmp_path / (name * 70)).mkdir(parents=True)

    note = "[only the first 1 files are shown; narrow the pattern or the path]"
    assert tools["find_files"]("[ab]", limit=1) == f"a\n{note}"
    assert tools["find_files"]("[ab]") == "a\nb\n[2 folders could not be entered]"


def test_a_search_of_names_that_stops_early_says_so(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    monkeypatch.setattr("glue.tools.fs.functions.SECONDS", -1.0)

    note = "[the search stopped early (time is up): narrow the path]"
    assert tools["find_files"]("*") == f"no file matches\n{note}"


def test_up_to_three_similar_paths_are_suggested(tools: Tools, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "deep/d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "settings.py").touch()

    with pytest.raises(ToolError) as caught:
        tools["read_file"]("deep/settings.py")

    suggested = str(caught.value).partition("did you mean ")[2].rstrip("?").split(" or ")
    assert len(suggested) == 3
    assert suggested[0] == "deep/d/settings.py"


def test_a_change_is_noticed_until_1001_other_files_were_read(tools: Tools, tmp_path: Path) -> None:
    for name in ("file", *map(str, range(1001))):
        (tmp_path / name).touch()
    for name in ("file", *map(str, range(1000))):
        tools["read_file"](name)
    (tmp_path / "file").write_text("by another\n")

    with pytest.raises(ToolError, match="changed since it was read"):
        tools["write_file"]("file", "two\n")
    tools["read_file"]("1000")

    assert "replaced" in tools["write_file"]("file", "two\n")


def test_a_quote_must_match_one_place_unless_all_are_meant(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\na\n")

    with pytest.raises(ToolError, match="`old` matches 2 places"):
        tools["edit_file"]("file", "a", "b")
    assert "2 replacements" in tools["edit_file"]("file", "a", "b", True)


def test_a_picture_of_the_largest_size_is_shown(tools: Tools, tmp_path: Path) -> None:
    for name, size in (("fits.png", MAX_PICTURE), ("large.png", MAX_PICTURE + 1)):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
        os.truncate(tmp_path / name, size)

    assert len(tools["read_file"]("fits.png")[1].data) == MAX_PICTURE
    (line,) = tools["read_file"]("large.png")
    assert f"too large to show: the limit is {MAX_PICTURE} bytes" in line.text
