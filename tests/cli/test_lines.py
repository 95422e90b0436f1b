"""A program's output as pieces of text."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentmqtt.cli.lines import PIECE, Lines


def pieces(chunks: list[bytes], *, whole: bool = True, piece: int = 16) -> list[str]:
    lines = Lines(whole=whole, piece=piece)
    return [text for chunk in [*chunks, b""] for text in lines.feed(chunk)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


output = st.binary(max_size=200) | st.text("ab\nü\r€😀\x00", max_size=200).map(str.encode)


@given(output, st.lists(st.integers(0, 1000)))
def test_the_pieces_do_not_depend_on_how_it_was_read(data: bytes, places: list[int]) -> None:
    assert pieces(cut(data, places)) == pieces([data] if data else [])


@given(output, st.lists(st.integers(0, 1000)), st.booleans())
def test_nothing_is_lost(data: bytes, places: list[int], whole: bool) -> None:
    assert "".join(pieces(cut(data, places), whole=whole)) == data.decode("utf-8", "replace")


@given(output)
def test_each_piece_is_a_line_or_as_long_as_it_may_be(data: bytes) -> None:
    found = pieces([data] if data else [])
    assert all(text.endswith("\n") or len(text) == 16 for text in found[:-1])
    assert all(0 < len(text) <= 16 and "\n" not in text[:-1] for text in found)


def test_the_longest_piece_fits_into_an_event() -> None:
    [first, *_] = pieces(["😀".encode() * 3 * PIECE], piece=PIECE)
    assert len(first.encode()) <= 32_000


def test_a_line_waits_for_its_newline_unless_chunks_are_wanted() -> None:
    assert list(Lines().feed(b"a prompt ")) == []
    assert list(Lines(whole=False).feed(b"a prompt ")) == ["a prompt "]


def test_half_a_character_waits_for_the_rest() -> None:
    lines = Lines(whole=False)
    assert [list(lines.feed(data)) for data in (b"\xc3", b"\xbc", b"\xc3", b"")] == [[], ["ü"], [], ["�"]]
