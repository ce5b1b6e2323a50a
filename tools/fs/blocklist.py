"""Names of files that tend to hold secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from glue.errors import UnsafePath
from glue.tools.fs.glob import Glob
from glue.tools.fs.root import shorten

DEFAULT = (
    ".env",
    ".env.*",
    "*.env",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!example.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "*.asc",
    "*.gpg",
    "*.ovpn",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "!id_*.pub",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".vault-token",
    "**/.git/config",
    "**/.git/config.worktree",
    "**/.git/modules/**/config",
    "**/.config/gh/hosts.yml",
    "**/.config/gcloud/**",
    "credentials",
    "credentials.json",
    "credentials.yml",
    "credentials.yaml",
    "credentials.toml",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.toml",
    "secret.json",
    "secret.yml",
    "secret.yaml",
    "master.key",
)


@dataclass(frozen=True, slots=True)
class Blocklist:
    """Patterns of files that must not be read; `!` takes out of it what an earlier pattern put in.

    A pattern is held against the whole path, the base name and each component, without regard to case;
    `*` does not cross `/`, `**` does.
    """

    patterns: tuple[str, ...] = DEFAULT

    @classmethod
    def default(cls) -> Blocklist:
        """Give the patterns of secret-shaped files."""
        return cls()

    def merge(self, other: Blocklist | Iterable[str]) -> Blocklist:
        """Add patterns; those given last have the last word."""
        more = other.patterns if isinstance(other, Blocklist) else tuple(other)
        return Blocklist((*self.patterns, *more))

    def match(self, path: str) -> str | None:
        """Name the pattern that blocks a path, or None."""
        parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
        names, paths = _screen(self.patterns)
        if not any(map(names.match, parts)) and not any(glob.matches(parts) for glob in paths):
            return None  # as it is for nearly every file of a large tree
        found: str | None = None
        for pattern in self.patterns:
            wanted = pattern.removeprefix("!")
            if (found is None) == pattern.startswith("!"):
                continue  # it could only say again what already holds
            glob = Glob.of(wanted.strip("/").casefold())
            if glob.matches(parts) or any(glob.matches([part]) for part in parts):
                found = None if pattern.startswith("!") else pattern
        return found

    def blocks(self, path: str) -> bool:
        """Say whether a path is blocked."""
        return self.match(path) is not None

    def guard(self, names: tuple[str, ...]) -> None:
        """Refuse a path, given as the plain names it leads through."""
        if (pattern := self.match("/".join(names))) is not None:
            raise UnsafePath(f"{shorten('/'.join(names))} is on the block list ({pattern})")

    def __contains__(self, path: str) -> bool:
        return self.blocks(path)


@lru_cache(maxsize=64)
def _screen(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[Glob, ...]]:
    """Put all patterns of one component into one expression; the longer ones stay by themselves."""
    wanted = [each.strip("/").casefold() for each in patterns if not each.startswith("!")]
    names = [Glob(each).parts[0] for each in wanted if "/" not in each and each != "**"]
    sources = [each.pattern if isinstance(each, re.Pattern) else re.escape(each) + r"\Z" for each in names if each]
    return re.compile("|".join(sources) or "(?!)", re.DOTALL), tuple(
        Glob(each) for each in wanted if "/" in each or each == "**"
    )
