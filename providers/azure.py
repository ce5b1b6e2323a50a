"""Access tokens for Azure OpenAI from Entra, through azure-identity (extra `[azure]`).

Tokens are used if no key is set. They come from client credentials, a workload or managed identity,
or the login of the Azure command line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from glue.errors import ProviderError
from glue.text import one_line

SCOPE = "https://cognitiveservices.azure.com/.default"
_EARLY = 60.0  # seconds before its end at which a token is renewed


def is_installed() -> bool:
    """Return whether azure-identity is installed."""
    try:
        return find_spec("azure.identity") is not None
    except ImportError:
        return False


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Return whether azure-identity is installed and `environ` has the variables of an Azure login.

    The variables name the tenant, the client, and a secret, a certificate or a token file.
    """
    secrets = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE")
    named = environ.get("AZURE_TENANT_ID") and environ.get("AZURE_CLIENT_ID")
    return bool(named and any(environ.get(name) for name in secrets)) and is_installed()


class Login:
    """A source of access tokens that reuses a token until shortly before it expires."""

    def __init__(self) -> None:
        self._credential: Any = None
        self._token = ""
        self._end = 0.0

    async def headers(self) -> dict[str, str]:
        """Renew the token if it expires soon, and return the header that authorizes a request."""
        if not self._token or time.time() > self._end - _EARLY:
            # Start-up: listing the providers loads this module, and needs no event loop.
            from glue.tasks import finish_in_thread

            await finish_in_thread(self._renew)
        return {"authorization": f"Bearer {self._token}"}

    def _renew(self) -> None:
        identity = import_module("azure.identity")
        if self._credential is None:
            # Another authority is a private cloud, which Microsoft's servers do not know.
            private = bool(os.environ.get("AZURE_AUTHORITY_HOST"))
            self._credential = identity.DefaultAzureCredential(disable_instance_discovery=private)
        try:
            token = self._credential.get_token(SCOPE)
        except Exception as error:  # the message names each login that was tried
            raise ProviderError(
                "AZURE_OPENAI_API_KEY is not set, and the Entra login failed: "
                f"{one_line(str(error), 600)}",
                kind="auth",
                provider="azure",
            ) from error
        self._token, self._end = token.token, float(token.expires_on)
