"""Workflow IDs as topic levels, and every topic of the protocol (PROTOCOL §2)."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import hashlib
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from agentmqtt.errors import BadName

MAX_LEVEL = 96
"""Bytes of an encoded name; a longer one is hashed."""
MAX_NAME = 4096
"""Bytes of a workflow ID in UTF-8: it travels in full in every request and status."""
MAX_TOPIC = 256
MAX_SLASHES = 7
NOBODY = "~"
"""The level for what belongs to no workflow."""
CLIENT_ID_LENGTH = 23

_LITERAL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BYTES = tuple(chr(byte) if byte in _LITERAL else f"%{byte:02X}" for byte in range(256))
_PLAIN = re.compile(rf"(?:[A-Za-z0-9_-]|%[0-9A-F]{{2}}){{1,{MAX_LEVEL}}}")
_HASHED = re.compile("~[a-z2-7]{32}")
_CLIENT_ID = re.compile(rf"[A-Za-z0-9]{{{CLIENT_ID_LENGTH}}}")


@functools.lru_cache(maxsize=2048)
def encode_name(workflow: str) -> str:
    """The one topic level for a workflow ID, at most 96 bytes of ASCII (§2.1).

    Raises:
        BadName: if it is empty, holds half a surrogate pair or is longer than 4,096 bytes.
    """
    raw = _utf8(workflow)
    level = "".join([_BYTES[byte] for byte in raw])
    if len(level) <= MAX_LEVEL:
        return level
    digest = hashlib.sha256(raw).digest()[:20]
    return NOBODY + base64.b32encode(digest).decode("ascii").lower()


def _utf8(workflow: str) -> bytes:
    try:
        raw = workflow.encode()
    except UnicodeEncodeError as error:
        raise BadName(
            f"workflow ID {workflow[:40]!r} holds half a surrogate pair at {error.start}; use valid Unicode"
        ) from error
    if not raw:
        raise BadName("a workflow ID must not be empty; choose a name for the run")
    if len(raw) > MAX_NAME:
        raise BadName(f"workflow ID {workflow[:40]!r}… has {len(raw)} bytes; at most {MAX_NAME} are possible")
    return raw


@functools.lru_cache(maxsize=2048)
def decode_name(level: str) -> str:
    """The workflow ID of a level. Only what `encode_name` makes is accepted, so two levels never mean one name.

    Raises:
        BadName: if the level is a hash, or not what `encode_name` makes.
    """
    if _HASHED.fullmatch(level):
        raise BadName(f"level {level} is a hash; the full workflow ID is in the requests and the status")
    if not _PLAIN.fullmatch(level):
        raise BadName(f"level {level[:100]!r} is no encoded workflow ID")
    try:
        workflow = unquote_to_bytes(level).decode()
    except UnicodeDecodeError as error:
        raise BadName(f"level {level!r} is not UTF-8 when it is decoded") from error
    if encode_name(workflow) != level:
        raise BadName(f"level {level!r} is not canonical; {workflow!r} is written {encode_name(workflow)}")
    return workflow


def is_hashed(level: str) -> bool:
    """Whether a level is the hash of a long workflow ID, which `decode_name` cannot undo."""
    return _HASHED.fullmatch(level) is not None


def matches(level: str, workflow: str) -> bool:
    """Whether `level` is the level of `workflow`: proof that a full ID belongs to a hashed topic (§2.1)."""
    try:
        return encode_name(workflow) == level
    except BadName:
        return False


def is_client_id(text: str) -> bool:
    """Whether `text` is 23 ASCII letters and digits, which every MQTT 3.1.1 broker takes (§2.2)."""
    return _CLIENT_ID.fullmatch(text) is not None


@functools.lru_cache(maxsize=2048)
def _is_level(level: str) -> bool:
    try:
        decode_name(level)
    except BadName:
        return is_hashed(level)
    return True


class Kind(enum.StrEnum):
    """What a topic carries, and so who may write it (§2.3)."""

    OUT = "out"
    IN = "in"
    OWN = "own"
    REQ = "req"
    ACK = "ack"
    STATUS = "status"
    CLIENT_REQ = "client_req"
    CLIENT_RES = "client_res"
    ALIVE = "alive"
    JOURNAL = "journal"


_OF_NAME = {"out": Kind.OUT, "ack": Kind.ACK, "status": Kind.STATUS}
_OF_NAME_AND_CLIENT = {"in": Kind.IN, "own": Kind.OWN, "req": Kind.REQ}
_OF_CLIENT = {"req": Kind.CLIENT_REQ, "res": Kind.CLIENT_RES, "alive": Kind.ALIVE}


class Parsed(NamedTuple):
    """A topic taken apart. `level` is `~` where there is no workflow, `client` is empty where there is no client."""

    level: str
    kind: Kind
    client: str


@dataclasses.dataclass(frozen=True, slots=True)
class Topics:
    """Every topic below one root (§2.3). Methods take workflow IDs and client IDs as they are.

    Raises:
        BadName: for a root that MQTT brokers do not all take, and from the methods for a bad name or client ID.
    """

    root: str = "agentmqtt/v1"

    def __post_init__(self) -> None:
        problem = _root_problem(self.root)
        if problem:
            raise BadName(f"topic root {self.root!r} {problem}")

    def out(self, workflow: str) -> str:
        """Frames of the owner."""
        return f"{self.root}/{encode_name(workflow)}/out"

    def ack(self, workflow: str) -> str:
        """Receipts and refusals of the journal."""
        return f"{self.root}/{encode_name(workflow)}/ack"

    def status(self, workflow: str) -> str:
        """Retained status, written by the journal."""
        return f"{self.root}/{encode_name(workflow)}/status"

    def own(self, workflow: str, client: str) -> str:
        """Claims of an agent."""
        return f"{self.root}/{encode_name(workflow)}/own/{_client(client)}"

    def inbox(self, workflow: str, client: str) -> str:
        """Commands of one client: the `in` topic."""
        return f"{self.root}/{encode_name(workflow)}/in/{_client(client)}"

    def req(self, workflow: str, client: str) -> str:
        """Questions of one client about one name."""
        return f"{self.root}/{encode_name(workflow)}/req/{_client(client)}"

    def client_req(self, client: str) -> str:
        """Questions of one client about no name."""
        return f"{self.root}/~/{_client(client)}/req"

    def client_res(self, client: str) -> str:
        """The journal's answers to one client."""
        return f"{self.root}/~/{_client(client)}/res"

    def alive(self, client: str) -> str:
        """Retained presence of one client; also its will."""
        return f"{self.root}/~/{_client(client)}/alive"

    def journal(self) -> str:
        """Retained presence of the journal; also its will."""
        return f"{self.root}/~/journal"

    def all_out(self) -> str:
        """Filter for frames of every name."""
        return f"{self.root}/+/out"

    def all_own(self) -> str:
        """Filter for claims of every name and client."""
        return f"{self.root}/+/own/+"

    def all_in(self) -> str:
        """Filter for commands to every name."""
        return f"{self.root}/+/in/+"

    def all_req(self) -> str:
        """Filter for questions about every name."""
        return f"{self.root}/+/req/+"

    def all_client_req(self) -> str:
        """Filter for questions about no name."""
        return f"{self.root}/~/+/req"

    def all_alive(self) -> str:
        """Filter for the presence of every client."""
        return f"{self.root}/~/+/alive"

    def parse(self, topic: str) -> Parsed | None:
        """Take a topic apart: the strict inverse of the methods above, None for a foreign topic."""
        prefix = self.root + "/"
        if not topic.startswith(prefix):
            return None
        match topic[len(prefix) :].split("/"):
            case ["~", "journal"]:
                return Parsed(NOBODY, Kind.JOURNAL, "")
            case ["~", client, tail] if tail in _OF_CLIENT and is_client_id(client):
                return Parsed(NOBODY, _OF_CLIENT[tail], client)
            case [level, tail] if tail in _OF_NAME and _is_level(level):
                return Parsed(level, _OF_NAME[tail], "")
            case [level, tail, client] if tail in _OF_NAME_AND_CLIENT and is_client_id(client) and _is_level(level):
                return Parsed(level, _OF_NAME_AND_CLIENT[tail], client)
        return None


_LONGEST_TAIL = len("/" + "x" * MAX_LEVEL + "/own/" + "x" * CLIENT_ID_LENGTH)
_TAIL_SLASHES = 3


def _root_problem(root: str) -> str:
    """What is wrong with a root; empty if nothing is."""
    if not all(root.split("/")):
        return "has an empty level; write it like agentmqtt/v1"
    if not root.isprintable() or any(char in root for char in "$+#"):
        return "holds one of $ + # or a character that cannot be printed; use letters, digits, _ and -"
    if root.count("/") + _TAIL_SLASHES > MAX_SLASHES:
        return f"has {root.count('/')} slashes; at most {MAX_SLASHES - _TAIL_SLASHES} leave room for the topics"
    size = len(root.encode())
    if size + _LONGEST_TAIL > MAX_TOPIC:
        return f"has {size} bytes; at most {MAX_TOPIC - _LONGEST_TAIL} leave room for the topics"
    return ""


def _client(client: str) -> str:
    if not is_client_id(client):
        raise BadName(f"client ID {client[:40]!r} is not {CLIENT_ID_LENGTH} ASCII letters and digits")
    return client
