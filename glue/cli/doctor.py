"""`glue doctor`: checks of Python, keys, git, stores and network, one line each."""

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

from glue.cli.config import settings
from glue.cli.output import Screen
from glue.errors import ConfigError, GlueError
from glue.providers import default, find_base_url, known, lookup, split
from glue.providers.models import date
from glue.stores import check_store, is_address, open_store, store_name, store_path
from glue.text import count, one_line


class Check(NamedTuple):
    """One line; `advice` is empty where all is well."""

    name: str
    found: str
    advice: str = ""
    is_fault: bool = True


@click.command()
@click.option("--reach", "reach", is_flag=True, help="See whether the providers with keys can be reached.")
@click.option("--provider", "names", multiple=True, metavar="NAME", help="Reach this provider, key or not.")
def doctor(reach: bool, names: tuple[str, ...]) -> None:
    """Check this machine: Python, keys, git, stores, proxy and certificates. Leaves with 1 where something is wrong.

    Nothing is sent anywhere unless --reach or --provider asks for it, and then no key and no prompt.
    """
    for name in names:
        lookup(name)
    out = Screen(sys.stdout)
    faults = 0
    for check in checks(reach, names):
        bad = bool(check.advice) and check.is_fault
        faults += bad
        mark = out.paint("!!", "red") if bad else out.paint("ok", "green") if not check.advice else "--"
        told = f"{check.found}; {check.advice}" if check.advice else check.found
        click.echo(f"{mark}  {check.name:<14} {one_line(told)}")
    sys.exit(1 if faults else 0)


def checks(reach: bool, names: tuple[str, ...]) -> Iterator[Check]:
    system = "" if os.name == "posix" else " on a system that is not POSIX"
    yield Check("python", ".".join(map(str, sys.version_info[:3])) + system)
    yield from _package()
    try:
        found = settings()
        for spec in split(found["model"].value) if "model" in found else ():
            lookup(spec)
        made = ", ".join(f"{name} from {setting.source}" for name, setting in found.items())
        yield Check("settings", made or "none made")
    except ConfigError as error:
        yield Check("settings", "wrong", str(error))
    yield from _keys()
    days = (datetime.now(UTC) - datetime.fromisoformat(date()).replace(tzinfo=UTC)).days
    newer = "a newer glue-agents has newer ones" if days > 120 else ""
    yield Check("prices", f"of {date()}, {days} days old", newer, False)
    yield _git()
    yield _store()
    yield from _network()
    encoding = (getattr(sys.stdout, "encoding", "") or "unknown").lower()
    wider = "" if encoding.replace("-", "") == "utf8" else "set PYTHONIOENCODING=utf-8 to see all letters"
    yield Check("terminal", encoding, wider, False)
    for name, fault in reachable(names) if reach or names else ():
        yield Check(f"reach {name}", fault or "answers", fault and "check the network, the proxy and the address")


def _package() -> Iterator[Check]:
    import glue

    folder = Path(glue.__file__).parent
    versions: dict[str, str] = {}
    for name in ("glue-agents", "glue-core", "glueviz", "httpx2", "httpx", "sniffio"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    if "glue-agents" in versions:
        yield Check("glue", f"{versions['glue-agents']} in {folder}")
    else:
        yield Check("glue", f"not installed, run from {folder}", "pip install glue-agents", False)
    if other := next((name for name in ("glue-core", "glueviz") if name in versions), ""):
        advice = "it brings a package `glue` too; give each a virtual environment of its own"
        yield Check("clash", f"{other} {versions[other]} is installed here", advice)
    engine = "httpx2" if "httpx2" in versions else "httpx"
    if engine in versions:
        yield Check("http", f"{engine} {versions[engine]}")
    if missing := next((name for name in (engine, "sniffio") if name not in versions), ""):
        yield Check("http", f"{missing} is not installed", f"pip install {missing}")


def _keys() -> Iterator[Check]:
    keys = {}
    for name in known():
        row = lookup(name)
        variable = next((key for key in row.key if os.environ.get(key)), "")
        if not variable or row.quirks.local:
            continue
        keys[name] = variable
        value = os.environ[variable]
        if value != value.strip() or not value.isprintable() or not value.isascii():
            yield Check("key", f"{variable} holds a space, a line end or a letter no header can carry", "set it again")
        try:
            find_base_url(row, os.environ)
        except ConfigError as error:
            yield Check("key", f"{variable} is set", str(error))
    yield Check(
        "keys",
        ", ".join(f"{variable} ({name})" for name, variable in keys.items()) or "none set",
        "" if keys else "set one such as ANTHROPIC_API_KEY, or use a local server, or `offline`",
        False,
    )
    try:
        yield Check("model", f"{default()} unless named otherwise")
    except ConfigError:
        yield Check("model", "no default", "set GLUE_MODEL or a key; -m names one for a run", False)


def _git() -> Check:
    program = shutil.which("git")
    if program is None:
        return Check("git", "not found", "install git 2.30 or newer; the git tools and `glue review` need it")
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Check("git", f"{program} does not run", str(error))
    found = re.search(r"(\d+)\.(\d+)[\d.]*", told)
    if found is None:
        return Check("git", f"{program} says {told!r}", "install git 2.30 or newer")
    old = (int(found[1]), int(found[2])) < (2, 30)
    return Check("git", found[0], "2.30 or newer is needed" if old else "")


def _store() -> Check:
    try:
        made = settings().get("store")
        if made and is_address(made.value):
            found = anyio.run(open_store(made.value).list)
            return Check("store", f"{store_name(made.value)}, {len(found)} conversations")
        path = store_path(made.value if made else "")
        if not path.exists():
            above = next(folder for folder in path.parents if folder.exists())
            fine = os.access(above, os.W_OK | os.X_OK)
            return Check("store", f"{path}, not begun", "" if fine else f"{above} cannot be written")
        if not os.access(path, os.W_OK):
            return Check("store", str(path), "it cannot be written; mend its permissions or name another with --store")

        sessions, damaged = anyio.run(check_store, open_store(str(path)))
        if damaged:
            return Check("store", str(path), f"{'; '.join(damaged)}; move them away")
    except (GlueError, OSError) as error:
        return Check("store", "cannot be read", str(error))
    return Check("store", f"{path}, {count(sessions, 'conversation')}, all readable")


def _network() -> Iterator[Check]:
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
    found = {name: value for name in names if (value := os.environ.get(name.lower()) or os.environ.get(name))}
    for name, value in found.items():
        if name == "NO_PROXY":
            continue
        try:
            parts = urlsplit(value)
            fine = parts.scheme in ("http", "https", "socks5", "socks5h") and bool(parts.hostname)
        except ValueError:
            fine = False
        if not fine:
            yield Check("proxy", f"{name} is no address", "it must look like http://host:port")
    hosts = ", ".join(f"{name} {value.rpartition('@')[2]}" for name, value in found.items())
    yield Check("proxy", hosts or "none set")
    own = {name: named for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if (named := os.environ.get(name))}
    for name, named in own.items():
        if not (os.path.isfile(named) if name.endswith("FILE") else os.path.isdir(named)):
            yield Check("certificates", f"{name} names {named}", "which is not there; unset it or mend it")
            return
    yield Check("certificates", next((f"{name} {named}" for name, named in own.items()), "the usual ones"))


SECONDS = 5.0


def reachable(names: Sequence[str]) -> list[tuple[str, str]]:
    """Try those that are named, or those whose key is set; give each with what is wrong, "" for nothing."""
    chosen = list(names) or [name for name in known() if any(os.environ.get(key) for key in lookup(name).key)]
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
    from glue.providers.connection import Address, proxy_for
    from glue.providers.http import load_engine, ssl_context

    where = name
    try:
        row = lookup(name)
        if not row.wire:
            return ""
        address = Address(find_base_url(row, os.environ), row.name, ())
        parts = urlsplit(proxy_for(address, os.environ) or address.origin)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        where = f"{parts.hostname}:{port}"
        with anyio.fail_after(SECONDS):
            context = ssl_context(load_engine()) if is_tls else None
            stream = await anyio.connect_tcp(parts.hostname or "", port, ssl_context=context)  # type: ignore[arg-type]
            await anyio.aclose_forcefully(stream)
    except TimeoutError:
        return f"{where} does not answer within {SECONDS:g} s"
    except ConfigError as error:
        return str(error)
    except Exception as error:  # a TLS failure is an OSError too
        return f"{where}: {getattr(error, 'strerror', None) or error}"
    return ""
