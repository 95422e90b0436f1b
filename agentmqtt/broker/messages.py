"""A message on its way, and its copies for each session."""

from __future__ import annotations

_OVERHEAD = 256
"""Bytes of memory that a message costs beside its text and payload."""


class Message:
    """What was published. `kept` is false where nothing is stored for a session that is offline.

    The rest belongs to the keeper: `key` is its number on disk or 0, `references` counts the stored
    copies, `shared` tells whether that count is on disk too.
    """

    __slots__ = ("__weakref__", "cost", "kept", "key", "name", "payload", "qos", "references", "shared", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, *, kept: bool = True) -> None:
        self.topic: str = topic
        self.name: bytes = topic.encode()
        self.payload: bytes = payload
        self.qos: int = qos
        self.kept: bool = kept
        self.cost: int = len(self.name) + len(payload) + _OVERHEAD
        self.key: int = 0
        self.references: int = 0
        self.shared: bool = False


class Outgoing:
    """One copy of a message for one session.

    `number` counts the session's copies, `packet_id` is 0 until it is in flight, `received` is set
    at PUBREC (QoS 2), after which only PUBREL may be sent again [4.3.3-1].
    """

    __slots__ = ("dup", "message", "number", "packet_id", "qos", "received", "retain")

    def __init__(self, message: Message, qos: int, *, retain: bool, number: int) -> None:
        self.message: Message = message
        self.qos: int = qos
        self.retain: bool = retain
        self.number: int = number
        self.packet_id: int = 0
        self.dup: bool = False
        self.received: bool = False

    @property
    def lasting(self) -> bool:
        """Whether a persistent session keeps it while its client is away."""
        return self.qos > 0 and self.message.kept
