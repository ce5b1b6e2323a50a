"""Where requests go: a base URL taken apart, and the proxy that the environment names for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode, urlsplit

from glue.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_SAFE = "!#$%&'()*+,/:;=?@[]~"  # a percent sign stays: what a wire has quoted is sent as it is


class Address:
    """A base URL: one origin, and what comes before each path and after it."""

    __slots__ = ("host", "path", "port", "query", "scheme")

    def __init__(self, url: str, provider: str = "", query: Sequence[tuple[str, str]] = ()) -> None:
        try:
            parts = urlsplit(url.strip())
            host = parts.hostname or ""
            if not host.isascii():  # the codec is not worth loading for the others
                host = host.encode("idna").decode("ascii")
            port = parts.port
        except (ValueError, UnicodeError):
            raise _malformed(provider, url) from None
        if parts.scheme not in _PORTS or not host or "@" in parts.netloc or port == 0 or " " in parts.netloc:
            raise _malformed(provider, url)
        self.scheme = parts.scheme
        self.host = host
        self.port = port or _PORTS[parts.scheme]
        self.path = parts.path.rstrip("/")
        self.query = "&".join(piece for piece in (parts.query, urlencode(query)) if piece)

    @property
    def explicit_port(self) -> int | None:
        return None if self.port == _PORTS[self.scheme] else self.port

    @property
    def authority(self) -> str:
        """Host and port as the Host header wants them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.explicit_port else host

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def target(self, path: str) -> str:
        """Return the path and query to send for a path below the base URL."""
        path, _, query = path.partition("?")
        path = f"{self.path}/{path.lstrip('/')}" if path else self.path or "/"
        query = "&".join(piece for piece in (query, self.query) if piece)
        return quote(f"{path}?{query}" if query else path, safe=_SAFE)


def _malformed(provider: str, url: str) -> ConfigError:
    who = f"{provider}: " if provider else ""
    if "@" in url:  # may hold a password, which is not shown
        return ConfigError(f"{who}a base URL must not hold a user or password; use the key's variable")
    return ConfigError(f"{who}{url!r} is no base URL; it must look like https://host/v1")


def proxy_for(address: Address, environ: Mapping[str, str]) -> str:
    """Return the proxy that the standard variables name for an address, or nothing."""
    proxy = _variable(environ, f"{address.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy or _is_exempt(address, _variable(environ, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    if name == "http_proxy" and "REQUEST_METHOD" in environ:  # under CGI a client sets HTTP_PROXY by a header
        return environ.get(name, "").strip()
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _is_exempt(address: Address, exempt: str) -> bool:
    for entry in exempt.lower().replace(" ", ",").split(","):
        if not entry:
            continue
        if entry == "*":
            return True
        if "/" in entry:
            if _in_network(address.host, entry):
                return True
            continue
        name, _, port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if port and port != str(address.port):
            continue
        name = name.strip("[]").lstrip("*").lstrip(".")
        if address.host == name or address.host.endswith("." + name):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
