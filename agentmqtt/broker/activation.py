"""Sockets that systemd opened before this process began (sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import NamedTuple

from agentmqtt.broker.limits import DEFAULT_PORTS
from agentmqtt.errors import UsageError

FIRST = 3
"""The first inherited file descriptor."""


class Inherited(NamedTuple):
    """A listening socket and what is spoken on it: mqtt, mqtts, ws or wss."""

    scheme: str
    sock: socket.socket


def inherited(environment: MutableMapping[str, str] | None = None) -> list[Inherited]:
    """The sockets that were handed to this process, once: they are not handed on to its children.

    `FileDescriptorName=` says what is spoken on each; a socket without one of our names speaks mqtt.

    Raises:
        UsageError: one is no listening stream socket.
    """
    known = os.environ if environment is None else environment
    if known.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = int(known.pop("LISTEN_FDS", "0") or 0)
    names = known.pop("LISTEN_FDNAMES", "").split(":")
    known.pop("LISTEN_PID", None)
    return [_take(FIRST + n, names[n] if n < len(names) else "") for n in range(count)]


def _take(number: int, name: str) -> Inherited:
    os.set_inheritable(number, False)
    try:
        sock = socket.socket(fileno=number)
        listens = sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise UsageError(f"file descriptor {number} from systemd is no socket: {error.strerror}") from error
    if not listens:
        raise UsageError(f"file descriptor {number} from systemd is no listening stream socket; see ListenStream=")
    return Inherited(name if name in DEFAULT_PORTS else "mqtt", sock)
