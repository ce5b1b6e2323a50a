"""Prompts from words, files and stdin; attachments; output schemas."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from glue import File, Image, Text
from glue.cli.inputs import (
    MAX_BYTES,
    picture_paths,
    read_attachment,
    read_part,
    read_prompt,
    read_schema,
)
from glue.errors import ConfigError

Cli = Callable[..., Any]


def test_the_prompt_is_the_words_on_the_command_line(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "hello", "there")

    assert (ran.code, ran.out, ran.err) == (0, "1: hello there ␛[31m\n", "")


def test_without_words_the_prompt_is_stdin(cli: Cli, agent: str) -> None:
    assert cli("run", agent, input="from a pipe").out == "1: from a pipe ␛[31m\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdin", [None, Terminal()])
def test_without_words_a_terminal_or_a_closed_stdin_is_no_prompt(
    monkeypatch: pytest.MonkeyPatch, stdin: Terminal | None
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)

    with pytest.raises(click.UsageError, match="no prompt; give it in words, as @FILE or on stdin"):
        read_prompt(())


def test_a_dash_is_stdin_and_an_at_sign_is_a_file(cli: Cli, agent: str) -> None:
    Path("note.txt").write_text("a note")

    ran = cli("run", agent, "read", "@note.txt", "-", input="and this")

    assert ran.out == "1: read\n\na note\n\nand this ␛[31m\n"


def test_two_at_signs_begin_a_word_with_an_at_sign(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "@@ada", "hi").out == "1: @ada hi ␛[31m\n"


def test_an_image_file_is_sent_as_an_image(cli: Cli) -> None:
    Path("a.png").write_bytes(b"\x89PNG")
    Path("see.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat(lambda r: repr(r.messages[-1].content[1].media_type))))\n"
    )

    assert cli("run", "see.py", "what is this?", "@a.png").out == "'image/png'\n"


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ("name: str, age: int", {"name": {"type": "string"}, "age": {"type": "integer"}}),
        ("name, ok bool", {"name": {"type": "string"}, "ok": {"type": "boolean"}}),
        ("tags: list[float]", {"tags": {"type": "array", "items": {"type": "number"}}}),
    ],
)
def test_a_schema_can_be_written_as_fields(given: str, properties: dict[str, Any]) -> None:
    schema = read_schema(given)

    assert schema["properties"] == properties
    assert schema["required"] == list(properties)
    assert schema["additionalProperties"] is False


def test_a_schema_is_read_from_a_file_and_an_invalid_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "person.json"
    path.write_text('{"type": "object", "properties": {"name": {"type": "string"}}}')

    assert read_schema(str(path))["properties"] == {"name": {"type": "string"}}
    with pytest.raises(ConfigError, match="is not 'name: type'; the types are: str, int"):
        read_schema("name: text")
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    for given, error in (
        (str(tmp_path / "a.png"), "--schema: not valid JSON"),
        (str(tmp_path / "absent.json"), "--schema .*absent.json cannot be read"),
        ("{", "--schema: not valid JSON"),
        ('{"type": "nonsense"}', "--schema must be a JSON schema; "),
    ):
        with pytest.raises(ConfigError, match=error):
            read_schema(given)
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match="--schema must be a JSON object, such as"):
        read_schema(str(tmp_path / "list.json"))


def test_attachments_are_files_and_urls_of_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.txt").write_text("words")

    assert read_attachment(str(tmp_path / "a.png")) == Image(
        media_type="image/png", data=b"\x89PNG"
    )
    assert read_attachment(str(tmp_path / "a.txt")) == Text(text="words")
    assert read_attachment("https://example.com/a.webp?x=1") == Image(
        media_type="image/webp", url="https://example.com/a.webp?x=1"
    )
    with pytest.raises(ConfigError, match="only the URL of an image"):
        read_attachment("https://example.com/page.html")


@pytest.mark.parametrize(("size", "fits"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_a_file_of_16_mb_is_the_largest(tmp_path: Path, size: int, fits: bool) -> None:
    path = tmp_path / "large.pdf"
    path.touch()
    os.truncate(path, size)

    if fits:
        part = read_part(str(path))
        assert isinstance(part, File)
        assert len(part.data) == 16 * 1024 * 1024
    else:
        with pytest.raises(ConfigError, match=r"large\.pdf is larger than 16 MB; give a smaller"):
            read_part(str(path))


@pytest.mark.parametrize(("size", "fits"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_16_mb_are_the_largest_input_on_stdin(cli: Cli, size: int, fits: bool) -> None:
    Path("count.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat(lambda r: str(len(r.messages[-1].text)))))\n"
    )

    ran = cli("run", "count.py", "-", input="x" * size)

    assert ran.out == ("16777216\n" if fits else "")
    assert ran.err == ("" if fits else "glue: stdin is larger than 16 MB; send less text\n")


@pytest.mark.parametrize(("before", "is_text"), [(4095, False), (4096, True)])
def test_a_zero_byte_in_the_first_4096_marks_input_that_is_not_text(
    cli: Cli, agent: str, before: int, is_text: bool
) -> None:
    ran = cli("run", agent, "-", input="x" * before + "\0")

    assert (ran.code, "stdin is not text; attach" in ran.err) == (
        (0, False) if is_text else (2, True)
    )


def test_the_doubled_at_sign_is_explained_only_if_there_is_no_such_file(
    cli: Cli, agent: str
) -> None:
    Path("folder").mkdir()

    absent, folder = cli("run", agent, "@absent"), cli("run", agent, "@folder")

    assert absent.err == (
        "glue: @absent cannot be read: No such file or directory;"
        " write @@absent if you mean a word that begins with @\n"
    )
    assert folder.err == "glue: @folder cannot be read: Is a directory\n"


def test_the_pictures_in_a_text_are_found_by_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b.png", "c.JPG", "d.gif", "e.txt"):
        Path(name).touch()
    text = "See 'a b.png', \"c.JPG\" and a\\ b.png. Not @d.gif, e.txt or absent.png; but d.gif!"

    assert [path.name for path in picture_paths(text)] == ["a b.png", "c.JPG", "a b.png", "d.gif"]
