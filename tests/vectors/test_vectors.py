"""The files that other languages test themselves with say what this version does."""

from __future__ import annotations

import json

import pytest

from agentmqtt import wire
from agentmqtt.errors import WireError
from tests.vectors import messages
from tests.vectors.__main__ import FILES, HERE, text
from tests.vectors.plain import meaning

MESSAGES = json.loads((HERE / "messages.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_up_to_date(name: str) -> None:
    """If not: `python -m tests.vectors`, and see what changed for every other client."""
    assert (HERE / name).read_text(encoding="utf-8") == text(FILES[name]())


@pytest.mark.parametrize("case", MESSAGES["good"], ids=lambda case: case["name"])
def test_bytes_mean_what_the_file_says(case: dict[str, str]) -> None:
    data = bytes.fromhex(case["hex"])
    message = messages.READ[case["topic"]](data)
    assert meaning(message) == case["means"]
    assert not case["exact"] or wire.encode(message) == data


@pytest.mark.parametrize("case", MESSAGES["bad"], ids=lambda case: case["name"])
def test_bytes_that_mean_nothing_are_refused(case: dict[str, str]) -> None:
    with pytest.raises(WireError):
        messages.READ[case["topic"]](bytes.fromhex(case["hex"]))
