"""What a client that is logged in says, and what it is told: packets in, engine calls, packets out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from agentmqtt.broker import packets
from agentmqtt.broker.engine import Engine
from agentmqtt.broker.messages import Outgoing
from agentmqtt.broker.packets import MalformedPacket
from agentmqtt.broker.sessions import Origin, Session

log = logging.getLogger("agentmqtt.broker")

Action: TypeAlias = Literal["publish", "subscribe", "receive"]


class Identity(Protocol):
    """Who logged in, and what it may do."""

    @property
    def user(self) -> str | None: ...

    def verdict(self, action: Action, topic: str) -> bool | None:
        """The answer if it is known now."""

    async def ask(self, action: Action, topics: Sequence[str]) -> list[bool]:
        """The answers; `verdict` then knows them for a while."""

    def flaw(self) -> str:
        """Why this login counts no more; empty while it does."""


class Speaker(Origin, Protocol):
    """The connection that a conversation runs over."""

    def send(self, data: bytes) -> None: ...
    def wake(self) -> None: ...
    def goodbye(self) -> None:
        """The client said DISCONNECT."""

    def consult(self, action: Action, topics: Sequence[str], then: Callable[[list[bool]], None]) -> None:
        """Ask the identity, later call `then` with the answers."""


class Conversation:
    """One client, one session."""

    __slots__ = ("_asking", "_engine", "_identity", "_ready", "_session", "_speaker", "_unsafe")

    def __init__(self, engine: Engine, session: Session, identity: Identity, speaker: Speaker) -> None:
        self._engine = engine
        self._session = session
        self._identity = identity
        self._speaker = speaker
        self._ready = deque(session.resend())
        self._unsafe = 0
        self._asking = False

    # -------------------------------------------------------------- out

    def next(self) -> bytes | None:
        """The next packet that is due to this client: first what was in flight, then what waits."""
        copy = self._ready.popleft() if self._ready else self._pull()
        return None if copy is None else encode(copy)

    def _pull(self) -> Outgoing | None:
        session = self._session
        if session.backlog or session.queue.gap:
            self._engine.refill(session)
        while (head := session.peek()) is not None:
            verdict = self._identity.verdict("receive", head.message.topic)
            if verdict is None:
                self._ask_for(head.message.topic)
                return None
            if not verdict:
                self._settle(session.skip())
            elif head.qos == 2:
                self._pull_exactly_once()
            else:
                # What is not safe yet goes first: the order of a topic is kept whatever its QoS.
                return None if self._unsafe else self._engine.pull(session)
            if self._ready:
                return self._ready.popleft()
        return None

    def _pull_exactly_once(self) -> None:
        """Send it once its packet ID is safe: a restart that forgot it would use another, or this one again."""
        copy = self._engine.pull(self._session)
        if copy is not None:
            self._unsafe += 1
            self._engine.keeper.then(self._is_safe, copy)

    def _is_safe(self, copy: Outgoing) -> None:
        self._unsafe -= 1
        self._ready.append(copy)
        self._speaker.wake()

    def _ask_for(self, topic: str) -> None:
        if not self._asking:
            self._asking = True
            self._speaker.consult("receive", [topic], self._asked)

    def _asked(self, answers: list[bool]) -> None:
        self._asking = False
        self._speaker.wake()

    def _settle(self, copy: Outgoing | None) -> None:
        if copy is None:
            return
        if self._session.noted(copy):
            self._engine.keeper.settled(self._session, copy)
        self._speaker.wake()

    # -------------------------------------------------------------- in

    def handle(self, packet: packets.Packet) -> None:
        """Do what the client asks.

        Raises:
            MalformedPacket: the connection has to be closed.
        """
        match packet:
            case packets.Publish():
                self._on_publish(packet)
            case packets.PubAck() | packets.PubRec() | packets.PubRel() | packets.PubComp():
                self._on_flight(packet)
            case packets.Subscribe():
                self._on_subscribe(packet)
            case packets.Unsubscribe():
                self._on_unsubscribe(packet)
            case packets.PingReq():
                self._speaker.send(packets.PINGRESP)
            case packets.Disconnect():
                self._speaker.goodbye()
            case packets.Connect():
                raise MalformedPacket("a second CONNECT [3.1.0-2]")

    def _on_publish(self, packet: packets.Publish) -> None:
        topic = packet.topic
        if topic[0] == "$" or topic.count("/") >= self._engine.limits.max_levels:
            raise MalformedPacket(f"PUBLISH to {topic[:80]!r}, which is not for clients [4.7.2]")
        allowed = self._identity.verdict("publish", topic)
        if allowed is None:
            self._ask_first("publish", [topic], lambda answers: self._publish(packet, allowed=answers[0]))
        else:
            self._publish(packet, allowed=allowed)

    def _publish(self, packet: packets.Publish, *, allowed: bool) -> None:
        fresh = packet.qos < 2 or self._first_sight(packet.packet_id)
        if allowed and fresh:
            self._engine.publish(packet.topic, packet.payload, packet.qos, retain=packet.retain, origin=self._speaker)
        # A refused PUBLISH is acknowledged all the same: 3.1.1 has no other way to go on [3.3.5-2].
        if packet.qos == 1:
            self._engine.keeper.then(self._speaker.send, packets.puback(packet.packet_id))
        elif packet.qos == 2:
            self._engine.keeper.then(self._speaker.send, packets.pubrec(packet.packet_id))

    def _first_sight(self, packet_id: int) -> bool:
        fresh = self._session.first_sight(packet_id)
        if fresh is None:
            raise MalformedPacket(f"more than {self._engine.limits.inbound} QoS 2 messages without their PUBREL")
        if fresh and not self._session.clean:
            self._engine.keeper.inbound(self._session, packet_id)
        return fresh

    def _on_flight(self, packet: packets.PubAck | packets.PubRec | packets.PubRel | packets.PubComp) -> None:
        match packet:
            case packets.PubAck():
                self._settle(self._session.acknowledged(packet.packet_id))
            case packets.PubRec():
                self._on_pubrec(packet.packet_id)
            case packets.PubRel():
                self._on_pubrel(packet.packet_id)
            case packets.PubComp():
                self._settle(self._session.completed(packet.packet_id))

    def _on_pubrec(self, packet_id: int) -> None:
        copy = self._session.received(packet_id)
        if copy is not None and self._session.noted(copy):
            self._engine.keeper.progressed(self._session, copy)
        self._engine.keeper.then(self._speaker.send, packets.pubrel(packet_id))

    def _on_pubrel(self, packet_id: int) -> None:
        if self._session.released(packet_id) and not self._session.clean:
            self._engine.keeper.released(self._session, packet_id)
        self._engine.keeper.then(self._speaker.send, packets.pubcomp(packet_id))

    def _on_subscribe(self, packet: packets.Subscribe) -> None:
        patterns = [pattern for pattern, _ in packet.filters]
        known = [self._identity.verdict("subscribe", pattern) for pattern in patterns]
        verdicts = [bool(verdict) for verdict in known]
        if None in known:
            self._ask_first("subscribe", patterns, lambda answers: self._subscribe(packet, answers))
        else:
            self._subscribe(packet, verdicts)

    def _subscribe(self, packet: packets.Subscribe, verdicts: list[bool]) -> None:
        codes = [
            qos if allowed and self._engine.subscribe(self._session, pattern, qos) else packets.FAILURE
            for (pattern, qos), allowed in zip(packet.filters, verdicts, strict=True)
        ]
        self._engine.keeper.then(self._speaker.send, packets.suback(packet.packet_id, codes))

    def _on_unsubscribe(self, packet: packets.Unsubscribe) -> None:
        for pattern in packet.filters:
            self._engine.unsubscribe(self._session, pattern)
        self._engine.keeper.then(self._speaker.send, packets.unsuback(packet.packet_id))

    def _ask_first(self, action: Action, topics: Sequence[str], then: Callable[[list[bool]], None]) -> None:
        """Go on with `then` once the answers are known; nothing overtakes it."""
        self._speaker.hold(action)

        def answered(answers: list[bool]) -> None:
            self._speaker.release(action)
            then(answers)

        self._speaker.consult(action, topics, answered)


def needs_disk(packet: packets.Packet) -> bool:
    """Whether its answer, or what it changes, may have to be safe first."""
    match packet:
        case packets.Publish():
            return packet.qos > 0 or packet.retain
        case packets.PubRec() | packets.PubRel() | packets.Subscribe() | packets.Unsubscribe():
            return True
    return False


def encode(copy: Outgoing) -> bytes:
    """The packet that carries a copy, or the PUBREL that its PUBREC asked for."""
    if copy.received:
        return packets.pubrel(copy.packet_id)
    message = copy.message
    return packets.publish(message.name, message.payload, copy.qos, copy.packet_id, dup=copy.dup, retain=copy.retain)
