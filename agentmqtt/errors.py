"""Every error of agentmqtt: one root, whose fault it is in the type, retry as one bit.

AgentMQTTError
├── UsageError (ValueError)        the caller's argument is wrong; nothing was sent
│   ├── BadName                    a workflow ID that no topic can carry
│   ├── BadValue                   a value outside the CBOR subset
│   ├── TooLarge                   an event or group above its limit
│   └── BadURL                     a broker URL that cannot be understood
├── WireError                      a peer sent bytes that are not the protocol
├── LinkError                      the connection to the broker
│   ├── Unreachable                retryable: nobody answers there
│   ├── LinkLost                   retryable: the connection ended
│   ├── Congested                  retryable: too much waits to be sent
│   ├── Refused                    the broker does not let this client in
│   └── TakenOver                  another process uses this client's identity
├── ListenError                    the bundled broker cannot listen where it should
├── StoreError                     a file on this machine
│   ├── StoreFull                  retryable: no room on the disk
│   ├── StoreInUse                 another living process has it
│   ├── StoreUnusable              a directory or file that cannot be read or written
│   ├── StoreGone                  removed, replaced or damaged while it was open
│   └── StoreTooNew                written by a newer version
└── ChannelError                   the journal's word about a name
    ├── NoJournal                  retryable: no journal on this broker
    ├── Owned                      retryable: a living owner has the name
    ├── Fenced                     a newer owner has the name; `unsent` events were left
    ├── Ended                      the run has ended; `result` holds how
    ├── Gone                       a cursor that is no longer in the log
    └── Unanswered                 nobody answered a question in time
"""

from __future__ import annotations

from typing import Any, ClassVar


class AgentMQTTError(Exception):
    """Root of every error that this package raises.

    `retryable` is true where the same call can succeed later without a change.
    """

    retryable: ClassVar[bool] = False


class UsageError(AgentMQTTError, ValueError):
    """The caller's argument is wrong; nothing was sent and nothing was lost."""


class BadName(UsageError):
    """A workflow ID that no topic can carry (PROTOCOL §2)."""


class BadValue(UsageError):
    """A value outside the CBOR subset that every client can read (PROTOCOL §3)."""


class TooLarge(UsageError):
    """An event, group or message above its limit; the message names size and limit."""


class BadURL(UsageError):
    """A broker URL that cannot be understood."""


class WireError(AgentMQTTError):
    """Bytes from a peer that are not the protocol (PROTOCOL §3)."""


class LinkError(AgentMQTTError):
    """The connection to the broker."""


class Unreachable(LinkError):
    """Nobody answers at the broker's address."""

    retryable = True


class LinkLost(LinkError):
    """The connection ended before the answer came."""

    retryable = True


class Congested(LinkError):
    """More waits to be sent than the link may hold; the message was not taken."""

    retryable = True


class Refused(LinkError):
    """The broker does not let this client in, or not on this topic.

    `filters` are the subscriptions that were not granted, where it is about subscriptions.
    """

    def __init__(self, message: str, *, filters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.filters = filters


class TakenOver(LinkError):
    """Another process connected with this client's identity; this one has stopped."""


class ListenError(AgentMQTTError):
    """The bundled broker cannot listen at an address; the message names it, and who has the port if that shows."""


class StoreError(AgentMQTTError):
    """A file or directory on this machine."""


class StoreFull(StoreError):
    """No room on the disk; nothing was written in part."""

    retryable = True


class StoreInUse(StoreError):
    """Another living process holds this store."""


class StoreUnusable(StoreError):
    """A directory or file that cannot be read or written."""


class StoreGone(StoreError):
    """The file was removed, replaced or found damaged while it was open; opening it anew helps."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of agentmqtt."""


class ChannelError(AgentMQTTError):
    """The journal's word about a name."""


class NoJournal(ChannelError):
    """No journal answers on this broker."""

    retryable = True


class Owned(ChannelError):
    """A living owner has the name and no takeover was asked for."""

    retryable = True


class Fenced(ChannelError):
    """A newer owner has the name; this one must stop.

    `unsent` counts the events that this owner emitted and the journal did not store.
    """

    def __init__(self, message: str, *, unsent: int = 0) -> None:
        super().__init__(message)
        self.unsent = unsent


class Ended(ChannelError):
    """The run has ended; `outcome` is done, failed or cancelled, `result` what it left."""

    def __init__(self, message: str, *, outcome: str = "done", result: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.result = result


class Gone(ChannelError):
    """A cursor that is no longer in the log: trimmed or withdrawn."""


class Unanswered(ChannelError):
    """Nobody answered a question in time. That is no denial (PROTOCOL §7.7)."""
