"""What went wrong on the wire, in the words of agentmqtt.errors. The only place that translates."""

from __future__ import annotations

import socket
import ssl

from agentmqtt.errors import LinkError, LinkLost, Refused, TakenOver, Unreachable
from agentmqtt.transport.url import Address
from agentmqtt.transport.websocket import WebSocketError

TAKEN_OVER = 0x8E

OTHER_VERSION = frozenset({0x01, 0x80, 0x81, 0x82, 0x83, 0x84})
"""CONNACK codes with which servers answer a CONNECT of a version that they do not speak."""

_CREDENTIALS = frozenset({0x86, 0x87, 0x8C})
_LATER = frozenset({0x88, 0x89, 0x93, 0x97, 0x9C, 0x9D, 0x9F, 0xA0})
_ENDED_FOR_GOOD = frozenset({0x86, 0x87, 0x8A, 0x8C})


class NoContact(Unreachable):
    """The address answers, but not as a broker of this protocol version would: another version may fit."""


def connack(code: int, name: str, address: Address, client_id: str) -> LinkError:
    """The error for a CONNACK that is not a success."""
    if code in OTHER_VERSION:
        return NoContact(f"the broker at {address} answered {name!r} to the first packet")
    if code in _LATER:
        return Unreachable(f"the broker at {address} takes no client now ({name}); try again later")
    if code in _CREDENTIALS:
        who = f"user {address.username!r}" if address.username else "a client without a user name"
        return Refused(f"the broker at {address} refuses {who} ({name}); check user name and password")
    if code == 0x85:
        return Refused(f"the broker at {address} refuses the client ID {client_id!r} ({name}); use another one")
    return Refused(f"the broker at {address} refuses client {client_id!r} ({name})")


def disconnect(code: int, name: str, address: Address, client_id: str) -> LinkError:
    """The error for a DISCONNECT that the broker sent."""
    if code == TAKEN_OVER:
        return TakenOver(
            f"another process connected to {address} as {client_id!r}; this one has stopped. "
            "Give each process a state directory of its own"
        )
    if code in _ENDED_FOR_GOOD:
        return Refused(f"the broker at {address} ended the connection of {client_id!r} ({name})")
    return LinkLost(f"the broker at {address} ended the connection ({name})")


def puback(code: int, name: str, topic: str) -> Refused:
    """The error for a PUBACK that is not a success."""
    return Refused(f"the broker refused a message on {topic} ({name}, 0x{code:02X}); check its access rules")


def garbled(address: Address) -> LinkLost:
    """The error for bytes that are not MQTT."""
    return LinkLost(f"{address} sent bytes that are not MQTT; is it an MQTT broker?")


def ended(exc: Exception | None, address: Address) -> LinkError:
    """The error for a byte stream that ended without a word."""
    if isinstance(exc, ssl.SSLError) and (refusal := _certificate_refused(exc, address)):
        return refusal
    return LinkLost(f"the connection to {address} ended{f': {_words(exc)}' if exc else ''}")


def dial(exc: Exception, address: Address, *, known: bool) -> LinkError:
    """The error for a stream that could not be opened. `known`: it has worked before, so the fault may pass."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        hint = "give its CA as tls_ca, or use the name that its certificate carries"
        text = f"the certificate of {address} is not trusted ({exc.verify_message}); {hint}"
        return Unreachable(text) if known else Refused(text)
    if isinstance(exc, ssl.SSLError) and (refusal := _certificate_refused(exc, address)):
        return refusal
    if isinstance(exc, ssl.SSLError) or (
        address.tls and isinstance(exc, ConnectionResetError | ConnectionAbortedError)
    ):
        return Unreachable(f"no TLS with {address} ({_words(exc)}); is it a TLS port?")
    if isinstance(exc, WebSocketError):
        return _websocket(exc, address)
    if isinstance(exc, socket.gaierror):
        return Unreachable(f"the name {address.host!r} does not resolve ({exc.strerror}); check it and the network")
    if isinstance(exc, ConnectionRefusedError | FileNotFoundError):
        return Unreachable(f"no broker listens at {address.place}; start one with: agentmqtt broker")
    return Unreachable(f"{address.place} cannot be reached ({_words(exc)}); check address and network")


def _websocket(exc: WebSocketError, address: Address) -> LinkError:
    if exc.status in (401, 403):
        return Refused(f"{address}: {exc}; check user name and password")
    return Unreachable(f"{address}: {exc}; is the path right?")


def _certificate_refused(exc: ssl.SSLError, address: Address) -> Refused | None:
    """TLS alerts about our certificate: sent by the peer, and in TLS 1.3 only after the handshake."""
    reason = exc.reason or ""
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")):
        return Refused(f"{address} does not accept the client's certificate ({reason}); check tls_cert and tls_key")
    return None


def _words(exc: BaseException) -> str:
    if isinstance(exc, ssl.SSLError):
        return exc.reason or str(exc)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
