"""Channels with a history: disk A owned epoch 1 (process A, request `req-1`) and stored events 1.1 to 1.4."""

from __future__ import annotations

from typing import Any

from agentmqtt.core.ledger import Ledger
from agentmqtt.frames import Grant
from tests.core import make
from tests.core.make import BOOT_A2, BOOT_B, DISK_B, END, INC, NOW, OTHER, RELEASE, WF, at, claim, frame, texts, told


def nobody() -> Ledger:
    return Ledger(WF)


def alive() -> Ledger:
    return make.ledger(*texts(4))


def lost() -> Ledger:
    ledger = alive()
    ledger.owner_lost()
    return ledger


def empty() -> Ledger:
    """Alive, and nothing was stored yet."""
    return make.ledger()


def released() -> Ledger:
    return make.ledger(*texts(3), RELEASE)


def ended() -> Ledger:
    return make.ledger(*texts(3), END)


def trimmed() -> Ledger:
    ledger = lost()
    ledger.trim(at("1.2"))
    return ledger


def granted(ledger: Ledger, **changes: Any) -> Ledger:
    """One more grant."""
    effects = ledger.on_claim(claim(request=b"req-2", inc=INC, **changes), "a", NOW, OTHER)
    assert isinstance(told(effects)[0], Grant)
    return ledger


def restarted() -> Ledger:
    """Disk A came back with another process: epoch 2, empty."""
    return granted(lost(), boot=BOOT_A2, mine=1, replaces=1)


def moved() -> Ledger:
    """Disk B took the name: epoch 2 with one event, alive."""
    ledger = granted(lost(), instance=DISK_B, boot=BOOT_B, replaces=1)
    ledger.on_frame(frame("2.1", texts(1), parent=at("1.4")), NOW)
    return ledger


def withdrawn() -> Ledger:
    """Disk A withdrew to 1.2 in a new process: epoch 2, empty."""
    return granted(lost(), boot=BOOT_A2, mine=1, replaces=1, cut=at("1.2"))


def survived() -> Ledger:
    """Disk A came from another journal's store, where its epoch was 5: it is known as `evidence`."""
    ledger = nobody()
    ledger.on_claim(claim(request=b"req-1", mine=5, replaces=5, inc=OTHER), "a", NOW, INC)
    ledger.on_frame(frame("1.1", texts(1)), NOW)
    ledger.owner_lost()
    return ledger


def survived_empty() -> Ledger:
    ledger = nobody()
    ledger.on_claim(claim(request=b"req-1", mine=5, replaces=5, inc=OTHER), "a", NOW, INC)
    return ledger
