"""Versioned prompts: Markdown files that are chosen by name and version."""

from __future__ import annotations

import difflib
import hashlib
import re
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from glue.errors import PromptError

if TYPE_CHECKING:
    import os
    from importlib.resources.abc import Traversable

__all__ = ["Catalog", "Prompt", "catalogs"]


class Prompt(str):
    """The text of one version of a prompt, with its name, its version and a hash of the text."""

    name: str
    version: str
    hash: str

    def __new__(cls, text: str, *, name: str, version: str) -> Self:
        prompt = super().__new__(cls, text)
        prompt.name, prompt.version = name, version
        prompt.hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        return prompt

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        return (str(self),), {"name": self.name, "version": self.version}  # for pickle and copy

    @property
    def text(self) -> str:
        return str(self)

    @property
    def identity(self) -> Mapping[str, str]:
        """A dict with the prompt's name, version and hash, which a run stores for later lookup.

        A run that has the prompt as instructions adds the dict to the meta of its user message.
        """
        return {"prompt": self.name, "prompt_version": self.version, "prompt_hash": self.hash}


class Catalog:
    """The versions of one prompt: `v1.md`, `v2.md`, ... in a folder, a package or a zip file.

    >>> catalog = Catalog("glue.prompts:review")
    >>> catalog.versions()
    ('v1', 'v2')
    >>> prompt = catalog.get("v1")

    `source` is a path, or a folder of a package, such as "my_agent:prompts/review". The path of a
    folder in a zip file starts with the zip file: "prompts.zip/review". The default version is the
    newest one, unless `default` names another.
    """

    def __init__(
        self, source: str | os.PathLike[str] | Traversable, default: str = "", *, name: str = ""
    ) -> None:
        folder, where = _locate(source)
        self.name = (
            name or where.rstrip("/").replace("\\", "/").rpartition("/")[2].rpartition(":")[2]
        )
        self._texts = _read(folder, where)
        self._default = self._check(default or self.versions()[-1])

    @property
    def default(self) -> str:
        return self._default

    def versions(self) -> tuple[str, ...]:
        """Return the names of the versions in natural order: v2 before v10."""
        return tuple(sorted(self._texts, key=_natural))

    def get(self, version: str = "") -> Prompt:
        """Return one version of the prompt; an empty `version` means the default version.

        Raise PromptError if the version does not exist.
        """
        version = self._check(version or self._default)
        return Prompt(self._texts[version], name=self.name, version=version)

    def diff(self, old: str, new: str) -> str:
        """Return the unified diff between two versions of the prompt."""
        before, after = (self.get(version).text.splitlines(keepends=True) for version in (old, new))
        return "".join(
            difflib.unified_diff(before, after, f"{self.name}/{old}.md", f"{self.name}/{new}.md")
        )

    def _check(self, version: str) -> str:
        if version not in self._texts:
            there = ", ".join(self.versions())
            raise PromptError(
                f"prompt {self.name!r} has no version {version!r}; there are: {there}"
            )
        return version

    def __repr__(self) -> str:
        return f"Catalog({self.name!r}, default={self._default!r}, versions={self.versions()})"


def catalogs(source: str | os.PathLike[str] | Traversable = "glue.prompts:") -> tuple[Catalog, ...]:
    """Return a tuple with one Catalog for each subfolder of `source` that contains prompts.

    The catalogs are sorted by name. The default source contains the prompts of glue.
    """
    folder, where = _locate(source)
    try:
        folders = [entry for entry in folder.iterdir() if entry.is_dir()]
        folders.sort(key=lambda entry: entry.name)
        return tuple(Catalog(entry) for entry in folders if _has_prompts(entry))
    except OSError as error:
        raise PromptError(f"prompts cannot be read from {where!r}: {error.strerror}") from error


def _has_prompts(folder: Traversable) -> bool:
    return bool(_prompt_files(folder))


def _prompt_files(folder: Traversable) -> list[Traversable]:
    """Return the Markdown files in a folder, without hidden ones."""
    return [
        file
        for file in folder.iterdir()
        if file.name.endswith(".md") and not file.name.startswith(".")
    ]


def _locate(source: str | os.PathLike[str] | Traversable) -> tuple[Traversable, str]:
    """Return the folder that `source` names, and the name of the folder for messages.

    `source` is a path, a path into a zip file, `package:folder`, or a folder object, which is
    returned unchanged. Raise PromptError if the package does not exist.
    """
    if not isinstance(source, str) and not hasattr(source, "__fspath__"):
        return source, source.name
    text = str(source)
    package, colon, folder = text.partition(":")
    if colon and re.fullmatch(r"[A-Za-z_][\w.]*", package):
        try:
            return files(package).joinpath(*filter(None, folder.split("/"))), text
        except (ImportError, TypeError) as error:
            raise PromptError(
                f"prompts {text!r}: the package {package!r} does not exist"
            ) from error
    path = Path(text)
    for part in (path, *path.parents):
        if part.suffix == ".zip" and part.is_file():
            inside = "/".join(path.relative_to(part).parts)
            return zipfile.Path(part, f"{inside}/" if inside else ""), text
    return path, text


def _read(folder: Traversable, where: str) -> dict[str, str]:
    """Read the *.md files of a folder; return a dict: version -> text. Hidden files are skipped.

    `where` names the folder in messages. Raise PromptError if the folder has no such files, or if a
    file cannot be read.
    """
    try:
        found = _prompt_files(folder)
        # Only trailing newlines are stripped: trailing spaces may be intended.
        texts = {
            file.name[:-3]: file.read_text(encoding="utf-8").rstrip("\r\n") + "\n" for file in found
        }
    except (OSError, KeyError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"prompts cannot be read from {where!r}: {reason}") from error
    if not texts:
        raise PromptError(f"{where!r} does not contain prompts (*.md)")
    return texts


def _natural(version: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return a sort key for versions that compares their numbers as numbers: v2 before v10.

    A longer version is newer than its beginning: v1 before v1.1.
    """
    pairs = re.findall(r"([^0-9]*)([0-9]*)", version)  # ends with a pair of empty texts
    return tuple((text, int(number or 0)) for text, number in pairs), version
