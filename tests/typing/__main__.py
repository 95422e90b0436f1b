"""Every symbol that users can reach from `agentmqtt` has a known type: `python -m tests.typing`.

pyright judges the whole package; this fails for what the public handles and values expose.
"""

from __future__ import annotations

import json
import subprocess
import sys

PUBLIC = (
    "client.Client",
    "commands.Receipt",
    "connecting.connect",
    "errors",
    "frames",
    "options",
    "owner.OwnedRun",
    "received",
    "types",
    "watcher.WatchedRun",
    "journal.service.Journal",
    "broker.server.Broker",
    "broker.limits",
    "transport.base",
    "transport.mqtt.MqttTransport",
    "store.base",
)


def main() -> int:
    command = ["pyright", "--verifytypes", "agentmqtt", "--ignoreexternal", "--outputjson"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    public = tuple(f"agentmqtt.{name}" for name in PUBLIC)
    symbols = [symbol for symbol in report["typeCompleteness"]["symbols"] if symbol["name"].startswith(public)]
    bad = [symbol["name"] for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
    print(f"{len(symbols)} public symbols, {len(bad)} without a known type")
    for name in bad:
        print("  ", name)
    return 1 if bad or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
