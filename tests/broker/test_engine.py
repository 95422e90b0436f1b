"""What the engine promises to its links, without any."""

from __future__ import annotations

from agentmqtt.broker.sessions import Origin
from tests.broker.wire import engine


class Link:
    """A link that does nothing by itself."""

    def wake(self, origin: Origin | None = None) -> None: ...
    def flush(self) -> None: ...
    def taken_over(self) -> None: ...
    def evict(self, reason: str) -> None: ...
    def stop(self) -> None: ...


def test_a_link_that_ends_late_does_not_end_the_session_of_its_successor() -> None:
    broker = engine()
    old, new = Link(), Link()
    session, _ = broker.attach(old, "c", None, clean=False)
    again, present = broker.attach(new, "c", None, clean=False)
    assert (again, present) == (session, True)
    broker.detach(session, old)
    assert session.link is new
    broker.detach(session, new)
    assert session.link is None
    assert session.offline_since is not None
