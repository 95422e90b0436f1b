"""Broker URLs."""

from __future__ import annotations

import pytest

from agentmqtt.errors import BadURL
from agentmqtt.transport.mqtt import MqttTransport
from agentmqtt.transport.url import parse


@pytest.mark.parametrize(
    ("url", "place", "text"),
    [
        ("mqtt://host", "host:1883", "mqtt://host:1883"),
        ("mqtt://HOST:77/", "host:77", "mqtt://host:77"),
        ("mqtts://host", "host:8883", "mqtts://host:8883"),
        ("ws://host", "host:80", "ws://host:80/mqtt"),
        ("wss://host/", "host:443", "wss://host:443/mqtt"),
        ("wss://host/a/b?token=hush", "host:443", "wss://host:443/a/b"),
        ("mqtt://[::1]:18", "[::1]:18", "mqtt://[::1]:18"),
        ("unix:///run/mqtt.sock", "/run/mqtt.sock", "unix:///run/mqtt.sock"),
        ("unix:///run/a%20b", "/run/a b", "unix:///run/a b"),
        ("mqtt://anna:hush@host", "host:1883", "mqtt://anna@host:1883"),
        ("unix://anna:hush@/run/s", "/run/s", "unix://anna@/run/s"),
    ],
)
def test_what_is_understood(url: str, place: str, text: str) -> None:
    address = parse(url)
    assert (address.place, str(address)) == (place, text)
    assert "hush" not in repr(address)


def test_credentials_are_percent_decoded_and_parameters_go_first() -> None:
    address = parse("mqtt://a%40b:p%2Fw%3A@h")
    assert (address.username, address.password) == ("a@b", "p/w:")
    address = parse("mqtt://anna:old@h", username="bob", password="new")
    assert (address.username, address.password) == ("bob", "new")
    assert parse("mqtt://anna@h", password="pw").password == "pw"
    assert parse("wss://h/p?token=1").target == "/p?token=1"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("localhost:1883", "mqtt://localhost:1883"),
        ("", "mqtt://HOST"),
        ("tcp://host", "write mqtt://"),
        ("ssl://host", "write mqtts://"),
        ("https://host/mqtt", "write wss://"),
        ("ftp://host", "mqtts://"),
        ("mqtt://", "names no host"),
        ("mqtt://host:0", "names no host"),
        ("mqtt://host:99999", "1 to 65535"),
        ("mqtt://host:port", "1 to 65535"),
        ("mqtt://host/topic", "takes no path"),
        ("mqtt://host#x", "%23"),
        ("mqtt://[::1", "IPv6"),
        ("unix://run/sock", "unix:///absolute"),
        ("unix://", "unix:///absolute"),
        ("mqtt://:hush@host", "user name"),
    ],
)
def test_what_is_not_says_what_to_write(url: str, hint: str) -> None:
    with pytest.raises(BadURL) as caught:
        parse(url)
    assert hint in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["mqtt://a:hush/w@host", "mqtt://a:hu#sh@host", "a:hush@host", "mqtt://a:hush@h:port", "foo://a:hush@h"]
)
def test_a_password_shows_in_no_error(url: str) -> None:
    with pytest.raises(BadURL) as caught:
        parse(url)
    assert "hu" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_transport_shows_no_password() -> None:
    transport = MqttTransport("mqtt://anna:hush@host")
    assert transport.describe() == "mqtt://anna@host:1883"
    assert "hush" not in repr(transport)
