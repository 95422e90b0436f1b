"""A watcher for kill rounds: keeps events and cursor in one SQLite transaction, as an application should.

python -m tests.rounds.reader URL STATE NAME DATABASE [--stored]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3

import agentmqtt
from agentmqtt import Cursor, Event, Gap, Rewound
from agentmqtt.options import ClientOptions


def opened(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("create table if not exists item(id integer primary key, epoch int, n int, kind text, data text)")
    db.execute("create table if not exists at(token text)")
    return db


def take(db: sqlite3.Connection, item: Event | Gap | Rewound) -> None:
    at = item.cursor.position
    kind, data = (
        (item.type, item.data) if isinstance(item, Event) else (type(item).__name__, getattr(item, "reason", ""))
    )
    db.execute("begin immediate")
    db.execute("insert into item(epoch, n, kind, data) values(?,?,?,?)", (at.epoch, at.n, kind, json.dumps(data)))
    db.execute("delete from at")
    db.execute("insert into at values(?)", (item.cursor.token,))
    db.execute("commit")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("state")
    parser.add_argument("name")
    parser.add_argument("database")
    parser.add_argument("--stored", action="store_true")
    args = parser.parse_args()
    db = opened(args.database)
    kept = db.execute("select token from at").fetchone()
    start = Cursor.parse(kept[0]) if kept else "start"
    options = ClientOptions(keepalive=4)
    async with agentmqtt.connect(args.url, state=args.state, options=options) as client:
        async with client.watch(args.name, start=start, resume=False, stored=args.stored) as run:
            async for item in run:
                take(db, item)
                if isinstance(item, Event) and item.type == "am.end":
                    return


if __name__ == "__main__":
    asyncio.run(main())
