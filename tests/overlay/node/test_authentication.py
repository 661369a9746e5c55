"""Tokens of clients, verified by the key in a file, and the key files that sign tickets."""

import hmac
import json
import time
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from covey.overlay.core.access.identity import DeniedError
from covey.overlay.documents import ConfigError
from covey.overlay.node.authentication import (
    TokenOptions,
    TokenVerifier,
)

SECRET = "s" * 32
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def public(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def token(key: Any, algorithm: str, *, kid: str | None = None, **claims: Any) -> str:
    claims = {"sub": "alice", "exp": time.time() + 60, **claims}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


def signed_with(secret: bytes, algorithm: str, claims: dict[str, Any]) -> str:
    """An HMAC token with any bytes as its secret, which PyJWT does not make."""
    parts = [
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": algorithm, "typ": "JWT"}, claims)
    ]
    signature = hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join([*parts, urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def verifier(folder: Path, content: bytes | str, **options: str) -> TokenVerifier:
    file = folder / "key"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return TokenVerifier(TokenOptions(str(file), **options))


@pytest.mark.parametrize(
    ("content", "key", "algorithm"),
    [
        (SECRET, SECRET, "HS256"),
        (public(EC_KEY), EC_KEY, "ES256"),
        (public(RSA_KEY), RSA_KEY, "RS256"),
        (public(ED_KEY), ED_KEY, "EdDSA"),
    ],
    ids=("HS256", "ES256", "RS256", "EdDSA"),  # those of the keys would differ between the workers
)
def test_a_token_of_each_kind_of_key(tmp_path: Path, content: bytes | str, key: Any, algorithm: str) -> None:
    tokens = verifier(tmp_path, content)
    if algorithm == "HS256":
        made = signed_with(SECRET.encode(), algorithm, {"sub": "a", "exp": time.time() + 60})
        assert tokens.verify(made)["sub"] == "a"  # so that what other tests make is a token but for its key
    assert tokens.verify(token(key, algorithm, tenant="eu"))["tenant"] == "eu"


def test_tokens_that_are_refused_and_no_sentence_has_them(tmp_path: Path) -> None:
    tokens = verifier(tmp_path, public(EC_KEY), issuer="me", audience="covey")
    good = {"iss": "me", "aud": "covey"}
    assert tokens.verify(token(EC_KEY, "ES256", **good))["sub"] == "alice"
    other = ec.generate_private_key(ec.SECP256R1())
    head, body, signature = token(EC_KEY, "ES256", **good).split(".")
    none = jwt.encode({"sub": "alice", "exp": time.time() + 60, **good}, "", algorithm="none")
    # A public key as the secret of an HMAC: the attack on verifiers that trust a token's header.
    confused = signed_with(public(EC_KEY), "HS256", {"sub": "alice", "exp": time.time() + 60, **good})
    for wrong, why in (
        (token(other, "ES256", **good), "no key of this broker has signed it"),
        (token(EC_KEY, "ES256", **good, exp=time.time() - 1), "it has expired"),
        (token(EC_KEY, "ES256", **good, nbf=time.time() + 60), "it is not valid yet"),
        (token(EC_KEY, "ES256", **good, exp=None), "it has no claim 'exp'"),
        (token(EC_KEY, "ES256", **good, exp="9999999999"), "its claim 'exp' is no time in seconds"),
        (token(EC_KEY, "ES256", **good, exp=1e300), "its claim 'exp' is no time in seconds"),
        (token(EC_KEY, "ES256", **good, exp=float("inf")), "it is no JWT"),
        (token(EC_KEY, "ES256", **good, sub=None), "it has no claim 'sub'"),
        (token(EC_KEY, "ES256", **good, sub=""), "its claim 'sub' is no name"),
        (token(EC_KEY, "ES256", **good, sub=7), "its claim 'sub' is no name"),
        (token(EC_KEY, "ES256", iss="you", aud="covey"), "it is of another issuer"),
        (token(EC_KEY, "ES256", iss="me", aud="other"), "it is for another audience"),
        (none, "no key of this broker has signed it"),
        (confused, "no key of this broker has signed it"),
        (f"{head}.{body}.{signature[:-4]}AAAA", "no key of this broker has signed it"),
        ("x.y.z", "it is no JWT"),
        ("", "it is no JWT"),
        ("é" * 20, "it is no JWT"),
        ("a" * 9_000, "it has 9000 bytes"),
    ):
        with pytest.raises(DeniedError, match=why) as refusal:
            tokens.verify(wrong)
        assert refusal.value.status == "UNAUTHENTICATED"
        assert not wrong or wrong not in str(refusal.value)


def test_a_set_of_keys_and_one_that_changes(tmp_path: Path) -> None:
    def jwks(*keys: tuple[str, Any]) -> str:
        as_dict = jwt.algorithms.ECAlgorithm.to_jwk
        return json.dumps({"keys": [{**as_dict(k.public_key(), True), "kid": n} for n, k in keys]})

    second = ec.generate_private_key(ec.SECP256R1())
    tokens = verifier(tmp_path, jwks(("1", EC_KEY)))
    for kid in ("1", None, "9"):
        assert tokens.verify(token(EC_KEY, "ES256", kid=kid))["sub"] == "alice"
    with pytest.raises(DeniedError, match="no key"):
        tokens.verify(token(second, "ES256", kid="1"))
    (tmp_path / "key").write_text(jwks(("1", EC_KEY), ("2", second)))
    assert tokens.verify(token(second, "ES256", kid="2"))["sub"] == "alice"
    (tmp_path / "key").write_text("{")
    assert tokens.verify(token(EC_KEY, "ES256", kid="1"))["sub"] == "alice"


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    private = EC_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, why in (
        (private, "is a private key: expected its public key"),
        (b"short", "is a secret of 5 bytes: expected 32 or more"),
        (b"{}", "is no set of keys"),
        (b'{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}', "has a secret of less than 32 bytes"),
        (b'{"keys": [' + b"[" * 100_000, "is no set of keys"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "alg": "none"}]}', "is no set of keys"),
        (b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n", "is no PEM file of a public key"),
        (b"x" * (2 << 20), "has more than 1,048,576 bytes"),
    ):
        with pytest.raises(ConfigError, match=why):
            verifier(tmp_path, content)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        TokenVerifier(TokenOptions(str(tmp_path / "none")))


def test_a_public_key_in_another_form_is_not_taken_for_a_secret(tmp_path: Path) -> None:
    """Its owners could sign tokens."""
    key, pem = EC_KEY.public_key(), public(EC_KEY)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    openssh = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    kept = jwt.algorithms.ECAlgorithm.to_jwk(key, True)
    for content in (
        der,
        der + b"\n",
        b64encode(der) + b"\n",
        b64encode(der).decode().encode("utf-16"),
        urlsafe_b64encode(der).rstrip(b"="),
        openssh,
        b"\n" + openssh,
        b"# of the login service\n" + openssh + b" alice@host\n",
        openssh.decode().encode("utf-16"),
        b"---- BEGIN SSH2 PUBLIC KEY ----\n" + openssh.split()[1] + b"\n---- END SSH2 PUBLIC KEY ----\n",
        b"\xfe\xff" + json.dumps({"keys": [{**kept, "alg": "none"}]}).encode("utf-16-be"),
        pem.decode().encode("utf-16"),
        b'[{"kty": "EC", "crv": "P-256", "x": "0123456789012345678901234567890123456789"}]',
    ):
        with pytest.raises(ConfigError, match=r"is no secret|is no PEM file|is no set of keys"):
            verifier(tmp_path, content)
    for content in (b"\xef\xbb\xbf" + pem, b"# the key of the login service\n" + pem):
        found = verifier(tmp_path, content)
        assert found.verify(token(EC_KEY, "ES256"))["sub"] == "alice"
        with pytest.raises(DeniedError):
            found.verify(signed_with(content.strip(), "HS256", {"sub": "alice", "exp": time.time() + 600}))
