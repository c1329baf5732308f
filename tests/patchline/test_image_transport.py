"""Connections to registries: TLS that is checked, proxies, what is kept and what is given up; real servers on loopback."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from registries import free_port, program

from patchline.errors import Refused, UsageError
from patchline.image.registry import url
from patchline.image.registry.client import Client
from patchline.image.registry.patience import Broken
from patchline.image.registry.transport import Headers, Response, Transport


class Handler(BaseHTTPRequestHandler):
    """Says what it was asked; `/short` breaks off, `/early` answers before it read, `/long` has a long body."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[int, str]]

    def do_GET(self) -> None:
        self.asked.append((self.client_address[1], self.path))
        data = b"x" * (200_000 if self.path == "/long" else 10)
        if self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("WWW-Authenticate", "Basic realm=a")
        self.send_header("WWW-Authenticate", "Bearer realm=b")
        self.end_headers()
        self.wfile.write(data[:4] if self.path == "/short" else data)
        self.close_connection = self.path in ("/short", "/last")

    def do_PUT(self) -> None:
        self.asked.append((self.client_address[1], self.path))
        self.send_response(413)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Tunnel(BaseHTTPRequestHandler):
    """A proxy for CONNECT."""

    asked: list[tuple[str, str | None]]

    def do_CONNECT(self) -> None:
        self.asked.append((self.path, self.headers["Proxy-Authorization"]))
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.send_response(200)
            self.end_headers()
            back = Thread(target=_pour, args=(there, self.connection), daemon=True)
            back.start()
            _pour(self.connection, there)
            back.join(5)

    def log_message(self, *_: object) -> None:
        pass


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # one side hung up
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def serving(kind: type[BaseHTTPRequestHandler], certificate: Path | None = None) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (kind,), {"asked": []}))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(server: ThreadingHTTPServer) -> list[tuple[object, str]]:
    found: list[tuple[object, str]] = server.RequestHandlerClass.asked  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, signed by itself."""
    at = tmp_path_factory.mktemp("tls")
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", "key.pem"]
    named = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", "cert.pem"]
    subprocess.run([program("openssl"), "req", *words, *named], cwd=at, check=True, capture_output=True)
    return at


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def get(transport: Transport, port: int, path: str, scheme: str = "http") -> bytes:
    response = transport.send("GET", url.parse(f"{scheme}://127.0.0.1:{port}{path}"), {}, b"")
    try:
        return b"".join(transport.pieces(response))
    finally:
        response.close()


def test_a_connection_is_kept_and_one_that_was_closed_is_not_used(transport: Transport) -> None:
    with serving(Handler) as server:
        for path in ("/", "/chunks", "/", "/last", "/"):
            assert get(transport, server.server_port, path) in (b"x" * 10, b"abcde")
        ports = [port for port, _ in asked(server)]
    assert len({*ports[:4]}) == 1
    assert ports[4] != ports[3]


def test_what_nobody_reads_costs_a_connection_only_where_it_is_long(transport: Transport) -> None:
    with serving(Handler) as server:
        for path in ("/", "/long", "/"):
            transport.send("GET", url.parse(f"http://127.0.0.1:{server.server_port}{path}"), {}, b"").close()
        ports = [port for port, _ in asked(server)]
    assert ports[0] == ports[1] != ports[2]


def test_a_body_that_breaks_off(transport: Transport) -> None:
    with serving(Handler) as server, pytest.raises(Broken, match="the answer broke off: 6 bytes did not come"):
        get(transport, server.server_port, "/short")


def test_who_wants_no_more_of_a_body_is_heard(transport: Transport) -> None:
    with serving(Handler) as server:
        at = url.parse(f"http://127.0.0.1:{server.server_port}/")
        answer: Response = transport.send("PUT", at, {}, bytes(2**24))
        assert answer.status == 413
        answer.close()


def test_headers_that_come_twice(transport: Transport) -> None:
    with serving(Handler) as server:
        response = transport.send("GET", url.parse(f"http://127.0.0.1:{server.server_port}/"), {}, b"")
        response.close()
    assert response.headers["www-authenticate"] == "Basic realm=a, Bearer realm=b"
    assert "WWW-Authenticate" in Headers([("www-AUTHENTICATE", "x")])


def test_certificates_are_checked(transport: Transport, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Handler, certificate) as server:
        with pytest.raises(Broken, match=r"no answer: .*certificate verify failed"):
            get(transport, server.server_port, "/", "https")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        trusting = Transport()
        assert get(trusting, server.server_port, "/", "https") == b"x" * 10
        trusting.close()
    assert [path for _, path in asked(server)] == ["/"]


def test_a_proxy_is_asked_for_a_tunnel(
    transport: Transport, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with serving(Handler, certificate) as server, serving(Tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:a%20word@127.0.0.1:{proxy.server_port}")
        assert get(transport, server.server_port, "/", "https") == b"x" * 10
        assert asked(proxy) == [(f"127.0.0.1:{server.server_port}", "Basic bWU6YSB3b3Jk")]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        direct = Transport()
        assert get(direct, server.server_port, "/", "https") == b"x" * 10
        direct.close()
        transport.close()
    assert len(asked(proxy)) == 1


def test_this_machine_is_asked_without_a_proxy(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with serving(Handler) as server:
        assert get(transport, server.server_port, "/") == b"x" * 10


def test_a_proxy_that_cannot_be_used(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@127.0.0.1:1")
    with pytest.raises(UsageError, match="not asked over plain HTTP") as caught:
        get(transport, 1, "/", "https")
    assert "secret" not in str(caught.value)


PLACES = {
    "/v2/x": "http://127.0.0.1:5/v2/x",
    "?n=2": "http://127.0.0.1:5/v2/a?n=2",
    "HTTP://127.0.0.1:80/A b\u00e4?q=\u00e4#part": "http://127.0.0.1/A%20b%C3%A4?q=%C3%A4",
    "http://[::1]:7/x": "http://[::1]:7/x",
    "https://me:word@cdn.example:443/x%2Fy?s=1%20": "https://cdn.example/x%2Fy?s=1%20",
    "//127.0.0.1": "http://127.0.0.1/",
}


@pytest.mark.parametrize("location", PLACES)
def test_where_a_location_leads(location: str) -> None:
    assert str(url.join("http://127.0.0.1:5/v2/a?b=c", location)) == PLACES[location]


WRONG = [
    "ftp://127.0.0.1/x",
    "http://127.0.0.1:99999/",
    "https://b\u00fcrger.example/",
    "http://a b/",
    "http://[::1/",
    "mailto:a@b",
]


@pytest.mark.parametrize("location", WRONG)
def test_what_is_no_url(location: str) -> None:
    with Client("127.0.0.1:5") as client, pytest.raises(Refused, match="sends us to what is no url"):
        client.resolve("http://127.0.0.1:5/v2/a", location)


@pytest.mark.parametrize(
    "location", ["http://cdn.example/x", "http://127.0.0.1.example/", "http://127.0.0.1@cdn.example/"]
)
def test_plain_http_elsewhere_is_refused(location: str) -> None:
    with Client("127.0.0.1:5") as client, pytest.raises(Refused, match="plain HTTP is for this machine only"):
        client.resolve("http://127.0.0.1:5/v2/a", location)
    with Client("registry.example") as client, pytest.raises(Refused, match="plain HTTP is for this machine only"):
        client.resolve("https://registry.example/v2/a", "http://127.0.0.1/")
