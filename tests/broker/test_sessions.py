"""The session machine: order, window, packet IDs, bounds; QoS 1 and 2 in both directions."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmqtt.broker.limits import Limits
from agentmqtt.broker.messages import Message, Outgoing
from agentmqtt.broker.sessions import Session


def session(**bounds: int) -> Session:
    return Session("c", None, clean=False, bounds=Limits(**bounds))


def message(n: int, *, size: int = 0, kept: bool = True) -> Message:
    return Message(f"t/{n}", b"x" * size, 1, kept=kept)


def test_what_is_pushed_comes_out_in_order_with_fresh_ids() -> None:
    one = session()
    pushed = [one.push(message(n), n % 3) for n in range(9)]
    pulled = [one.pull() for _ in range(9)]
    assert pulled == pushed
    assert one.pull() is None
    assert [copy.packet_id for copy in pulled if copy] == [0, 1, 2, 0, 3, 4, 0, 5, 6]


def test_the_window_holds_qos_1_back_until_an_acknowledgement() -> None:
    one = session(window=2)
    for n in range(3):
        one.push(message(n), 1)
    first, second, third = one.pull(), one.pull(), one.pull()
    assert first
    assert second
    assert third is None
    assert one.acknowledged(second.packet_id) is second
    assert one.pull().message.topic == "t/2"


def test_a_packet_id_in_flight_is_never_used_again() -> None:
    one = session(window=3)
    one.push(message(0), 1)
    stuck = one.pull()
    for n in range(70_000):
        one.push(message(n), 1)
        copy = one.pull()
        assert copy.packet_id != stuck.packet_id
        one.acknowledged(copy.packet_id)


def test_acknowledgements_that_do_not_fit_change_nothing() -> None:
    one = session()
    one.push(message(0), 1)
    one.push(message(1), 2)
    first, second = one.pull(), one.pull()
    assert first
    assert second
    assert one.acknowledged(99) is one.received(99) is one.completed(99) is None
    assert one.acknowledged(second.packet_id) is None  # PUBACK for QoS 2
    assert one.received(first.packet_id) is None  # PUBREC for QoS 1
    assert one.completed(second.packet_id) is None  # PUBCOMP before PUBREC
    assert one.unacknowledged == 2


def test_qos_2_goes_from_publish_over_pubrec_to_pubcomp() -> None:
    one = session()
    one.push(message(0), 2)
    copy = one.pull()
    assert copy
    assert one.received(copy.packet_id) is copy
    assert one.received(copy.packet_id) is copy  # a repeat
    assert one.resend() == [copy]
    assert copy.received
    assert one.completed(copy.packet_id) is copy
    assert one.held == one.unacknowledged == 0


def test_redelivery_keeps_the_order_and_sets_dup() -> None:
    one = session()
    for n in range(5):
        one.push(message(n), 1)
    pulled = [one.pull() for _ in range(4)]
    assert pulled[1]
    one.acknowledged(pulled[1].packet_id)
    again = one.resend()
    assert [copy.message.topic for copy in again] == ["t/0", "t/2", "t/3"]
    assert all(copy.dup for copy in again)
    assert not one.pull().dup


def test_bounds_count_messages_and_bytes_of_everything_unacknowledged() -> None:
    few = session(queue=2)
    assert few.push(message(0), 1)
    assert few.push(message(1), 1)
    assert few.push(message(2), 1) is None
    small = session(queue_bytes=2_000)
    assert small.push(message(0, size=1_200), 1)
    in_flight = small.pull()
    assert small.push(message(1, size=1_200), 1) is None
    assert in_flight
    small.acknowledged(in_flight.packet_id)
    assert small.push(message(2, size=9_000), 1)  # one message always fits


def test_a_lost_connection_gives_up_what_is_not_kept() -> None:
    one = session(window=1)
    for n, (qos, kept) in enumerate([(1, True), (0, True), (1, False), (1, True)]):
        one.push(message(n, kept=kept), qos)
    one.pull()
    one.suspend()
    assert [copy.message.topic for copy in one.queue] == ["t/3"]
    assert len(one.inflight) == 1
    assert one.held == sum(copy.message.cost for copy in (*one.queue, *one.inflight.values()))


def test_inbound_qos_2_is_new_once_until_released() -> None:
    one = session(inbound=2)
    assert one.first_sight(7) is True
    assert one.first_sight(7) is False
    assert one.released(7) is True
    assert one.released(7) is False
    assert one.first_sight(7) is True
    assert one.first_sight(8) is True
    assert one.first_sight(9) is None


class SessionMachine(RuleBasedStateMachine):
    """Against a client that gets, loses and acknowledges at random: nothing is lost, order holds."""

    def __init__(self) -> None:
        super().__init__()
        self.one = session(window=3, queue=6)
        self.waiting: deque[int] = deque()
        self.flying: dict[int, tuple[int, int]] = {}
        self.count = 0
        self.done: set[int] = set()

    @rule(qos=st.integers(0, 2))
    def push(self, qos: int) -> None:
        taken = self.one.push(message(self.count), qos)
        assert (taken is None) == (len(self.waiting) >= 6)
        if taken:
            self.waiting.append(self.count * 10 + qos)
        self.count += 1

    @rule()
    def pull(self) -> None:
        copy = self.one.pull()
        if not self.waiting:
            assert copy is None
            return
        number, qos = divmod(self.waiting[0], 10)
        if qos and len(self.flying) == 3:
            assert copy is None
            return
        assert copy.message.topic == f"t/{number}"
        self.waiting.popleft()
        if qos:
            assert copy.packet_id not in self.flying
            self.flying[copy.packet_id] = (number, qos)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        packet_id = data.draw(st.sampled_from(sorted(self.flying)))
        _, qos = self.flying.pop(packet_id)
        if qos == 1:
            assert self.one.acknowledged(packet_id)
        else:
            assert self.one.received(packet_id)
            assert self.one.completed(packet_id)

    @rule()
    def reconnect(self) -> None:
        self.one.suspend()
        self.waiting = deque(entry for entry in self.waiting if entry % 10)
        again: list[Outgoing] = self.one.resend()
        assert [(copy.packet_id, copy.message.topic) for copy in again] == [
            (packet_id, f"t/{number}") for packet_id, (number, _) in self.flying.items()
        ]

    @invariant()
    def bytes_add_up(self) -> None:
        copies = (*self.one.queue, *self.one.inflight.values())
        assert self.one.held == sum(copy.message.cost for copy in copies)
        assert self.one.unacknowledged == len(self.waiting) + len(self.flying)


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=60, stateful_step_count=40)
