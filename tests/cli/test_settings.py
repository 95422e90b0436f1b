"""Flags over environment over file; nothing unknown is swallowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmqtt.broker import BrokerSettings, Limits
from agentmqtt.errors import UsageError
from agentmqtt.options import ClientOptions, JournalOptions
from agentmqtt.settings import build, load

DEV = Path(__file__).parents[2] / "broker_config" / "dev.toml"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("AGENTMQTT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('root = "file"\nbroker = "mqtt://file"\n[journal]\nlease = 7\ngrace = 8\n')
    return path


def test_flags_go_before_the_environment_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load(file).root, load(file).broker) == ("file", "mqtt://file")
    monkeypatch.setenv("AGENTMQTT_ROOT", "environment")
    assert (load(file).root, load(file).broker) == ("environment", "mqtt://file")
    assert load(file, root="flag", broker=None).root == "flag"


def test_tables_are_merged_key_by_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTMQTT_JOURNAL__GRACE", "2.5")
    assert load(file).journal_options() == JournalOptions(root="file", lease=7, grace=2.5)


def test_without_anything_the_options_are_the_defaults() -> None:
    assert load().client_options() == ClientOptions()
    assert load().journal_options() == JournalOptions()


def test_a_default_of_the_caller_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().client_options(patience=2.5).patience == 2.5
    monkeypatch.setenv("AGENTMQTT_CLIENT__PATIENCE", "9")
    assert load().client_options(patience=2.5).patience == 9


def test_the_environment_writes_lists_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTMQTT_SERVER__LISTEN", "127.0.0.1:0, ws://127.0.0.1:0")
    assert build(BrokerSettings, load().server, "server").listen == ("127.0.0.1:0", "ws://127.0.0.1:0")


def test_tables_in_tables(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nanonymous = true\n[server.limits]\nsessions = 5\n")
    found = build(BrokerSettings, load(path).server, "server")
    assert (found.anonymous, found.limits) == (True, Limits(sessions=5))


def test_the_file_for_development_can_be_used() -> None:
    settings = load(DEV)
    assert build(BrokerSettings, settings.server, "server").listeners()
    assert settings.journal_options().lease == 1.5 * settings.client_options().keepalive


def test_every_setting_that_the_file_for_development_names_exists(tmp_path: Path) -> None:
    lines = [line.removeprefix("#") for line in DEV.read_text().splitlines() if not line.startswith(("# ", "#\n"))]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(line for line in lines if " = " in line or line.startswith("[")))
    settings = load(path)
    settings.client_options(), settings.journal_options()
    build(BrokerSettings, settings.server, "server")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nonsense = 1", "nonsense: there is no such setting"),
        ("[journal]\nleese = 1", "journal.leese: there is no such setting"),
        ('[journal]\nlease = "soon"', "journal.lease"),
        ("[journal]\nlease = -1", "journal.lease"),
        ("[client]\nkeepalive = 1.5", "client.keepalive"),
        ("root = [", "is not TOML"),
        ("root = 5", "root"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=word):
        load(path).journal_options(), load(path).client_options()


def test_a_nested_key_that_nobody_knows_is_named() -> None:
    with pytest.raises(UsageError, match=r"server\.limits\.sesions"):
        build(BrokerSettings, {"limits": {"sesions": 5}}, "server")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be read"):
        load(tmp_path / "absent.toml")


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTMQTT_PASSWORD", "hush")
    assert "hush" not in repr(load())
