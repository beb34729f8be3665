"""An OAuth token endpoint over TLS that knows one client, and signs tokens which a broker can verify."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

__all__ = ["TokenEndpoint", "token_endpoint"]

_KEY_ID: Final = "test"
CLIENT: Final = ("trail-client", "s3cret/of+client")
AUDIENCE: Final = "kafka-of-the-test"
SUBJECT: Final = "exporter-by-token"


@dataclass
class TokenEndpoint:
    """`requests` are the forms that came, `behaviour` what it does: ``good``; ``audience``: tokens for somebody else;
    ``redirect``; ``down``: status 503; ``odd``: an answer without a token. `life_s`: of its tokens."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2048))
    requests: list[dict[str, list[str]]] = field(default_factory=list)
    behaviour: str = "good"
    life_s: float = 300.0
    port: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/token"

    def write_keys(self, file: Path) -> None:
        """The public key as a JSON Web Key Set (RFC 7517)."""
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        file.write_text(json.dumps({"keys": [{**key, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        self.requests.append(form)
        if self.behaviour == "down":
            return 503, {}
        if self.behaviour == "redirect":
            return 302, {}
        if self.behaviour == "odd":
            return 200, {"token": "somewhere else"}
        if login != "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode():
            return 401, {"error": "invalid_client", "error_description": f"{login} is wrong"}
        now, audience = int(time.time()), "somebody-else" if self.behaviour == "audience" else AUDIENCE
        claims = {"sub": SUBJECT, "aud": audience, "iat": now, "exp": now + int(self.life_s), "scope": "kafka"}
        token = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": _KEY_ID})
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}


@contextmanager
def token_endpoint(certificate: Path) -> Iterator[TokenEndpoint]:
    """An endpoint at 127.0.0.1 that ends with the block. `certificate`: PEM file with key and certificate."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, members = endpoint.answer(self.headers.get("Authorization", ""), form)
            body = json.dumps(members).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{endpoint.url}/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        endpoint.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield endpoint
        server.shutdown()
