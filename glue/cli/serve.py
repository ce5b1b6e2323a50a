"""`glue serve`: serve an agent as a chat page in the browser."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from typing import Any

import click

from glue.cli.agentfile import open_agent
from glue.cli.options import Sources
from glue.errors import ConfigError
from glue.paths import state_dir
from glue.permission import Rules
from glue.stores import open_store


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on. Default: a free one.")
@click.option(
    "--token",
    default="",
    envvar="GLUE_SERVE_TOKEN",
    help="Secret that the address of the page must contain, also read from GLUE_SERVE_TOKEN. "
    "Default: a random secret. Required if --host is an address that other machines can reach.",
)
@click.option("--open/--no-open", "show", default=True, help="Open the page in a browser.")
@click.option(
    "--store",
    metavar="PATH",
    help="Store of the conversations: a folder, .db file or postgresql:// address.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    help="Run tool calls that match RULE, such as write_file, without asking. Repeatable.",
)
@click.option(
    "--deny",
    multiple=True,
    metavar="RULE",
    help="Never run tool calls that match RULE. Repeatable.",
)
def serve(
    file: str,
    host: str,
    port: int,
    token: str,
    show: bool,
    store: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
) -> None:
    """Serve the agent of FILE as a page in the browser, with streaming, questions and sessions.

    The page is reached only with the token in its address and, without --host, only from this
    machine. A run is cancelled when its page is closed. Conversations are kept in the store.
    """
    is_local = host in ("127.0.0.1", "localhost", "::1")
    if not is_local and not token:
        raise click.UsageError(
            "--host needs --token or GLUE_SERVE_TOKEN, because other machines can reach the page"
        )
    agent = open_agent(file)
    sources = Sources({"store": store, "allow": allow, "deny": deny}, path=file, agent=agent)
    place = sources.find("store") or str(state_dir() / "web.db")
    sock = _listen(host, port)
    bound, port = sock.getsockname()[:2]
    token = token or secrets.token_urlsafe(24)
    shown = f"[{bound}]" if ":" in host else host  # the short form, which browsers send
    # Listening on all addresses, the machine may have any name; the token protects the page.
    is_any = host in ("0.0.0.0", "::")
    hosts = [] if is_any else [f"{name}:{port}" for name in ("127.0.0.1", "localhost", shown)]
    address = f"http://{shown}:{port}/?token={token}"
    _serve(_app(agent, place, token, hosts, _rules(sources)), sock, address, place, show)


def _rules(sources: Sources) -> Rules | None:
    """Return the rules of flags, file header and configuration, or None if there are none."""
    rules = sources.rules()
    return Rules(allow=rules["allow"], deny=rules["deny"]) if any(rules.values()) else None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from None
    return sock


def _app(agent: Any, place: str, token: str, hosts: list[str], rules: Rules | None) -> Any:
    from glue.web.site import app  # loads Starlette, an optional dependency

    return app(agent, store=open_store(place), token=token, hosts=hosts, permission=rules)


def _serve(app: Any, sock: socket.socket, address: str, place: str, show: bool) -> None:
    """Run the server until Ctrl-C; print the address, and open the page in a browser if `show`.

    The address is printed on stdout, everything else on stderr.
    """
    try:
        import uvicorn  # an optional dependency
    except ImportError:
        raise ConfigError("glue serve needs uvicorn: pip install 'glue-agents[web]'") from None

    class AnnouncedServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            click.echo(address)
            click.echo(f"conversations are stored in {place}; Ctrl-C ends the server", err=True)
            if show:
                webbrowser.open(address)

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=3, lifespan="off"
    )
    AnnouncedServer(config).run(sockets=[sock])
