"""`connect`: a broker URL and a state file become a client (design §6)."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from agentmqtt.client import Client
from agentmqtt.options import ClientOptions
from agentmqtt.store import open_store

DEFAULT_URL = "mqtt://127.0.0.1:1883"


def state_directory() -> Path:
    """Where this user's state lives: `$AGENTMQTT_STATE_DIR`, else `$XDG_STATE_HOME/agentmqtt`."""
    if explicit := os.environ.get("AGENTMQTT_STATE_DIR"):
        return Path(explicit)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "agentmqtt"


def default_state() -> Path:
    """One file per program: its name, and a digest of where it lies."""
    program = Path(sys.argv[0] or "python").resolve()
    digest = hashlib.sha256(os.fsencode(program)).hexdigest()[:8]
    return state_directory() / f"{program.stem[:40] or 'python'}-{digest}.db"


def connect(
    url: str | None = None,
    *,
    state: str | os.PathLike[str] | None = None,
    username: str | None = None,
    password: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    options: ClientOptions | None = None,
) -> Client:
    """A client of one broker: `async with agentmqtt.connect("mqtt://gateway.local") as client`.

    Args:
        url: `mqtt://`, `mqtts://`, `ws://`, `wss://` or `unix://`, credentials in it or beside it;
            by default `$AGENTMQTT_BROKER`, else a broker on this machine.
        state: this process's file for its identity, outboxes and cursors; every process needs its
            own. By default one per program in the user's state directory; `:memory:` keeps nothing.
        tls_ca, tls_cert, tls_key: PEM files: who is trusted, and who this client is.

    Raises:
        BadURL: the URL cannot be understood.

    Entering the client raises StoreError if the state cannot be used; it does not wait for the broker.
    """
    from agentmqtt.transport.mqtt import MqttTransport  # aiomqtt is loaded when it is needed

    transport = MqttTransport(
        url or os.environ.get("AGENTMQTT_BROKER") or DEFAULT_URL,
        username=username,
        password=password,
        tls_ca=_path(tls_ca),
        tls_cert=_path(tls_cert),
        tls_key=_path(tls_key),
    )
    path = default_state() if state is None else state
    return Client(transport, lambda: open_store(path), options=options)


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
