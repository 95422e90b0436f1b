"""What systemd is told: over a real datagram socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmqtt.broker.activation import inherited
from agentmqtt.broker.notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(20)
        yield sock


def notifier(systemd: socket.socket, **more: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": systemd.getsockname(), **more})


def test_where_the_service_stands(systemd: socket.socket) -> None:
    told = notifier(systemd)
    told.ready("listening")
    told.reloading()
    told.stopping()
    assert systemd.recv(999) == b"READY=1\nSTATUS=listening"
    assert systemd.recv(999).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert systemd.recv(999).startswith(b"STOPPING=1\n")


async def test_it_beats_only_while_it_is_sound(systemd: socket.socket) -> None:
    flaws = ["", "the store fails", "the store fails", ""]
    told = notifier(systemd, WATCHDOG_USEC="30000", WATCHDOG_PID=str(os.getpid()))
    beating = asyncio.create_task(told.beat(lambda: flaws.pop(0) if flaws else ""))
    heard = [await asyncio.to_thread(systemd.recv, 999) for _ in range(3)]
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    assert heard == [b"WATCHDOG=1", b"STATUS=the store fails", b"WATCHDOG=1\nSTATUS=works again"]


async def test_without_systemd_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    told = Notifier({})
    told.ready("x")
    await told.beat(lambda: "")
    assert caplog.text == ""
    Notifier({"NOTIFY_SOCKET": "/nowhere/at/all"}).ready("x")
    assert "systemd cannot be told 'READY=1'" in caplog.text


def test_sockets_of_another_process_are_not_taken() -> None:
    assert inherited({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == []
    assert inherited({}) == []
