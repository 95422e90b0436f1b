"""Items of a page as groups: consecutive ones of one type share a header (PROTOCOL §6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from agentmqtt import values as v
from agentmqtt.frames import Item


def of_items(items: Sequence[Item]) -> list[list[Any]]:
    """Runs of consecutive items of one type: `[epoch, first, type, [data, ...], times, spans?]` (§6.4)."""
    groups: list[list[Item]] = []
    follows: tuple[int, int, str] | None = None
    for item in items:
        if (item.epoch, item.first, item.type) == follows:
            groups[-1].append(item)
        else:
            groups.append([item])
        follows = (item.epoch, item.first + item.span, item.type)
    return [_group(group) for group in groups]


def _group(items: list[Item]) -> list[Any]:
    head = items[0]
    group = [head.epoch, head.first, head.type, [item.data for item in items], _times(items)]
    spans = [item.span for item in items]
    if any(span != 1 for span in spans):
        group.append(spans)
    return group


def _times(items: list[Item]) -> int | list[int]:
    """One time for all, or the first and then the differences."""
    times = [item.time for item in items]
    if len(set(times)) == 1:
        return times[0]
    return [times[0], *(after - before for before, after in pairwise(times))]


def to_items(value: Any) -> tuple[Item, ...]:
    """The inverse of `of_items`. Raises Misfit: it is something else."""
    items: list[Item] = []
    for group in v.array(value):
        if type(group) is not list or len(group) < 5:
            raise v.Misfit(f"holds {v.show(group)}, not [epoch, first, type, [data, ...], times]")
        items += _read_group(group)
    return tuple(items)


def _read_group(group: list[Any]) -> list[Item]:
    epoch, first, kind = v.count(group[0]), v.count(group[1]), v.label(group[2])
    datas = v.array(group[3])
    times = _read_times(group[4], len(datas))
    spans = _read_spans(group[5], len(datas)) if len(group) > 5 else [1] * len(datas)
    firsts = accumulate(spans, initial=first)
    return [
        Item(epoch, at, span, time, kind, data if type(data) is str else v.any_value(data))
        for at, span, time, data in zip(firsts, spans, times, datas, strict=False)
    ]


def _read_times(value: Any, length: int) -> list[int]:
    if type(value) is not list:
        return [v.count(value)] * length
    if len(value) != length or not all(type(step) is int for step in value):
        raise v.Misfit(f"holds {len(value)} times for {length} events")
    return [v.count(time) for time in accumulate(value)]


def _read_spans(value: Any, length: int) -> list[int]:
    spans = [v.count(span) for span in v.array(value)]
    if len(spans) != length or 0 in spans:
        raise v.Misfit(f"holds {len(spans)} spans for {length} events, or one of 0")
    return spans
