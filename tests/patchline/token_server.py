"""A token server as registries know them: it signs what a user may do, and a registry believes the certificate."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from registries import PASSWORD, USER, program

REFRESH = "a refresh token"


@dataclass
class Tokens:
    """What was asked for; `readers` may pull only."""

    url: str
    at: Path
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    may: tuple[str, ...] = ("pull", "push")

    @property
    def auth(self) -> dict[str, object]:
        """The registry's configuration."""
        said = {
            "realm": f"{self.url}/token",
            "service": "tiny",
            "issuer": "a test",
            "rootcertbundle": str(self.at / "cert.pem"),
        }
        return {"token": said}

    def token(self, scopes: list[str]) -> str:
        """A JSON web token for what of these scopes the user may do."""
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            access.append(
                {"type": kind, "name": name, "actions": [one for one in actions.split(",") if one in self.may]}
            )
        now = int(time.time())
        der = subprocess.run(
            ["openssl", "x509", "-in", "cert.pem", "-outform", "DER"], cwd=self.at, check=True, capture_output=True
        )
        header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der.stdout).decode()]}
        claims = {
            "iss": "a test",
            "sub": USER,
            "aud": "tiny",
            "exp": now + 300,
            "nbf": now - 10,
            "iat": now,
            "jti": str(now),
        }
        text = ".".join(_b64(json.dumps(one).encode()) for one in (header, {**claims, "access": access}))
        words = ["openssl", "dgst", "-sha256", "-sign", "key.pem"]
        signed = subprocess.run(words, cwd=self.at, input=text.encode(), check=True, capture_output=True)
        return f"{text}.{_b64(signed.stdout)}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _Handler(BaseHTTPRequestHandler):
    tokens: Tokens

    def do_GET(self) -> None:
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self._answer(parse_qs(urlsplit(self.path).query), self.headers.get("Authorization") == f"Basic {basic}")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        good = form.get("refresh_token") == [REFRESH] and form.get("grant_type") == ["refresh_token"]
        self._answer({**form, "scope": form["scope"][0].split()}, good)

    def _answer(self, query: dict[str, list[str]], good: bool) -> None:
        self.tokens.asked.append(query)
        self.tokens.methods.append(self.command)
        name = "access_token" if self.command == "POST" else "token"
        body = json.dumps({name: self.tokens.token(query.get("scope", [])), "expires_in": 300} if good else {}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_server(at: Path) -> Iterator[Tokens]:
    """One on loopback; its key and certificate lie below `at`."""
    at.mkdir()
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", "key.pem"]
    subprocess.run([program("openssl"), "req", *words, "-out", "cert.pem"], cwd=at, check=True, capture_output=True)
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.tokens = tokens = Tokens(f"http://127.0.0.1:{server.server_address[1]}", at)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield tokens
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
