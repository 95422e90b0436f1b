"""Tell systemd where the service stands (sd_notify(3)): ready, reloading, stopping, and that it is alive."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

log = logging.getLogger("agentmqtt.broker")

BEATS = 3
"""Beats in one watchdog interval."""


class Notifier:
    """Speaks to the socket that systemd named; without one every call does nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        self._path = known.get("NOTIFY_SOCKET", "")
        mine = known.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        self._watchdog = int(known.get("WATCHDOG_USEC", "0") or 0) / 1e6 if mine and self._path else 0.0

    def ready(self, status: str) -> None:
        """Clients can connect."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Files are read again; `ready` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """It was asked to end."""
        self._send("STOPPING=1\nSTATUS=ending connections")

    async def beat(self, healthy: Callable[[], str]) -> None:
        """Say that it is alive, as long as the loop turns and `healthy` returns no flaw. Ends when cancelled.

        A flaw is told as the status; systemd restarts what stays silent for a whole interval.
        """
        if not self._watchdog:
            return
        said = ""
        while True:
            flaw = healthy()
            if not flaw:
                self._send("WATCHDOG=1" + ("\nSTATUS=works again" if said else ""))
            elif flaw != said:
                self._send(f"STATUS={flaw}")
            said = flaw
            await asyncio.sleep(self._watchdog / BEATS)

    def _send(self, text: str) -> None:
        if not self._path:
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(address)
                sock.sendall(text.encode())
        except OSError as error:
            log.warning("systemd cannot be told %r: %s", text.partition("\n")[0], error)
