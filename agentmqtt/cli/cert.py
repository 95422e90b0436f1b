"""`agentmqtt cert`: a private CA for a gateway, its server certificate, and certificates of devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentmqtt.cli import places
from agentmqtt.cli.common import Config, prepare, say
from agentmqtt.errors import UsageError

if TYPE_CHECKING:
    from agentmqtt.broker.authority import Authority

app = typer.Typer(help="A private CA for a gateway, its certificates and those of devices.")
Folder = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help="Where the files lie.")]


def _authority(config: Path | None, folder: Path | None) -> Authority:
    try:
        from agentmqtt.broker.authority import Authority
    except ImportError as error:
        raise UsageError(f"certificates need {error.name}; pip install 'agentmqtt[broker]'") from error
    return Authority(folder or places.home(prepare(config, 0)) / "broker" / "certs")


@app.command("init")
def init(
    name: Annotated[str, typer.Option("--name", help="What the CA is called.")] = "agentmqtt gateway CA",
    folder: Folder = None,
    config: Config = None,
) -> None:
    """Make the CA. Give its `ca.pem` to every device; `ca.key` stays here."""
    authority = _authority(config, folder)
    authority.make(name)
    typer.echo(authority.certfile)
    say("clients trust it with --tls-ca, or tls_ca=…; keep ca.key to yourself")


@app.command("server")
def server(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="What clients connect to: gateway.local 192.0.2.7")
    ],
    folder: Folder = None,
    config: Config = None,
) -> None:
    """Make the broker's certificate and key."""
    certfile, keyfile = _authority(config, folder).server(names)
    typer.echo(f"{certfile}\n{keyfile}")
    say(f'in [server]: certfile = "{certfile}", keyfile = "{keyfile}"')


@app.command("device")
def device(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The account of the device.")],
    folder: Folder = None,
    config: Config = None,
) -> None:
    """Make a client certificate. The device logs in with it if its account was made with --certificate."""
    certfile, keyfile = _authority(config, folder).device(name)
    typer.echo(f"{certfile}\n{keyfile}")
    say(f"let it in with: agentmqtt device add {name} --certificate; the broker needs client_ca = ca.pem")
