"""An authority for development and tests, and its certificates, for `covey certs`. Keys are P-256, in files
that only their owner may read. A second call keeps the folder's authority and renews the certificates, which
running brokers read at their next handshake."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from covey.matcher.errors import InputError
from covey.overlay.core.access.identity import broker_uri, client_uri, file_name

DAYS = 365
_AUTHORITY_DAYS = 3_650
_CLOCK_SLACK = datetime.timedelta(minutes=5)
_BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("Covey development authority")
        self.certificate = (
            _certificate(subject, subject, self._key.public_key(), datetime.timedelta(days=_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The authority of a folder; `InputError` if its files are not an authority's."""
        authority = cls.__new__(cls)
        try:
            authority.certificate = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
        except (OSError, ValueError, TypeError):
            raise InputError(f"{folder}: authority.pem and authority.key are no such pair") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"{folder / 'authority.key'}: expected the key that covey certs has made")
        authority._key = key
        return authority

    def write(self, folder: Path) -> None:
        _write(folder / "authority.key", _key_bytes(self._key), secret=True)
        _write(folder / "authority.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        path: Path,
        *,
        uri: str | None = None,
        hosts: Iterable[str] = (),
        valid: datetime.timedelta | None = None,
        usages: tuple[x509.ObjectIdentifier, ...] = _BOTH,
    ) -> None:
        """Write `path`.pem and `path`.key for a URI and hosts. With a negative `valid` the certificate has
        expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        valid = datetime.timedelta(days=DAYS) if valid is None else valid
        names: list[x509.GeneralName] = [] if uri is None else [x509.UniformResourceIdentifier(uri)]
        names += [_host(host) for host in dict.fromkeys(hosts)]
        common = _name((uri or path.name)[-64:])
        builder = (
            _certificate(common, self.certificate.subject, key.public_key(), valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        _write(path.with_name(path.name + ".key"), _key_bytes(key), secret=True)
        _write(path.with_name(path.name + ".pem"), certificate.public_bytes(serialization.Encoding.PEM))


def make_certificates(
    folder: Path,
    overlay: str,
    brokers: Mapping[str, Iterable[str]],
    clients: Iterable[str] = (),
    days: int = DAYS,
) -> list[Path]:
    """Issue a certificate for each broker, with its hosts and loopback's, and for each client; returns the
    certificates' paths. The folder's authority signs, and is created where there is none. `InputError` for a
    folder that cannot be written, and for a broker named "authority"."""
    valid = datetime.timedelta(days=days)
    if "authority" in brokers:
        raise InputError("broker 'authority': expected another name, since authority.pem is the authority's")
    try:
        (folder / "clients").mkdir(parents=True, exist_ok=True)
        if any((folder / f"authority.{suffix}").exists() for suffix in ("pem", "key")):
            authority = Authority.read(folder)
        else:
            authority = Authority()
            authority.write(folder)
        made = []
        for broker, hosts in brokers.items():
            path = folder / file_name(broker)
            authority.issue(path, uri=broker_uri(overlay, broker), hosts=[*hosts, *_LOOPBACK], valid=valid)
            made.append(path)
        for client in clients:
            path = folder / "clients" / file_name(client)
            usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
            authority.issue(path, uri=client_uri(overlay, client), valid=valid, usages=usages)
            made.append(path)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    return [path.with_name(path.name + ".pem") for path in made]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"host {host!r}: expected a name of ASCII letters, or an IP address") from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin = min(now, now + valid) - _CLOCK_SLACK
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + valid)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption())


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Replace a file at once: a broker may read it at any time."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)
    os.replace(new, path)
