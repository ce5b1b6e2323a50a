"""`glue doctor`: check Python, keys, git, sandbox, stores and network, one line for each check."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
import click

import glue
from glue.cli.keys import used_variable
from glue.cli.screen import Screen
from glue.cli.settings import settings
from glue.errors import ConfigError, GlueError
from glue.providers import default, find_base_url, known, lookup, split
from glue.providers.connection import Address, proxy_for
from glue.providers.http import load_engine, ssl_context
from glue.providers.models import date
from glue.stores import check_store, is_address, open_store, store_name, store_path
from glue.text import count, one_line
from glue.tools.sandbox import find_backend


class Check(NamedTuple):
    """A line that `glue doctor` prints; `advice` is empty if the user has nothing to do."""

    name: str
    found: str
    advice: str = ""
    is_fault: bool = True  # False: the advice is only a hint


@click.command()
@click.option("--reach", is_flag=True, help="Connect to the servers of providers whose key is set.")
@click.option(
    "--provider",
    "names",
    multiple=True,
    metavar="NAME",
    help="Connect to the server of this provider, with or without a key. Repeatable.",
)
def doctor(reach: bool, names: tuple[str, ...]) -> None:
    """Check Python, keys, git, sandbox, stores, proxy, certificates. Exits with 1 for a fault.

    Marks: ok is fine, -- is a hint, !! is a fault. Only --reach and --provider connect to
    providers; they send neither a key nor a prompt. A store in a database is opened and read.
    """
    for name in names:
        lookup(name)
    out = Screen(sys.stdout)
    faults = 0
    for check in checks(reach, names):
        is_fault = bool(check.advice) and check.is_fault
        faults += is_fault
        mark = "--" if check.advice else out.paint("ok", "green")
        mark = out.paint("!!", "red") if is_fault else mark
        text = f"{check.found}; {check.advice}" if check.advice else check.found
        click.echo(f"{mark}  {check.name:<14} {one_line(text)}")
    sys.exit(1 if faults else 0)


def checks(reach: bool, names: tuple[str, ...]) -> Iterator[Check]:
    """Yield the result of each check. Connect to providers only if `reach` or `names` is set.

    `names` are the providers to connect to. If it is empty, these are all whose key is set.
    """
    system = "" if os.name == "posix" else " on a system that is not POSIX"
    yield Check("python", ".".join(map(str, sys.version_info[:3])) + system)
    yield from _package()
    try:
        found = settings()
        if "model" in found:
            for name in split(found["model"].value):
                lookup(name)  # raises ConfigError for a wrong name
        sources = ", ".join(f"{name} from {setting.source}" for name, setting in found.items())
        yield Check("settings", sources or "none")
    except ConfigError as error:
        yield Check("settings", "invalid", str(error))
    yield from _keys()
    days = (datetime.now(UTC) - datetime.fromisoformat(date()).replace(tzinfo=UTC)).days
    newer = "update glue-agents for newer prices" if days > 120 else ""
    yield Check("prices", f"of {date()}, {days} days old", newer, False)
    yield _git()
    yield _sandbox()
    yield _store()
    yield from _network()
    encoding = (getattr(sys.stdout, "encoding", "") or "unknown").lower()
    is_utf8 = encoding.replace("-", "") == "utf8"
    advice = "" if is_utf8 else "set PYTHONIOENCODING=utf-8 to see all characters"
    yield Check("terminal", encoding, advice, False)
    if reach or names:
        for name, fault in reachable(names):
            advice = "check the network, the proxy and the address" if fault else ""
            yield Check(f"reach {name}", fault or "responds", advice)


def _package() -> Iterator[Check]:
    folder = Path(glue.__file__).parent
    versions: dict[str, str] = {}
    for name in ("glue-agents", "glue-core", "glueviz", "httpcore2", "httpcore", "sniffio"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    if "glue-agents" in versions:
        yield Check("glue", f"{versions['glue-agents']} in {folder}")
    else:
        advice = f"pip install -e '{folder.parent}'"
        yield Check("glue", f"glue-agents is not installed; glue runs from {folder}", advice, False)
    other = next((name for name in ("glue-core", "glueviz") if name in versions), "")
    if other:
        advice = (
            f"{other} and glue-agents both contain a package `glue`; "
            "install each in its own virtual environment"
        )
        yield Check(
            "clash", f"{other} {versions[other]} is installed in the same environment", advice
        )
    engine = "httpcore2" if "httpcore2" in versions else "httpcore"
    if engine in versions:
        yield Check("http", f"{engine} {versions[engine]}")
    missing = next((name for name in (engine, "sniffio") if name not in versions), "")
    if missing:
        yield Check("http", f"{missing} is not installed", f"pip install {missing}")


def _keys() -> Iterator[Check]:
    keys = {}
    for name in known():
        entry = lookup(name)
        variable = used_variable(entry)
        if not variable or entry.quirks.local:
            continue
        keys[name] = variable
        value = os.environ[variable]
        if value != value.strip() or not value.isprintable() or not value.isascii():
            yield Check(
                "key",
                f"the value of {variable} has a space, a line end or another invalid character",
                "correct the value",
            )
        try:
            find_base_url(entry, os.environ)
        except ConfigError as error:
            yield Check("key", f"{variable} is set", str(error))
    yield Check(
        "keys",
        ", ".join(f"{variable} ({name})" for name, variable in keys.items()) or "none set",
        ""
        if keys
        else "set a key such as ANTHROPIC_API_KEY, or use a local server or `offline`, "
        "which need no key",
        False,
    )
    try:
        yield Check("model", f"{default()} by default")
    except ConfigError:
        yield Check("model", "no default", "set GLUE_MODEL or a key, or use -m", False)


def _git() -> Check:
    program = shutil.which("git")
    if program is None:
        return Check(
            "git", "not found", "install git 2.30 or newer; the git tools and `glue review` need it"
        )
    try:
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Check("git", f"{program} does not run", str(error))
    found = re.search(r"(\d+)\.(\d+)[\d.]*", output)
    if found is None:
        return Check("git", f"{program} prints {output!r}", "install git 2.30 or newer")
    old = (int(found[1]), int(found[2])) < (2, 30)
    return Check("git", found[0], "git 2.30 or newer is needed" if old else "")


def _sandbox() -> Check:
    """Return the Check that names the sandbox of the shell tool, or warns that it has none."""
    best = find_backend()
    install = "install bubblewrap" if sys.platform.startswith("linux") else ""
    if best is None:
        found = "none: commands that you allow have all your rights and can read your provider keys"
        return Check("sandbox", found, install or "use glue.tools.shell.docker", False)
    if not best.note:
        return Check("sandbox", best.name)
    return Check(
        "sandbox", f"{best.name}: {best.note}", f"for a stricter sandbox, {install}", False
    )


def _store() -> Check:
    try:
        setting = settings().get("store")
        if setting and is_address(setting.value):
            found = anyio.run(open_store(setting.value).list)
            return Check("store", f"{store_name(setting.value)}, {count(len(found), 'session')}")
        path = store_path(setting.value if setting else "")
        if not path.exists():
            above = next(folder for folder in path.parents if folder.exists())
            is_writable = os.access(above, os.W_OK | os.X_OK)
            advice = f"the folder {above} cannot be written; change its permissions or use --store"
            return Check("store", f"{path}, not created yet", "" if is_writable else advice)
        if not os.access(path, os.W_OK):
            return Check(
                "store",
                str(path),
                "the store cannot be written; change its permissions or use --store",
            )
        sessions, damaged = anyio.run(check_store, open_store(str(path)))
        if damaged:
            advice = "move unreadable sessions and other files out of the store"
            return Check("store", str(path), f"{'; '.join(damaged)}; {advice}")
    except (GlueError, OSError) as error:
        return Check("store", "cannot be read", str(error))
    return Check("store", f"{path}, {count(sessions, 'session')}, all readable")


def _network() -> Iterator[Check]:
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
    values = {name: os.environ.get(name.lower()) or os.environ.get(name) for name in names}
    found = {name: value for name, value in values.items() if value}
    for name, value in found.items():
        if name != "NO_PROXY" and not _is_proxy(value):
            yield Check("proxy", f"{name} is not a URL", "a proxy must look like http://host:port")
    hosts = ", ".join(f"{name} {value.rpartition('@')[2]}" for name, value in found.items())
    yield Check("proxy", hosts or "none set")
    own = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    own = {name: path for name, path in own.items() if path}
    for name, path in own.items():
        exists = os.path.isfile if name.endswith("FILE") else os.path.isdir
        if not exists(path or ""):
            kind = "file" if name.endswith("FILE") else "folder"
            advice = f"there is no such {kind}; unset or correct the variable"
            yield Check("certificates", f"{name} is {path}", advice)
            return
    texts = [f"{name} {path}" for name, path in own.items()]
    yield Check("certificates", texts[0] if texts else "the default ones")


def _is_proxy(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https", "socks5", "socks5h") and bool(parts.hostname)


CONNECT_SECONDS = 5.0


def reachable(names: Sequence[str]) -> list[tuple[str, str]]:
    """Connect to the server of each provider; return each name with the fault, or "" if none.

    Without `names`, connect to the providers whose key is set.
    """
    chosen = list(names) or [name for name in known() if used_variable(lookup(name))]
    found: dict[str, str] = {}

    async def check(name: str) -> None:
        found[name] = await _fault(name)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for name in chosen:
                group.start_soon(check, name)

    anyio.run(main)
    return [(name, found[name]) for name in chosen]


async def _fault(name: str) -> str:
    """Connect to a provider's server or its proxy; return the fault, or "" if there is none.

    A provider without a server has no fault.
    """
    where = name
    try:
        entry = lookup(name)
        if not entry.wire:
            return ""
        address = Address(find_base_url(entry, os.environ), entry.name, ())
        parts = urlsplit(proxy_for(address, os.environ) or address.origin)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        where = f"{parts.hostname}:{port}"
        with anyio.fail_after(CONNECT_SECONDS):
            context = ssl_context(load_engine()) if is_tls else None
            stream = await anyio.connect_tcp(parts.hostname or "", port, ssl_context=context)  # type: ignore[arg-type]
            await anyio.aclose_forcefully(stream)
    except TimeoutError:
        return f"{where} does not respond within {CONNECT_SECONDS:g} s"
    except ConfigError as error:
        return str(error)
    except Exception as error:  # a TLS failure is an OSError too
        return f"{where}: {getattr(error, 'strerror', None) or error}"
    return ""
