"""Prompts and resources that glue offers besides tools if glue itself is the MCP server."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from glue.errors import GlueError
from glue.messages import messages_to_json
from glue.tasks import in_thread
from glue.tools import fs
from glue.tools.mcp.sdk import MCPError, types

if TYPE_CHECKING:
    from glue.prompts import Catalog
    from glue.stores import Store

INSTRUCTIONS = "glue://agent/instructions"
FILES, SESSIONS = "glue://files/", "glue://sessions/"
MAX_FILE = 1024 * 1024  # bytes of a file that is offered as a resource
MAX_LISTED = 200  # files and sessions that are listed; the templates reach all of them
MAX_VALUES = 100  # suggestions for an argument, the most that the protocol allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The prompts of an MCP server, and its resources: the instructions, files and sessions.

    Args:
        instructions: the instructions of the agent.
        catalogs: versioned prompts, each with an argument `version`.
        root: a folder whose files are resources; empty for none.
        store: a store whose sessions are resources.
    """

    instructions: str = ""
    catalogs: Sequence[Catalog] = ()
    root: str = ""
    store: Store | None = None

    @property
    def has_resources(self) -> bool:
        return bool(self.instructions or self.root or self.store is not None)

    def prompts(self) -> list[types.Prompt]:
        """Return the prompts, each with a description that lists the versions of the prompt."""
        version = types.PromptArgument(
            name="version", description="The version of the prompt, such as v1.", required=False
        )
        return [
            types.Prompt(
                name=catalog.name,
                description=f"Versions: {', '.join(catalog.versions())}; "
                f"the default is {catalog.default}.",
                arguments=[version],
            )
            for catalog in self.catalogs
        ]

    def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return a version of a prompt as a message; raise MCPError if the request is not valid.

        A request is not valid if the prompt or the version does not exist, or if `arguments` has
        names other than `version`. Without a version, return the default version.
        """
        catalog = next((each for each in self.catalogs if each.name == name), None)
        if catalog is None:
            there = ", ".join(each.name for each in self.catalogs)
            raise _wrong(f"the prompt {name!r} does not exist; there are: {there}")
        unknown = sorted(set(arguments) - {"version"})
        if unknown:
            raise _wrong(f"the prompt {name!r} has no argument {unknown[0]!r}; it has: version")
        try:
            found = catalog.get(arguments.get("version", ""))
        except GlueError as error:
            raise _wrong(str(error)) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=found.text))
        return types.GetPromptResult(description=f"{name} {found.version}", messages=[message])

    async def resources(self) -> list[types.Resource]:
        """Return the resources to list: the instructions, the newest sessions, the first files."""
        found: list[types.Resource] = []
        if self.instructions:
            found.append(
                types.Resource(
                    uri=INSTRUCTIONS,
                    name="instructions",
                    description="The instructions of the agent.",
                    mime_type="text/plain",
                )
            )
        if self.store is not None:
            listed = sorted(await self.store.list(), key=lambda info: -info.updated)
            found += [
                types.Resource(
                    uri=SESSIONS + quote(info.id),
                    name=info.id,
                    title=info.title or None,
                    mime_type="application/json",
                )
                for info in listed[:MAX_LISTED]
            ]
        for path in (await self._paths())[:MAX_LISTED]:
            kind = mimetypes.guess_type(path)[0]
            found.append(types.Resource(uri=FILES + quote(path), name=path, mime_type=kind))
        return found

    def templates(self) -> list[types.ResourceTemplate]:
        """Return the resource templates, with which a client names a file or a session."""
        found = []
        if self.root:
            found.append(
                types.ResourceTemplate(
                    uri_template=FILES + "{+path}",
                    name="file",
                    description="A file of the root folder.",
                )
            )
        if self.store is not None:
            found.append(
                types.ResourceTemplate(
                    uri_template=SESSIONS + "{id}",
                    name="session",
                    description="The messages of a session.",
                    mime_type="application/json",
                )
            )
        return found

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Return the content of a resource that glue's MCP server offers, or raise MCPError.

        A file of more than MAX_FILE bytes cannot be read.
        """
        if uri == INSTRUCTIONS and self.instructions:
            return _text(uri, self.instructions, "text/plain")
        if uri.startswith(FILES) and self.root:
            return await in_thread(self._read_file, uri, unquote(uri.removeprefix(FILES)))
        if uri.startswith(SESSIONS) and self.store is not None:
            try:
                messages = await self.store.load(unquote(uri.removeprefix(SESSIONS)))
            except (GlueError, ValueError) as error:
                raise _missing(uri, str(error)) from error
            return _text(uri, json.dumps(messages_to_json(messages)), "application/json")
        raise _missing(uri, "there is no such resource")

    def _read_file(self, uri: str, path: str) -> types.ReadResourceResult:
        try:
            with fs.safe_open(self.root, path) as file:
                data = file.read(MAX_FILE + 1)
        except (OSError, ValueError, GlueError) as error:
            raise _missing(uri, getattr(error, "strerror", None) or str(error)) from error
        if len(data) > MAX_FILE:
            raise _wrong(f"{uri} is larger than {MAX_FILE // 2**20} MiB")
        kind = mimetypes.guess_type(path)[0]
        try:
            return _text(uri, data.decode(), kind or "text/plain")
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode()
            found = types.BlobResourceContents(uri=uri, blob=blob, mime_type=kind)
            return types.ReadResourceResult(contents=[found])

    async def complete(self, reference: Any, name: str, value: str) -> types.CompleteResult:
        """Return suggestions that begin with `value`: prompt versions, file paths or session ids.

        `reference` names the prompt or the resource template that the argument belongs to.
        """
        values: Iterable[str] = ()
        if getattr(reference, "type", "") == "ref/prompt":
            catalog = next((each for each in self.catalogs if each.name == reference.name), None)
            values = catalog.versions() if catalog is not None and name == "version" else ()
        elif str(reference.uri).startswith(FILES):
            values = await self._paths()
        elif str(reference.uri).startswith(SESSIONS) and self.store is not None:
            values = [info.id for info in await self.store.list()]
        found = [each for each in values if each.startswith(value)]
        completion = types.Completion(
            values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES
        )
        return types.CompleteResult(completion=completion)

    async def _paths(self) -> list[str]:
        """Return the paths of at most 1000 files below the root that .gitignore does not exclude.

        The paths are relative to the root. Paths that are not UTF-8 are left out. Without a root,
        return [].
        """
        if not self.root:
            return []
        find = fs.find_files(self.root).function
        found = str(await in_thread(find, "*", ".", False, 1000)).splitlines()
        # A path with unusual characters is quoted. The last line may be a hint for a model.
        paths = [json.loads(line) if line.startswith('"') else line for line in found]
        return [path for path in paths if self._is_listed(path)]

    def _is_listed(self, path: str) -> bool:
        """Return whether a path is UTF-8 and leads to a file below the root, as `read` needs it."""
        try:
            path.encode()
        except UnicodeEncodeError:
            return False
        file = Path(self.root, path).resolve()
        return file.is_file() and file.is_relative_to(Path(self.root).resolve())


def _text(uri: str, text: str, kind: str) -> types.ReadResourceResult:
    content = types.TextResourceContents(uri=uri, text=text, mime_type=kind)
    return types.ReadResourceResult(contents=[content])


def _wrong(message: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message)


def _missing(uri: str, why: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"the resource {uri} cannot be read: {why}", {"uri": uri})
