"""Channels by name over MQTT: owner and watchers meet on a workflow ID, and both resume."""

from agentmqtt.client import Client
from agentmqtt.commands import Receipt
from agentmqtt.connecting import connect
from agentmqtt.errors import (
    AgentMQTTError,
    BadName,
    BadURL,
    BadValue,
    ChannelError,
    Ended,
    Fenced,
    Gone,
    LinkError,
    LinkLost,
    NoJournal,
    Owned,
    Refused,
    StoreError,
    StoreFull,
    StoreGone,
    StoreInUse,
    StoreTooNew,
    StoreUnusable,
    TakenOver,
    TooLarge,
    Unanswered,
    Unreachable,
    UsageError,
    WireError,
)
from agentmqtt.frames import Row, Status
from agentmqtt.options import ClientOptions
from agentmqtt.owner import OwnedRun
from agentmqtt.received import Interruption, Mode, ReceivedCommand
from agentmqtt.types import CommandState, Cursor, Event, Gap, OwnerState, Position, Rewound, RunState, When
from agentmqtt.version import VERSION
from agentmqtt.watcher import WatchedRun

__version__ = VERSION

__all__ = [
    "AgentMQTTError",
    "BadName",
    "BadURL",
    "BadValue",
    "ChannelError",
    "Client",
    "ClientOptions",
    "CommandState",
    "Cursor",
    "Ended",
    "Event",
    "Fenced",
    "Gap",
    "Gone",
    "Interruption",
    "LinkError",
    "LinkLost",
    "Mode",
    "NoJournal",
    "Owned",
    "OwnedRun",
    "OwnerState",
    "Position",
    "Receipt",
    "ReceivedCommand",
    "Refused",
    "Rewound",
    "Row",
    "RunState",
    "Status",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreInUse",
    "StoreTooNew",
    "StoreUnusable",
    "TakenOver",
    "TooLarge",
    "Unanswered",
    "Unreachable",
    "UsageError",
    "WatchedRun",
    "When",
    "WireError",
    "__version__",
    "connect",
]
