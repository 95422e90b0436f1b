"""The shape of the code: floors, doors, purity and sizes (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "agentmqtt"

# An import must point to the same floor or down. The longest entry that fits a module counts.
FLOORS = {
    "agentmqtt.version": 0,
    "agentmqtt.errors": 0,
    "agentmqtt.types": 0,
    "agentmqtt.frames": 1,
    "agentmqtt.options": 1,
    "agentmqtt.settings": 1,
    "agentmqtt.sparing": 1,
    "agentmqtt.waiting": 1,
    "agentmqtt.values": 2,
    "agentmqtt.groups": 2,
    "agentmqtt.schema": 2,
    "agentmqtt.jsontext": 2,
    "agentmqtt.wire": 2,
    "agentmqtt.names": 2,
    "agentmqtt.core": 2,
    "agentmqtt.store": 2,
    "agentmqtt.transport": 2,
    "agentmqtt.session": 3,
    "agentmqtt.journal": 3,
    "agentmqtt.state": 3,
    "agentmqtt.host": 4,
    "agentmqtt.commands": 4,
    "agentmqtt.received": 4,
    "agentmqtt.spool": 4,
    "agentmqtt.ownership": 4,
    "agentmqtt.owner": 4,
    "agentmqtt.asking": 4,
    "agentmqtt.family": 4,
    "agentmqtt.enquiries": 4,
    "agentmqtt.watcher": 4,
    "agentmqtt.client": 4,
    "agentmqtt.connecting": 4,
    "agentmqtt": 5,
    "agentmqtt.broker": 5,
    "agentmqtt.gateway": 6,
    "agentmqtt.integrations": 6,
    "agentmqtt.testing": 6,
    "agentmqtt.conformance": 6,
    "agentmqtt.cli": 7,
    "agentmqtt.__main__": 7,
}
# Modules of one floor that may not know each other: each can be tried and replaced alone.
APART = ("agentmqtt.core", "agentmqtt.store", "agentmqtt.transport", "agentmqtt.wire", "agentmqtt.names")
DOORS = {
    "cbor2": "agentmqtt.wire",
    "sqlite3": "agentmqtt.store",
    "fcntl": "agentmqtt.store.lock",
    "aiomqtt": "agentmqtt.transport",
    "paho": "agentmqtt.transport",
    "amqtt": "agentmqtt.broker",
    "pydantic": "agentmqtt.settings",
    "pydantic_settings": "agentmqtt.settings",
    "typer": "agentmqtt.cli",
    "rich": "agentmqtt.cli",
}
IMPURE = {
    *("asyncio", "concurrent", "threading", "time", "datetime", "random", "secrets", "uuid", "logging"),
    *("socket", "ssl", "os", "pathlib", "io", "subprocess", "sqlite3"),
}
FILE_LINES = 400
BODY_P90 = 30
BODY_MOST = 60


def _name(path: Path) -> str:
    parts = ["agentmqtt", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _modules() -> dict[str, Path]:
    return {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import with its line, wherever it stands; imports for type checkers alone do not count."""
    for node in _executed(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield node.lineno, full if full in _modules() else module


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _executed(child)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _floor(module: str) -> int:
    fits = [name for name in FLOORS if _within(module, name) and (name != "agentmqtt" or module == "agentmqtt")]
    assert fits, f"{module} has no floor; give it one in FLOORS"
    return FLOORS[max(fits, key=len)]


def test_imports_point_down() -> None:
    wrong = [
        f"{path}:{line}: {module} (floor {_floor(module)}) imports {target} (floor {_floor(target)})"
        for module, path in _modules().items()
        for line, target in _imports(path)
        if _within(target, "agentmqtt") and _floor(target) > _floor(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_parts_of_one_floor_do_not_know_each_other() -> None:
    wrong = [
        f"{path}:{line}: {module} imports {target}"
        for module, path in _modules().items()
        for line, target in _imports(path)
        for home in APART
        if _within(module, home)
        if any(_within(target, other) for other in APART if other != home)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_goes_in_a_circle() -> None:
    graph = {
        module: {target for _, target in _imports(path) if target in _modules() and target != module}
        for module, path in _modules().items()
    }
    while free := {module for module, targets in graph.items() if not targets & graph.keys()}:
        graph = {module: targets for module, targets in graph.items() if module not in free}
    assert not graph, f"imports in a circle: {', '.join(sorted(graph))}"


def test_each_library_has_one_door() -> None:
    wrong = [
        f"{path}:{line}: {module} imports {target}; only {DOORS[library]} may"
        for module, path in _modules().items()
        for line, target in _imports(path)
        for library in DOORS
        if _within(target, library) and not _within(module, DOORS[library])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_is_pure() -> None:
    wrong = [
        f"{path}:{line}: {target}"
        for module, path in _modules().items()
        if _within(module, "agentmqtt.core")
        for line, target in _imports(path)
        if target.split(".", maxsplit=1)[0] in IMPURE
    ]
    wrong += [
        f"{path}:{node.lineno}: {type(node).__name__}"
        for module, path in _modules().items()
        if _within(module, "agentmqtt.core")
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith))
    ]
    assert not wrong, "\n".join(wrong)


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the end."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def _functions() -> list[tuple[int, str]]:
    return sorted(
        (_body_lines(node), f"{path}:{node.lineno} {node.name}")
        for path in _modules().values()
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def test_files_are_short() -> None:
    long = {str(path): path.read_text(encoding="utf-8").count("\n") for path in _modules().values()}
    assert not {path: lines for path, lines in long.items() if lines > FILE_LINES}


def test_functions_are_short() -> None:
    functions = _functions()
    long = [f"{where}: {lines} lines" for lines, where in functions if lines > BODY_MOST]
    assert not long, "\n".join(long)
    assert functions[len(functions) // 2][0] <= 8
    assert functions[len(functions) * 9 // 10][0] <= BODY_P90


@pytest.mark.parametrize("module", ["agentmqtt", "agentmqtt.wire", "agentmqtt.store"])
def test_importing_loads_nothing_that_is_not_used(module: str) -> None:
    heavy = ["agentmqtt.broker", "agentmqtt.cli", "agentmqtt.gateway", "agentmqtt.settings"]
    heavy += ["amqtt", "typer", "rich", "pydantic", "pydantic_settings", "sqlite3"]
    code = f"import sys, {module}; print(*[name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []
