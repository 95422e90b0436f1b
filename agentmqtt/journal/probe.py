"""One journal per root: look for a living one before taking its identity (PROTOCOL §9.1)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import string

from agentmqtt import wire
from agentmqtt.errors import AgentMQTTError, WireError
from agentmqtt.frames import Listing, ListRuns
from agentmqtt.names import Topics
from agentmqtt.options import JournalOptions
from agentmqtt.transport.base import Delivery, Hello, Transport

WAIT = 1.0
_ALPHABET = string.ascii_letters + string.digits


class JournalRunning(AgentMQTTError):
    """Another journal answers on this root."""


def random_id() -> str:
    """A client ID that nobody has: 23 letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(23))


def journal_id(root: str) -> str:
    """The client ID of the journal of a root: the second one to take it ends the first."""
    digest = base64.b32encode(hashlib.sha256(root.encode()).digest()).decode().lower()
    return f"journal{digest}"[:23]


async def refuse_if_running(transport: Transport, topics: Topics, options: JournalOptions) -> None:
    """Ask under a random client ID whether a journal answers.

    Raises:
        JournalRunning: one does.
        LinkError: the broker cannot be reached, or refuses.
    """
    client = random_id()
    answered = asyncio.Event()

    def on_message(delivery: Delivery) -> None:
        delivery.ack()
        if delivery.topic == topics.client_res(client) and _is_listing(delivery.payload):
            answered.set()

    connection = await transport.connect(Hello(client, options.keepalive, on_message, session_expiry=0))
    try:
        await connection.subscribe([topics.client_res(client)])
        await connection.publish(topics.client_req(client), wire.encode(ListRuns(1, limit=1)))
        async with asyncio.timeout(WAIT):
            await answered.wait()
    except TimeoutError:
        return
    finally:
        await connection.close()
    raise JournalRunning(
        f"a journal already runs for {options.root} on {transport.describe()}; stop it first, or choose another --root"
    )


def _is_listing(payload: bytes) -> bool:
    try:
        return isinstance(wire.decode_response(payload), Listing)
    except WireError:
        return False
