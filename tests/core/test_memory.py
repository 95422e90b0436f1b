"""What a log says was done already (PROTOCOL §5.6)."""

from __future__ import annotations

import pytest

from agentmqtt.core.memory import Answered, Memory
from agentmqtt.types import Entry, Value


def remembered(*entries: Entry) -> Memory:
    memory = Memory()
    for entry in entries:
        memory.add(entry)
    return memory


def test_results_questions_and_children() -> None:
    memory = remembered(
        Entry("am.step", {"name": "plan", "key": "k", "n": 1, "result": [1]}),
        Entry("am.step", {"name": "plan", "key": "k", "n": 2}),
        Entry("am.ask", {"id": "q-1", "question": "Deploy?"}),
        Entry("am.answer", {"id": "q-1", "value": "yes", "by": "phone"}),
        Entry("am.answer", {"id": "q-2", "value": None, "expired": True}),
        Entry("am.child", {"name": "search", "wf": "run/search"}),
        Entry("text", "hello"),
    )
    assert memory.result("k", 1) == [1]
    assert memory.has_result("k", 2)
    assert memory.result("k", 2) is None
    assert not memory.has_result("k", 3)
    assert memory.asked == {"q-1"}
    assert (memory.steps_of("k"), memory.steps_of("other")) == (2, 0)
    assert (memory.questions_of("q"), memory.questions_of("p")) == (1, 0)
    assert memory.answers == {"q-1": Answered("yes", "phone", expired=False), "q-2": Answered(None, "", expired=True)}
    assert memory.children == {"run/search"}


def test_the_first_word_stays() -> None:
    memory = remembered(
        Entry("am.step", {"key": "k", "n": 1, "result": "first"}),
        Entry("am.step", {"key": "k", "n": 1, "result": "second"}),
        Entry("am.answer", {"id": "q", "value": 1}),
        Entry("am.answer", {"id": "q", "value": 2}),
    )
    assert memory.result("k", 1) == "first"
    assert memory.answers["q"].value == 1


@pytest.mark.parametrize("data", [None, 7, {}, {"id": 3}, {"key": "k"}, {"wf": 1}])
@pytest.mark.parametrize("kind", ["am.step", "am.ask", "am.answer", "am.child"])
def test_what_does_not_fit_is_skipped(kind: str, data: Value) -> None:
    memory = remembered(Entry(kind, data))
    assert not memory.answers
    assert not memory.asked | memory.children
    assert not memory.has_result("k", 1)
