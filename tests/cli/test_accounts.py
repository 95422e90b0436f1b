"""`agentmqtt user`, `device`, `token`, `cert`: each refusal, and once the whole way of a gateway."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from agentmqtt.broker import accounts as acc
from tests.cli.kit import Inside, Tool
from tests.servers import free_port


@pytest.fixture
def home(alone: Tool) -> Path:
    return alone.state / "broker"


def test_an_account_from_its_making_to_its_end(home: Path, inside: Inside) -> None:
    def do(*words: str) -> str:
        code, out, err = inside(*words)
        assert code == 0, err
        return out

    def account() -> acc.Account:
        return acc.read(home / "accounts.json").by_name["ann"]

    told = json.loads(do("user", "add", "ann", "--role", "agent", "--workflow", "report-*", "--json"))
    assert acc.verify(account(), told["password"])
    assert (account().role, account().workflows) == ("agent", ("report-*",))
    word = do("user", "passwd", "ann").strip()
    assert acc.verify(account(), word)
    assert not acc.verify(account(), told["password"])
    shown = do("user", "ls", "--json")
    assert "argon2" not in shown
    assert json.loads(shown)["name"] == "ann"
    do("user", "revoke", "ann")
    assert account().revoked
    do("user", "rm", "ann")
    assert not acc.read(home / "accounts.json").by_name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["user", "add", "a/b"], "is no name of an account"),
        (["user", "add", "ann", "--role", "king"], "there is no role 'king'"),
        (["user", "rm", "ann"], "there is no user 'ann'"),
        (["device", "rm", "ann"], "there is no device 'ann'"),
        (["token"], "for which workflows?"),
        (["token", "--workflow", "*", "--ttl", "soon"], "'soon' is no time"),
        (["token", "--revoke", "x.y.z"], "is no token"),
        (["cert", "server", "gateway.local"], "there is no CA"),
        (["cert", "device", "pi"], "there is no CA"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], says: str, inside: Inside) -> None:
    code, _, err = inside(*words)
    assert code == 2
    assert says in err


def test_a_second_account_or_ca_of_one_name_is_refused(inside: Inside) -> None:
    assert inside("user", "add", "ann")[0] == 0
    assert inside("user", "add", "ann")[0] == 2
    assert inside("cert", "init")[0] == 0
    code, _, err = inside("cert", "init")
    assert code == 2
    assert "would lock out every device" in err


def test_certificates_that_openssl_takes(home: Path, inside: Inside) -> None:
    assert inside(*["cert", "init"])[0] == 0
    assert inside(*["cert", "server", "gateway.local", "127.0.0.1"])[0] == 0
    assert inside(*["cert", "device", "pi"])[0] == 0
    context = ssl.create_default_context(cafile=home / "certs" / "ca.pem")
    context.load_cert_chain(home / "certs" / "device-pi.pem", home / "certs" / "device-pi.key")
    for key in (home / "certs").glob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_gateway_with_accounts_tls_and_a_device_by_certificate(alone: Tool, tmp_path: Path) -> None:
    certs, port = alone.state / "broker" / "certs", free_port()

    def do(*words: str, **env: str) -> str:
        code, out, err = alone(*words, **env)
        assert code == 0, err
        return out

    do("cert", "init")
    do("cert", "server", "localhost", "127.0.0.1")
    do("cert", "device", "pi")
    do("device", "add", "pi", "--certificate", "--role", "agent")
    password = json.loads(do("user", "add", "ann", "--json"))["password"]
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[server]\nlisten = ["mqtts://127.0.0.1:{port}"]\ncertfile = "{certs}/server.pem"\n'
        f'keyfile = "{certs}/server.key"\nclient_ca = "{certs}/ca.pem"\n'
    )
    assert alone.start("broker", "--config", str(config)).line().startswith("ready mqtts://")
    common = {"AGENTMQTT_BROKER": f"mqtts://127.0.0.1:{port}", "AGENTMQTT_TLS_CA": str(certs / "ca.pem")}
    device = common | {
        "AGENTMQTT_TLS_CERT": str(certs / "device-pi.pem"),
        "AGENTMQTT_TLS_KEY": str(certs / "device-pi.key"),
    }
    do("run", "report-1", "--", "echo", "hello", **device)
    user = common | {"AGENTMQTT_USERNAME": "ann", "AGENTMQTT_PASSWORD": password}
    assert "hello" in alone.another("ann")("watch", "report-1", "--until-end", **user)[1]
    code, _, err = alone.another("ann")("run", "report-2", "--", "echo", "no", **user)
    assert code != 0
    assert "report-2" in err
