"""Settings from flags, the environment and a TOML file, in this order of precedence. Loads pydantic: import it late."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, create_model
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from agentmqtt.errors import UsageError
from agentmqtt.options import ClientOptions, JournalOptions

T = TypeVar("T")


class Settings(BaseSettings):
    """What a process is told from outside: `AGENTMQTT_ROOT`, `AGENTMQTT_CLIENT__WINDOW`, or the same in TOML.

    `client`, `journal` and `server` hold fields of ClientOptions, JournalOptions and BrokerSettings;
    paths are relative to the directory that the process was started in. `commit_interval` are seconds
    for which broker and journal collect writes before each commit: fewer commits for an SD card, later receipts.
    """

    model_config = SettingsConfigDict(env_prefix="AGENTMQTT_", env_nested_delimiter="__", extra="forbid", frozen=True)

    broker: str | None = None
    root: str = "agentmqtt/v1"
    username: str | None = None
    password: SecretStr | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    state_dir: Path | None = None
    commit_interval: float = Field(default=0.0, ge=0.0, le=10.0)
    client: dict[str, Any] = {}
    journal: dict[str, Any] = {}
    server: dict[str, Any] = {}

    def client_options(self, **defaults: Any) -> ClientOptions:
        """`defaults` give way to what was set. Raises UsageError."""
        return build(ClientOptions, {"root": self.root, **defaults, **self.client}, "client")

    def journal_options(self) -> JournalOptions:
        """Raises UsageError."""
        return build(JournalOptions, {"root": self.root, **self.journal}, "journal")


def load(config: Path | None = None, **flags: Any) -> Settings:
    """Read the settings. A flag that is None was not given.

    Raises:
        UsageError: a file that cannot be read, a setting that nobody knows, or a value that does not fit.
    """
    table = _read(config) if config else {}

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=table)

    try:
        return Layered(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise UsageError(f"{config or 'settings'}: {_first(error)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"config file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"config file {path} is not TOML: {error}") from error


def build(cls: type[T], table: Mapping[str, Any], section: str) -> T:
    """A frozen dataclass of options from a table.

    Raises:
        UsageError: a key that it does not have, or a value that does not fit; `section` says where.
    """
    hints = get_type_hints(cls)
    nested = {
        name: build(hints[name], value, f"{section}.{name}")
        for name, value in table.items()
        if dataclasses.is_dataclass(hints.get(name)) and isinstance(value, Mapping)
    }
    plain = {name: value for name, value in table.items() if name not in nested}
    fields: dict[str, Any] = {name: (_checked(hint), None) for name, hint in hints.items() if name not in nested}
    model = create_model(cls.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    try:
        found = model(**plain)
    except ValidationError as error:
        raise UsageError(f"setting {section}.{_first(error)}") from None
    return cls(**nested, **{name: getattr(found, name) for name in plain})


def _checked(hint: Any) -> Any:
    """The environment has no lists: there, commas separate. No size and no time is below 0."""
    if get_origin(hint) is tuple:
        return Annotated[hint, BeforeValidator(_split)]
    return Annotated[hint, Field(ge=0)] if hint in (int, float) else hint


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _first(error: ValidationError) -> str:
    """The first flaw, in one line."""
    flaw = error.errors(include_url=False)[0]
    where = ".".join(map(str, flaw["loc"]))
    if flaw["type"] == "extra_forbidden":
        return f"{where}: there is no such setting"
    return f"{where}: {flaw['msg'].removeprefix('Input ')}"
