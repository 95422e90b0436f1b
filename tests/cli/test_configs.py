"""The configurations that are handed out: every key is known, and what they call a default is one."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentmqtt.broker.limits import BrokerSettings, Limits
from agentmqtt.options import ClientOptions, JournalOptions
from agentmqtt.settings import Settings, build, load

CONFIGS = sorted((Path(__file__).parents[2] / "broker_config").glob("*.toml"))
TABLES: dict[str, Any] = {
    "server": BrokerSettings,
    "server.limits": Limits,
    "journal": JournalOptions,
    "client": ClientOptions,
}
_COMMENTED = re.compile(r"^#(\w+) = (.+?)(?:\s+#.*)?$")
_CHANGED = re.compile(r"^(\w+) = .+#.*default (-?[\d.]+)")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_configuration_loads(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(path)
    settings.journal_options()
    settings.client_options()
    (tmp_path / "accounts.json").touch()
    build(BrokerSettings, {"accounts": "accounts.json", **settings.server}, "server")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_what_it_calls_a_default_is_one(path: Path) -> None:
    table, checked = "", 0
    for line in path.read_text(encoding="utf-8").splitlines():
        table = line.strip("[]") if line.startswith("[") else table
        if found := _COMMENTED.match(line):
            checked += _is_default(table, found[1], tomllib.loads(f"x = {found[2]}")["x"])
        elif found := _CHANGED.match(line):
            checked += _is_default(table, found[1], float(found[2]))
    assert checked >= 3


def _is_default(table: str, name: str, value: Any) -> bool:
    """Numbers and flags are compared; a path or a list there is an example."""
    if isinstance(value, str | list) or (value is True):
        assert name in (Settings.model_fields if not table else {f.name for f in dataclasses.fields(TABLES[table])})
        return False
    if not table:
        assert Settings.model_fields[name].default == value, name
    else:
        fields = {field.name: field.default for field in dataclasses.fields(TABLES[table])}
        assert fields[name] == value, f"{table}.{name}"
    return True
