"""`glue providers` and `glue models`: what can be named."""

from __future__ import annotations

import json
import sys

import click


@click.command()
@click.option("--check", "names", multiple=True, metavar="NAME", help="Send one tiny request and say what happened.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def providers(names: tuple[str, ...], as_json: bool) -> None:
    """List the providers: name, wire, key variable and whether it is set, default model, context window.

    --check leaves with 0 where the model answered, 2 for a wrong name, key or address, 1 for a host that does
    not answer.
    """
    from glue.providers import models as listing

    if names:
        sys.exit(max([_check(name) for name in names]))
    click.echo(json.dumps(listing.provider_rows(), indent=2) if as_json else listing.providers_text())


def _check(name: str) -> int:
    import anyio

    from glue.providers.models import check
    from glue.text import one_line

    async def ask() -> tuple[int, str]:
        return await check(name)

    code, text = anyio.run(ask)
    click.echo(one_line(text) if code == 0 else f"glue: {one_line(text)}", err=code != 0)
    return code


@click.command()
@click.argument("provider", required=False)
@click.option("--server", is_flag=True, help="Ask the provider's server which models it has.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models(provider: str | None, server: bool, as_json: bool) -> None:
    """List known models with windows and prices; PROVIDER narrows it down, --server asks its server."""
    from glue.providers import default, lookup
    from glue.providers import models as listing

    if server:
        import anyio

        names = anyio.run(listing.server_models, provider or default())
        click.echo(json.dumps(names, indent=2) if as_json else "\n".join(names))
        return
    name = lookup(provider).name if provider else ""
    click.echo(json.dumps(listing.model_rows(name), indent=2) if as_json else listing.models_text(name))
