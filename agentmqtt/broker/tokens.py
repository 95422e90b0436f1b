"""Signed tokens: a role, workflows and an end, without an account (docs/SECURITY.md). JWT with HMAC-SHA-256 only."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from pathlib import Path

import jwt

from agentmqtt.broker.accounts import replace
from agentmqtt.broker.rights import Role
from agentmqtt.errors import UsageError

ALGORITHM = "HS256"
AUDIENCE = "agentmqtt"
PLAUSIBLE = 1_735_689_600
"""2025-01-01: before it a clock has not been set, and no token can be judged."""
ROLES = (Role.AGENT, Role.WATCHER, Role.OBSERVER)
"""Those that are bound to workflows."""
LONGEST = 366 * 86_400
LEEWAY = 30


class BadToken(Exception):
    """Why a token does not count. Told to the log, not to the client."""


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """What a token says. `expires` is seconds since 1970. `client` pins the client ID, if it is not empty."""

    id: str
    subject: str
    role: Role
    workflows: tuple[str, ...]
    expires: int
    client: str = ""


def looks_like(password: str) -> bool:
    """Whether a password is meant as a token."""
    return password.startswith("eyJ") and password.count(".") == 2


def read_key(path: Path, *, make: bool = False) -> bytes:
    """The signing key of a file; `make` writes a new one if there is none.

    Raises:
        UsageError: it cannot be read or written, or is too short.
    """
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        if not make:
            raise UsageError(f"there is no token key {path}; `agentmqtt token` makes one") from None
        key = secrets.token_bytes(64)
        replace(path, key)
    except OSError as error:
        raise UsageError(f"token key {path} cannot be read: {error.strerror}") from error
    if len(key) < 32:
        raise UsageError(f"token key {path} has {len(key)} bytes; it needs 32 random ones: remove it for a new one")
    return key


def issue(key: bytes, subject: str, role: Role, workflows: tuple[str, ...], ttl: float, client: str = "") -> str:
    """A token that ends in `ttl` seconds. Raises UsageError: longer than a year, another role, no clock."""
    now = int(time.time())
    if role not in ROLES:
        raise UsageError(f"a token cannot have the role {role}; only {', '.join(ROLES)}")
    if not 0 < ttl <= LONGEST:
        raise UsageError(f"a token of {ttl:g} s: give a time above 0 and at most 366 days")
    if now < PLAUSIBLE:
        raise UsageError("the clock of this machine is not set; a token made now would have ended long ago")
    claims = {
        "aud": AUDIENCE,
        "sub": subject,
        "role": role.value,
        "wf": list(workflows),
        "iat": now,
        "exp": now + int(max(1, ttl)),
        "jti": secrets.token_hex(8),
    }
    return jwt.encode(claims | ({"cid": client} if client else {}), key, ALGORITHM)


def verify(key: bytes, text: str) -> Token:
    """What a token says.

    Raises:
        BadToken: another signature or algorithm, over, not yet, not for this, or the clock is not set.
    """
    now = time.time()
    if now < PLAUSIBLE:
        raise BadToken("the clock of this machine is not set, so no token can be judged")
    try:
        required = ["exp", "sub", "aud", "jti"]
        # Its end is judged below, by the same clock that judges it while it is connected.
        claims = jwt.decode(
            text,
            key,
            [ALGORITHM],
            audience=AUDIENCE,
            options={"require": required, "verify_exp": False, "verify_iat": False},
        )
        if int(claims["exp"]) + LEEWAY < now:
            raise BadToken("it has ended")
        workflows = tuple(str(pattern) for pattern in claims["wf"])
        if Role(claims["role"]) not in ROLES:
            raise BadToken(f"it has the role {claims['role']}")
        return Token(
            str(claims["jti"]),
            str(claims["sub"]),
            Role(claims["role"]),
            workflows,
            int(claims["exp"]),
            str(claims.get("cid", "")),
        )
    except (jwt.InvalidTokenError, ValueError, KeyError, TypeError) as error:
        raise BadToken(f"{type(error).__name__}: {error}") from error


def unverified(text: str) -> tuple[str, int]:
    """ID and end of a token, for the list of revoked ones; of an ID alone the end is the latest. Raises UsageError."""
    if re.fullmatch(r"[0-9a-f]{16}", text):
        return text, int(time.time()) + LONGEST
    try:
        claims = jwt.decode(text, options={"verify_signature": False})
        return str(claims["jti"]), int(claims["exp"])
    except (jwt.InvalidTokenError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"this is no token of agentmqtt: {error}") from error
