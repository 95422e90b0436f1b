"""Real MQTT brokers for tests: `with mosquitto() as server:` starts one on free loopback ports."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

STARTUP = 10.0
"""Seconds a server may take until its ports answer."""


def free_port() -> int:
    """A loopback TCP port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need(binary: str) -> str:
    """The path of a program. Without it the test is skipped; in CI it fails."""
    path = shutil.which(binary) or shutil.which(binary, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{binary} is not installed, and in CI it must be")
        pytest.skip(f"{binary} is not installed")
    return path


class Certificates:
    """A throw-away CA in `folder` with a server (localhost, 127.0.0.1, ::1) and a client certificate."""

    def __init__(self, folder: Path) -> None:
        self._openssl = need("openssl")
        self._folder = folder
        self.ca, self.ca_key = folder / "ca.pem", folder / "ca.key"
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._run(
            "req", "-x509", "-subj", "/CN=test CA", "-days", "2", *usage, *self._key(self.ca_key), "-out", self.ca
        )
        self.server, self.server_key = self.issue("server", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")
        self.client, self.client_key = self.issue("client", "extendedKeyUsage=clientAuth")

    def issue(self, name: str, extension: str) -> tuple[Path, Path]:
        """A certificate signed by the CA, and its key."""
        cert, key, request, ext = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        ext.write_text(f"{extension}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        self._run("req", "-new", "-subj", f"/CN={name}", *self._key(key), "-out", request)
        signer = ("-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", "2")
        self._run("x509", "-req", "-in", request, *signer, "-extfile", ext, "-out", cert)
        return cert, key

    @staticmethod
    def _key(path: Path) -> tuple[str | Path, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)

    def _run(self, *args: str | Path) -> None:
        subprocess.run([self._openssl, *args], check=True, capture_output=True)


class Mosquitto:
    """A mosquitto process that can be killed and started again on the same ports.

    `url` is plain TCP; `ws_url`, `unix_url` and `tls_url` exist where their listener was asked for.
    """

    def __init__(self, folder: Path, settings: Sequence[str], ports: Mapping[str, int], unix: bool) -> None:
        self._binary = need("mosquitto")
        self._config = folder / "mosquitto.conf"
        self._log = folder / "mosquitto.log"
        self._ports = dict(ports)
        self._socket = folder / "sock"
        self._unix = unix
        self._process: subprocess.Popen[bytes] | None = None
        self._config.write_text("\n".join(settings) + "\n")

    @property
    def port(self) -> int:
        return self._ports["mqtt"]

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self._ports['ws']}/mqtt"

    @property
    def tls_url(self) -> str:
        return f"mqtts://localhost:{self._ports['tls']}"

    @property
    def unix_url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """Everything the server said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it and wait until every listener answers."""
        self._socket.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self._binary, "-v", "-c", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + STARTUP
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"mosquitto did not start:\n{self.log()}")
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL: nothing that was not on its disk survives."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM: it saves its sessions and retained messages first (with `persistence`)."""
        self._end(signal.SIGTERM)

    def restart(self, *, hard: bool = True) -> None:
        """Kill (or end) it and start it again on the same ports."""
        self.kill() if hard else self.terminate()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            process.wait(STARTUP)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            for port in self._ports.values():
                socket.create_connection(("127.0.0.1", port), 1).close()
            if self._unix:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self._socket))
            return True
        return False


@contextlib.contextmanager
def mosquitto(
    *,
    ws: bool = False,
    unix: bool = False,
    tls: Certificates | None = None,
    client_certificates: bool = False,
    persistence: bool = False,
    autosave: int = 1800,
    max_queued: int = 0,
    users: Mapping[str, str] | None = None,
    acl: str = "",
    extra: Sequence[str] = (),
) -> Iterator[Mosquitto]:
    """A running mosquitto; it ends, and its files go, with the block.

    `autosave` is seconds between saves (with `persistence`); `max_queued` 0 means no limit; `users` maps
    names to passwords (without: anybody may connect); `acl` is the text of an ACL file; `extra` are more
    lines of configuration. Skips the test where mosquitto is not installed; fails it in CI.
    """
    with tempfile.TemporaryDirectory(prefix="mq-") as name:
        folder = Path(name)
        common = [f"user {getpass.getuser()}", f"max_queued_messages {max_queued}", *extra]
        common += [f"persistence {str(persistence).lower()}", f"persistence_location {folder}/"]
        common += [f"autosave_interval {autosave}", *_access(folder, users, acl)]
        server = _started(folder, common, ws=ws, unix=unix, tls=tls, client_certificates=client_certificates)
        try:
            yield server
        finally:
            server.kill()


def _access(folder: Path, users: Mapping[str, str] | None, acl: str) -> list[str]:
    lines = [f"allow_anonymous {str(users is None).lower()}"]
    if users is not None:
        passwords = folder / "passwords"
        passwords.write_text("".join(f"{name}:{word}\n" for name, word in users.items()))
        subprocess.run([need("mosquitto_passwd"), "-U", passwords], check=True, capture_output=True)
        lines.append(f"password_file {passwords}")
    if acl:
        (folder / "acl").write_text(acl)
        lines.append(f"acl_file {folder / 'acl'}")
    return lines


def _started(
    folder: Path, common: list[str], *, ws: bool, unix: bool, tls: Certificates | None, client_certificates: bool
) -> Mosquitto:
    for attempt in range(5):  # another test may take a port between the choice and the start
        ports = {"mqtt": free_port()}
        lines = [*common, f"listener {ports['mqtt']} 127.0.0.1"]
        if ws:
            ports["ws"] = free_port()
            lines += [f"listener {ports['ws']} 127.0.0.1", "protocol websockets"]
        if unix:
            lines += [f"listener 0 {folder / 'sock'}"]
        if tls is not None:
            ports["tls"] = free_port()
            lines += [f"listener {ports['tls']} 127.0.0.1", f"cafile {tls.ca}", f"certfile {tls.server}"]
            lines += [f"keyfile {tls.server_key}", f"require_certificate {str(client_certificates).lower()}"]
        server = Mosquitto(folder, lines, ports, unix)
        try:
            server.start()
        except RuntimeError:
            if attempt == 4 or "already in use" not in server.log():
                raise
        else:
            return server
    raise AssertionError
