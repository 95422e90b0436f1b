"""docs/CONFORMANCE.md names the cases that there are."""

from __future__ import annotations

from pathlib import Path

from agentmqtt.conformance import CASES

PAGE = Path(__file__).parents[2] / "docs" / "CONFORMANCE.md"


def rows() -> str:
    lines = [f"| `{name}` | {(case.__doc__ or '').strip().splitlines()[0]} |" for name, case in CASES.items()]
    return "\n".join(["| case | the client has to show |", "|---|---|", *lines, ""])


def test_the_page_names_every_case() -> None:
    """If not, put what `rows()` gives between the marks."""
    assert f"<!-- cases -->\n{rows()}<!-- /cases -->" in PAGE.read_text(encoding="utf-8")
