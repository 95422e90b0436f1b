"""Does a client in any language keep the protocol? `agentmqtt conformance CLIENT-COMMAND` (docs/CONFORMANCE.md).

A broker with a journal runs in this process behind a proxy that cuts links. The client under test is a program
that takes orders as JSON lines on stdin and tells what it sees as JSON lines on stdout.
"""

from agentmqtt.conformance.run import CASES, Result, run

__all__ = ["CASES", "Result", "run"]
