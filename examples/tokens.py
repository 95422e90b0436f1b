"""A program that knows nothing of agentmqtt: `tokens.py COUNT PAUSE RECORD` prints COUNT numbered lines.

Each start gives its lines another tag and begins a new file RECORD with the same lines: what the
surviving attempt wrote, in its own words.
"""

import secrets
import sys
import time
from pathlib import Path


def main() -> None:
    count, pause, record = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    tag = secrets.token_hex(2)
    with record.open("w", encoding="utf-8") as copy:
        for number in range(1, count + 1):
            line = f"{tag} token {number:04} of {count:04} ünïcode ✓\n"
            copy.write(line)
            copy.flush()
            sys.stdout.write(line)
            sys.stdout.flush()
            time.sleep(pause)


main()
