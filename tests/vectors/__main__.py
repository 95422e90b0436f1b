"""`python -m tests.vectors` writes the files; `--check` says whether they are up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.vectors import following, messages

HERE = Path(__file__).parent
FILES = {"messages.json": messages.build, "following.json": following.build}


def text(table: dict[str, Any]) -> str:
    """JSON with a case on each line, so that a change shows what it changes."""
    parts = []
    for key, value in table.items():
        whole = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            whole = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in value) + "\n]"
        parts.append(f"{json.dumps(key)}: {whole}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    stale = [name for name, build in FILES.items() if (HERE / name).read_text(encoding="utf-8") != text(build())]
    if "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}" if stale else "up to date")
        return bool(stale)
    for name, build in FILES.items():
        (HERE / name).write_text(text(build()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
