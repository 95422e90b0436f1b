"""Where state lies, and who may use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmqtt.cli import places
from agentmqtt.errors import StoreInUse, StoreUnusable
from agentmqtt.settings import Settings
from agentmqtt.state import State
from agentmqtt.store.base import Store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, broker="mqtt://127.0.0.1:1883")


def test_each_broker_and_root_has_a_folder_of_its_own(settings: Settings) -> None:
    urls = ["mqtt://host:1", "mqtt://host:2", "unix:///run/a", "unix:///run/b", "mqtt://[::1]:1", "mqtt://[::2]:1"]
    changed = [settings.model_copy(update={"broker": url}) for url in urls]
    changed += [settings.model_copy(update={"root": root}) for root in ("other/v1", "other-v1")]
    assert len({places.folder(each) for each in [settings, *changed]}) == len(changed) + 1


def test_a_password_changes_nothing_and_is_in_no_path(settings: Settings) -> None:
    secret = settings.model_copy(update={"broker": "mqtt://me:hush@127.0.0.1:1883"})
    assert places.folder(secret) == places.folder(settings)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "ü" * 2000, ".", "#", "\x00"])
def test_no_name_leaves_its_folder(settings: Settings, name: str) -> None:
    [file] = places.files(settings, "run", name, 1)
    assert file.parent == places.folder(settings) / "run"
    assert len(file.name) < 200


async def test_the_first_free_file_is_taken(settings: Settings) -> None:
    files = places.files(settings, "watch", "name", 2)
    first, second = places.first_free(files), places.first_free(files)
    with pytest.raises(StoreInUse):
        places.first_free(files)
    await first.close()
    third = places.first_free(files)
    assert [path.name for path in files] == ["name.db", "name.2.db"]
    assert [path.exists() for path in files] == [True, True]
    await second.close()
    await third.close()


async def client_id(store: Store) -> str:
    return await State(store).client_id()


async def test_commands_have_one_identity_after_the_other_and_two_at_once(settings: Settings) -> None:
    first, second = places.Passport(settings), places.Passport(settings)
    ids = [await client_id(first), await client_id(second)]
    await first.close()
    third = places.Passport(settings)
    assert ids[0] != ids[1]
    assert await client_id(third) == ids[0]
    await second.close()
    await third.close()


async def test_a_spoilt_identity_is_replaced(settings: Settings) -> None:
    first = places.Passport(settings)
    await first.close()
    file = places.folder(settings) / "command" / "1.id"
    file.write_bytes(b"\xff\x00 nonsense")
    second = places.Passport(settings)
    assert file.read_text().strip() == await client_id(second)
    await second.close()


def test_a_state_directory_that_cannot_be_used_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = settings.model_copy(update={"state_dir": tmp_path / "file"})
    with pytest.raises(StoreUnusable, match="file"):
        places.Passport(broken)
    with pytest.raises(StoreUnusable, match="file"):
        places.first_free(places.files(broken, "run", "name", 1))
