"""Which processes live, judged by a monotonic clock (PROTOCOL §5.4). Times in seconds."""

from __future__ import annotations

import dataclasses

from agentmqtt.core.ledger import Holder


@dataclasses.dataclass(slots=True)
class Lease:
    """One process: until when it counts as alive, and the names that it owns.

    `conn` is its current connection; None until it spoke after a restart of the journal.
    """

    until: float
    grace: float
    conn: int | None
    names: set[str] = dataclasses.field(default_factory=set)
    lost: bool = False


class Leases:
    """A lease per process (client ID and boot ID), shared by all its names."""

    def __init__(self, lease: float, grace: float) -> None:
        self._lease, self._grace = lease, grace
        self._leases: dict[Holder, Lease] = {}

    def hold(self, holder: Holder, name: str, now: float, conn: int | None = None) -> None:
        """A name was granted, or found with this owner after a restart."""
        lease = self._leases.get(holder)
        if lease is None:
            lease = self._leases[holder] = Lease(0, 0, conn)
        lease.names.add(name)
        self._extend(lease, now, conn)

    def drop(self, holder: Holder, name: str) -> None:
        """The name is no longer this process's."""
        lease = self._leases.get(holder)
        if lease is not None:
            lease.names.discard(name)
            if not lease.names:
                del self._leases[holder]

    def seen(self, holder: Holder, now: float, conn: int | None = None) -> frozenset[str]:
        """The process spoke. Returns its names if it is new on this connection or was lost, else nothing."""
        lease = self._leases.get(holder)
        if lease is None:
            return frozenset()
        news = lease.lost or (conn is not None and (lease.conn is None or conn > lease.conn))
        self._extend(lease, now, conn)
        return frozenset(lease.names) if news else frozenset()

    def died(self, holder: Holder, conn: int, now: float) -> frozenset[str]:
        """Its will came. It counts only for the current connection, and only if that is known (§5.4)."""
        lease = self._leases.get(holder)
        if lease is None or lease.lost or conn != lease.conn:
            return frozenset()
        lease.until, lease.grace, lease.lost = now, now + self._grace, True
        return frozenset(lease.names)

    def expire(self, now: float) -> tuple[frozenset[str], frozenset[str]]:
        """Names whose owner is lost since the last call, and names whose grace is over."""
        lost: set[str] = set()
        over: set[str] = set()
        for _holder, lease in list(self._leases.items()):
            if not lease.lost and now >= lease.until:
                lease.lost, lease.grace = True, lease.until + self._grace
                lost |= lease.names
            if lease.lost and now >= lease.grace:
                over |= lease.names
                lease.grace = float("inf")
        return frozenset(lost), frozenset(over)

    def names(self, holder: Holder) -> frozenset[str]:
        lease = self._leases.get(holder)
        return frozenset(lease.names) if lease else frozenset()

    def boots(self, client: str) -> frozenset[bytes]:
        """Boot IDs under which a client owns names."""
        return frozenset(boot for owner, boot in self._leases if owner == client)

    def _extend(self, lease: Lease, now: float, conn: int | None) -> None:
        lease.until, lease.lost = now + self._lease, False
        if conn is not None:
            lease.conn = max(conn, lease.conn or 0)
