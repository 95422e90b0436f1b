"""The stream of one client, cut into packets. A size is refused before it is buffered."""

from __future__ import annotations

from agentmqtt.broker.packets import READERS, MalformedPacket, Packet

_CONNECT_FIRST = 0x10


class PacketReader:
    """Cuts what a client sends into packets. Until `greeted` is set only a CONNECT is taken.

    `feed` bytes, then call `next` until it says None. `limit` is the largest remaining length.
    """

    __slots__ = ("_at", "_data", "_late", "_need", "greeted", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.greeted = False
        self._data = b""
        self._at = 0
        self._late = bytearray()
        self._need = 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes from the network."""
        if self._at == len(self._data) and not self._late:
            self._data, self._at = chunk, 0
        else:
            self._late += chunk

    def next(self) -> Packet | None:
        """The next whole packet, or None until more is fed.

        Raises:
            MalformedPacket: the stream cannot be understood any more; never call this again.
        """
        while True:
            packet = self._cut()
            if packet is not None or not self._late:
                return packet
            if len(self._data) - self._at + len(self._late) < self._need:
                return None
            self._data, self._at = self._data[self._at :] + bytes(self._late), 0
            self._late.clear()

    def _cut(self) -> Packet | None:
        data, at = self._data, self._at
        have = len(data) - at
        if have < 2:
            self._need = 2
            return None
        first, size, body = data[at], data[at + 1], at + 2
        if first != _CONNECT_FIRST and not self.greeted:
            raise MalformedPacket("the first packet is not CONNECT [3.1.0-1]")
        if size > 127:
            size, body = self._long_size(data, at + 1)
            if not body:
                self._need = have + 1
                return None
        if size > self.limit:
            raise MalformedPacket(f"packet of {size} bytes; the limit is {self.limit}")
        end = body + size
        if end > len(data):
            self._need = end - at
            return None
        self._at = end
        reader = READERS.get(first >> 4)
        if reader is None:
            raise MalformedPacket(f"packet type {first >> 4} from a client")
        return reader(data, body, end, first & 15)

    @staticmethod
    def _long_size(data: bytes, at: int) -> tuple[int, int]:
        """The remaining length and where the body starts; 0 there means that bytes are missing [2.2.3]."""
        size = shift = 0
        for place in range(at, min(at + 4, len(data))):
            size |= (data[place] & 127) << shift
            shift += 7
            if data[place] < 128:
                return size, place + 1
        if len(data) - at >= 4:
            raise MalformedPacket("remaining length of more than 4 bytes [2.2.3]")
        return 0, 0
