"""Certificates of the listeners: loaded anew when the files change, and warned about before they end."""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

from agentmqtt.broker.tokens import PLAUSIBLE
from agentmqtt.errors import UsageError

log = logging.getLogger("agentmqtt.broker")

DAY = 86_400.0
WARN = (30.0, 7.0, 1.0)
"""Days before the end at which a certificate is warned about."""


class ServerTLS:
    """One context for all TLS listeners; a new pair of files is used by the next handshake.

    Args:
        client_ca: who signs client certificates; without it none is asked for.
        required: a client without a certificate is not let in.

    Raises:
        UsageError: a file cannot be used.
    """

    def __init__(self, certfile: Path, keyfile: Path | None, client_ca: Path | None, *, required: bool) -> None:
        self._certfile, self._keyfile, self._client_ca = certfile, keyfile, client_ca
        self._required = required
        self._warned = float("inf")
        self._seen = self._stamps()
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(str(self._certfile), None if self._keyfile is None else str(self._keyfile))
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"the certificate {self._certfile} or its key {self._keyfile} cannot be used: {error}"
            ) from error
        if self._client_ca is not None:
            try:
                context.load_verify_locations(str(self._client_ca))
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"the client CA {self._client_ca} cannot be used: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED if self._required else ssl.CERT_OPTIONAL
        return context

    def reload(self) -> bool:
        """Use the files as they are now; a pair that does not work is said, and the old one stays."""
        self._seen = self._stamps()
        try:
            self._load()  # tried apart: half of a new pair must not break the running context
            self.context.load_cert_chain(str(self._certfile), None if self._keyfile is None else str(self._keyfile))
            if self._client_ca is not None:
                self.context.load_verify_locations(str(self._client_ca))
        except (UsageError, OSError, ssl.SSLError) as error:
            log.warning("the certificate in use stays: %s", error)
            return False
        self._warned = float("inf")
        log.info("the certificate %s was loaded anew", self._certfile)
        return True

    def review(self) -> None:
        """Reload what changed; warn about what ends soon."""
        if self._stamps() != self._seen:
            self.reload()
        left = self.days_left()
        due = [days for days in WARN if left is not None and left <= days < self._warned]
        if left is not None and due:
            self._warned = min(due)
            word = f"ends in {left:.1f} days" if left > 0 else "has ended: clients refuse it"
            log.warning("the certificate %s %s; put a new one in its place: no restart is needed", self._certfile, word)

    def days_left(self) -> float | None:
        """Days until the certificate ends; None while this machine's clock is not set."""
        now = time.time()
        if now < PLAUSIBLE:
            return None
        return (expiry(self._certfile) - now) / DAY

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._certfile, self._keyfile, self._client_ca))


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


def expiry(certfile: Path) -> float:
    """When the first certificate of a PEM file ends, in seconds since 1970; infinity if it cannot be read."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(certfile.read_bytes())
    except (OSError, ValueError):
        return float("inf")
    return certificate.not_valid_after_utc.timestamp()
