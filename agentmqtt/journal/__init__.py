"""The journal, as a library object; `agentmqtt journal` and the bundled broker run the same."""

from agentmqtt.journal.probe import JournalRunning
from agentmqtt.journal.service import Journal

__all__ = ["Journal", "JournalRunning"]
