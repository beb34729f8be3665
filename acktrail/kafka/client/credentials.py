"""What a client shows and what it trusts: tokens for SASL/OAUTHBEARER, and PEM files for TLS.

A token is fetched with a client's credentials, for both clients, and kept until shortly before it expires. The endpoint
is asked over verified TLS; no secret and no token is in an error or a log. PEM files are the authority that a client
trusts, its own certificate and its key.
"""

from __future__ import annotations

import base64
import math
import re
import ssl
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, NoReturn
from urllib.parse import quote_plus, urlencode, urlsplit

from kafka.net.sasl.oauth import AbstractTokenProvider

from acktrail.errors import AcktrailError, ConfigurationError, RetryableError
from acktrail.text_parsing import parse_json

_TIMEOUT_S: Final = 5.0
_LARGEST_ANSWER: Final = 1_000_000
_USED_SHARE: Final = 0.8
"""Of a token's life it is used; then a new one is fetched (Kafka: ``sasl.login.refresh.window.factor``)."""
_LAST_SHARE: Final = 0.98
_UNSAID_LIFE_S: Final = 300.0
"""How long a token is used that does not say how long it may be."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
"""The errors of RFC 6749, 5.2; any other text of an endpoint is not shown."""
_CLIENT_ERRORS: Final = range(400, 500)
_TOO_MANY: Final = 429
_CERTIFICATE: Final = "ssl.certificate.location"
_KEY: Final = "ssl.key.location"
_PEM: Final = b"-----BEGIN "
_LOCKED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """How to get a token for OAUTHBEARER: OAuth's client credentials grant (RFC 6749, 4.4). `ca_file` None: the
    system's authorities are trusted. `encodes_login`: id and secret are URL-encoded before they become Basic
    authentication, as the RFC says and Kafka does not by default. `extensions` go to the broker (KIP-342)."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    encodes_login: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as the endpoint gave it. `subject` is its claim ``sub``, None where it is no JWT; `life_s` are the
    seconds that it is good for."""

    text: str = field(repr=False)
    subject: str | None
    life_s: float


class TokenSource(AbstractTokenProvider):
    """Gives the current token to kafka-python (``token``) and to librdkafka (``for_librdkafka``). Thread-safe.

    Every method that needs a token raises ConfigurationError when the endpoint refused the client, is not trusted or
    gives no token, RetryableError when it does not answer."""

    def __init__(self, credentials: ClientCredentials) -> None:
        super().__init__()
        self._credentials = credentials
        self._lock = Lock()
        self._token: Token | None = None
        self._fetched_at = -math.inf

    def current(self) -> Token:
        """A token that is good for a while yet; fetched when there is none. While the endpoint does not answer, the one
        that is there is used to its end."""
        with self._lock:
            if self._token is None or self._age_s() > _USED_SHARE * self._token.life_s:
                try:
                    self._token, self._fetched_at = _fetch(self._credentials), time.monotonic()
                except RetryableError:
                    if self._token is None or self._age_s() > _LAST_SHARE * self._token.life_s:
                        raise
            return self._token

    def forget(self) -> None:
        """The broker refused the token: the next one is a new one."""
        with self._lock:
            self._token = None

    def token(self) -> str:
        """The token itself, as kafka-python asks for it."""
        return self.current().text

    def extensions(self) -> dict[str, str]:
        """What goes to the broker beside the token (KIP-342)."""
        return dict(self._credentials.extensions)

    def for_librdkafka(self, _: str = "") -> tuple[str, float, str, dict[str, str]]:
        """Token, the time it expires at (s since the epoch), principal, extensions: as confluent-kafka's ``oauth_cb``
        gives them."""
        token = self.current()
        return (
            token.text,
            time.time() + token.life_s - self._age_s(),
            token.subject or self._credentials.client_id,
            self.extensions(),
        )

    def _age_s(self) -> float:
        return time.monotonic() - self._fetched_at


@cache
def token_source(credentials: ClientCredentials) -> TokenSource:
    """The one source of this process for these credentials: every connection uses the same token."""
    return TokenSource(credentials)


def _fetch(credentials: ClientCredentials) -> Token:
    """Ask the endpoint (RFC 6749, 4.4.2). Most clusters have none: what asks is loaded here."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """A redirected request would take the secret along."""

    request = Request(credentials.token_url, *_request(credentials), method="POST")  # noqa: S310  # https, checked
    try:
        opener = build_opener(HTTPSHandler(context=_context(credentials)), NoRedirect)
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_LARGEST_ANSWER)
    except HTTPError as error:
        with error:
            raise _refusal(credentials, error.code, _members(error.read(_LARGEST_ANSWER))) from None
    except (OSError, HTTPException) as error:
        raise _unreachable(credentials, getattr(error, "reason", error)) from None
    return _token(credentials, _members(body))


def _context(credentials: ClientCredentials) -> ssl.SSLContext:
    context = ssl.create_default_context() if credentials.ca_file is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if credentials.ca_file is not None:
        trust(context, "https.ca.location", credentials.ca_file, signed="the token endpoint")
    return context


def _request(credentials: ClientCredentials) -> tuple[bytes, dict[str, str]]:
    """Form and headers."""
    encode = quote_plus if credentials.encodes_login else str
    login = f"{encode(credentials.client_id)}:{encode(credentials.client_secret)}"
    form = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    headers = {
        "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urlencode(form).encode(), headers


def _members(body: bytes) -> dict[str, Any]:
    """The members of a JSON object; none where `body` is something else."""
    try:
        found = parse_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _token(credentials: ClientCredentials, members: dict[str, Any]) -> Token:
    text = members.get("access_token")
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        message = f"the token endpoint {_shown(credentials)} gave no token"
        raise ConfigurationError(
            message, hint="check that sasl.oauthbearer.token.endpoint.url is an OAuth token endpoint"
        )
    claims = _claims(text)
    life_s = _number(members.get("expires_in"))
    if life_s is None:
        expires_at = _number(claims.get("exp"))
        life_s = _UNSAID_LIFE_S if expires_at is None else expires_at - time.time()
    if life_s <= 0:
        message = f"the token endpoint {_shown(credentials)} gave a token that has expired"
        raise ConfigurationError(message, hint="compare the clocks of this machine and of the endpoint")
    subject = claims.get("sub")
    return Token(text=text, subject=subject if isinstance(subject, str) else None, life_s=life_s)


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]  # a number, as was just seen


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JWT (RFC 7519), unverified: the broker verifies them. None for any other token."""
    head, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        return _members(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))) if head else {}
    except ValueError:
        return {}


def _refusal(credentials: ClientCredentials, status: int, members: dict[str, Any]) -> AcktrailError:
    code = members.get("error")
    said = code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else f"HTTP status {status}"
    if status not in _CLIENT_ERRORS or status == _TOO_MANY:
        message = f"the token endpoint {_shown(credentials)} gave no token: {said}"
        is_redirect = status < _CLIENT_ERRORS.start
        hint = "it redirects: name the address that it redirects to" if is_redirect else "try again; see its log"
        return (ConfigurationError if is_redirect else RetryableError)(message, hint=hint)
    message = f"the token endpoint {_shown(credentials)} refused the client {credentials.client_id!r}: {said}"
    return ConfigurationError(message, hint="check the client id, the client secret and sasl.oauthbearer.scope")


def _unreachable(credentials: ClientCredentials, reason: object) -> AcktrailError:
    where = f"the token endpoint {_shown(credentials)}"
    if isinstance(reason, ssl.SSLCertVerificationError):
        words = "is for another host name" if "mismatch" in str(reason) else "is not trusted"
        hint = "set https.ca.location to the authority that signed it (PEM), and name the host as the certificate does"
        return ConfigurationError(f"the certificate of {where} {words}", hint=hint)
    said = getattr(reason, "strerror", None) or type(reason).__name__
    message = f"{where} does not answer: {'no answer in time' if isinstance(reason, TimeoutError) else said}"
    return RetryableError(message, hint="check sasl.oauthbearer.token.endpoint.url, and that it can be reached")


def _shown(credentials: ClientCredentials) -> str:
    """The endpoint without its query, which may be secret."""
    parts = urlsplit(credentials.token_url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def trust(context: ssl.SSLContext, name: str, file: str | None, *, signed: str) -> None:
    """Trust the authorities in `file`, which property `name` names (None: those of the system), for what they
    `signed`. Raises ConfigurationError."""
    if file is None:
        context.load_default_certs()
        return
    _ensure_pem(name, file)
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        _fault(name, file, "holds no certificate", f"name the PEM file of the authority that signed {signed}")


def identify(context: ssl.SSLContext, certificate: str | None, key: str | None, password: str) -> None:
    """Show a client's certificate (None: none). Raises ConfigurationError with the property and the file: it cannot be
    read, is no PEM, or does not hold what it should; the key is of another certificate, or cannot be unlocked."""
    if certificate is None:
        if key is not None:
            _fault(_KEY, key, "has no certificate", f"set {_CERTIFICATE} as well")
        return
    key = key or certificate
    _ensure_pem(_CERTIFICATE, certificate)
    _ensure_pem(_KEY, key)
    try:
        # As a function: without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _fault(_KEY, key, f"does not belong to the certificate {certificate}", "name the certificate's own key")
        if any(sign in Path(key).read_bytes() for sign in _LOCKED):
            _fault(_KEY, key, "cannot be unlocked", "set ssl.key.password to its password")
        _fault(_CERTIFICATE, certificate, f"and {_KEY}: {key} are no certificate and key", "name two PEM files")


def _ensure_pem(name: str, file: str) -> None:
    try:
        if _PEM not in Path(file).read_bytes():
            _fault(name, file, "is not a PEM file", "export it as PEM (keytool and openssl can)")
    except OSError as error:
        words = f"cannot be read: {error.strerror or type(error).__name__}"
        _fault(name, file, words, "name a PEM file that this user may read")


def _fault(name: str, file: str, fault: str, hint: str) -> NoReturn:
    raise ConfigurationError(f"{name}: {file} {fault}", hint=hint, data={"property": name, "file": file}) from None
