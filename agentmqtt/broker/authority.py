"""A private certificate authority for one gateway: `agentmqtt cert init|server|device` (docs/SECURITY.md)."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agentmqtt.broker.accounts import replace
from agentmqtt.errors import UsageError

CA_DAYS = 3_650
SERVER_DAYS = 397
"""Some clients refuse servers whose certificate is good for longer."""
DEVICE_DAYS = 825


class Authority:
    """A CA in a folder: `ca.pem` for everybody, `ca.key` for nobody else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certfile, self.keyfile = folder / "ca.pem", folder / "ca.key"

    def make(self, name: str) -> None:
        """A new CA. Raises UsageError: there is one already, or the folder cannot be written."""
        if self.keyfile.exists() or self.certfile.exists():
            raise UsageError(f"{self.folder} holds a CA already; a new one would lock out every device that trusts it")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key.public_key(), CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        replace(self.keyfile, _pem_of_key(key))
        _publish(self.certfile, certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, names: Sequence[str]) -> tuple[Path, Path]:
        """A certificate for a broker by DNS names and IP addresses. Returns its files. Raises UsageError."""
        if not names:
            raise UsageError("for which names? give what clients will connect to, such as gateway.local 192.0.2.7")
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        return self._issue("server", names[0], SERVER_DAYS, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def device(self, name: str) -> tuple[Path, Path]:
        """A client certificate whose common name is the device's account. Returns its files. Raises UsageError."""
        return self._issue(f"device-{name}", name, DEVICE_DAYS, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        file: str,
        name: str,
        days: int,
        use: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> tuple[Path, Path]:
        ca, ca_key = self._load()
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), ca.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certfile, keyfile = self.folder / f"{file}.pem", self.folder / f"{file}.key"
        certificate = builder.sign(ca_key, hashes.SHA256())
        replace(keyfile, _pem_of_key(key))
        _publish(certfile, certificate.public_bytes(serialization.Encoding.PEM))
        return certfile, keyfile

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate = x509.load_pem_x509_certificate(self.certfile.read_bytes())
            key = serialization.load_pem_private_key(self.keyfile.read_bytes(), password=None)
        except FileNotFoundError as error:
            raise UsageError(f"there is no CA in {self.folder}; `agentmqtt cert init` makes one") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"the CA in {self.folder} cannot be used: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UsageError(f"{self.keyfile} is no key that `agentmqtt cert init` made")
        return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of devices are a little off
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(common: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    except ValueError as error:
        raise UsageError(f"{common!r} cannot be the name in a certificate: {error}") from error


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise UsageError(f"{name!r} is neither an IP address nor a DNS name: {error}") from error


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _publish(path: Path, data: bytes) -> None:
    """A certificate: anybody may read it."""
    replace(path, data)
    path.chmod(0o644)
