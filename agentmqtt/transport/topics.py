"""Which topics a subscription filter takes (MQTT 4.7)."""

from __future__ import annotations

from functools import lru_cache

SHARE = "$share/"


def is_pattern(filter_: str) -> bool:
    """Whether `filter_` can take more than one topic."""
    return "+" in filter_ or "#" in filter_


def strip_share(filter_: str) -> str:
    """The filter inside `$share/GROUP/FILTER`; any other filter as it is."""
    return filter_.split("/", 2)[2] if filter_.startswith(SHARE) and filter_.count("/") >= 2 else filter_


def matches(filter_: str, topic: str) -> bool:
    """Whether a subscription to `filter_` gets messages on `topic`. Wildcards never take a leading `$`."""
    if topic.startswith("$") and filter_[:1] in ("+", "#"):
        return False
    wanted = _levels(filter_)
    levels = topic.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(w in ("+", x) for w, x in zip(wanted, levels, strict=True))


@lru_cache(1024)
def _levels(filter_: str) -> list[str]:
    return filter_.split("/")


def is_valid_filter(filter_: str) -> bool:
    """Whether MQTT allows `filter_` in a SUBSCRIBE (4.7.1, 4.7.3)."""
    inner = strip_share(filter_)
    levels = inner.split("/")
    alone = all(level in ("+", "#") or not is_pattern(level) for level in levels)
    return bool(inner) and "\0" not in filter_ and len(filter_.encode()) < 65536 and alone and "#" not in levels[:-1]
