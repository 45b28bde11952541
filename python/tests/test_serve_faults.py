"""horner serve: hostile and slow clients, limits, no memory, keys, SIGTERM."""

import concurrent.futures
import json
import re
import socket
import sys
import time
from pathlib import Path

import pytest

from serving import LONG, PROGRAM, ROOT, Server

sys.path.insert(0, str(ROOT / "tools"))
from attacks import shim  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def test_clients_that_leave_free_their_stream(server: Server) -> None:
    for stream in (True, False):
        body = json.dumps({"prompt": "x", "stream": stream} | LONG).encode()
        head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        clients = []
        for _ in range(4):
            client = socket.create_connection((server.host, server.port))
            client.sendall(head.encode() + body)
            clients.append(client)
        server.wait_for_streams(4)
        for client in clients:
            client.close()
        server.wait_until_idle()


def send(server: Server, data: bytes, wait: float = 20) -> bytes:
    """What comes back before the server closes the connection."""
    with socket.create_connection((server.host, server.port), timeout=wait) as client:
        client.sendall(data)
        found = b""
        try:
            while more := client.recv(65536):
                found += more
        except (TimeoutError, ConnectionResetError):
            pass
        return found


def post_bytes(body: bytes, *headers: str, length: int | None = None, kind: str = "application/json") -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Connection: close",
             f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("data, status", [
    (post_bytes(b'{"prompt": "\xff\xfe"}'), 400),
    (post_bytes(b"[" * 100000), 400),
    (post_bytes(b'{"prompt": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001), 400),
    (post_bytes(b'{"prompt": "a", "prompt": "b"}'), 400),
    (post_bytes(b"{}", *(f"X-{i}: {i}" for i in range(10000))), 400),
    (post_bytes(b"prompt=a", kind="application/x-www-form-urlencoded"), 400),
    (post_bytes(b'{"prompt": "a"}', kind="multipart/form-data; boundary=x"), 400),
    (post_bytes(b"x" * 100, "Content-Encoding: gzip"), 400),
    (post_bytes(b'{"prompt": "' + b"a" * 10_000_000 + b'"}'), 413),
    (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 400),
    (b"BREW / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
], ids=range(13))
def test_hostile_requests(server: Server, data: bytes, status: int) -> None:
    answer = send(server, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    assert b'"error"' in answer
    assert server.ask("GET", "/health") == {"status": "ok"}


SMALL_BODY = b'{"prompt": "a", "max_tokens": 1}'
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def framed(*headers: str, method: str = "POST", body: bytes = SMALL_BODY) -> bytes:
    lines = [f"{method} /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMALL_BODY), SMALL_BODY)
LENGTH = f"Content-Length: {len(SMALL_BODY)}"


@pytest.mark.parametrize("data", [
    framed(LENGTH, "Content-Length: 5"),
    framed("Content-Length: 5", LENGTH),
    framed("Content-Length: 5", "Transfer-Encoding: chunked", body=CHUNKS),
    framed(LENGTH, "Transfer-Encoding: xchunked"),
    framed("Transfer-Encoding: gzip, chunked", body=CHUNKS),
    framed("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=CHUNKS),
    framed(LENGTH + "abc"),
    framed("Content-Length: +5"),
    framed("Content-Length: -5"),
    framed("Content-Length:"),
    framed("Content-Length : 5"),
    framed(LENGTH, " X-Folded: a"),
    framed(),
    framed(f"Content-Length: {len(NEXT)}", method="GET", body=NEXT),
    framed(f"Content-Length: {len(NEXT)}", method="OPTIONS", body=NEXT),
    framed(f"Content-Length: {len(NEXT)}", method="DELETE", body=NEXT),
    framed("Transfer-Encoding: chunked", method="HEAD", body=CHUNKS),
    framed(LENGTH, "Host: evil.example"),
    framed("Transfer-Encoding: chunked", body=b"zz\r\n" + SMALL_BODY),
    framed("Transfer-Encoding: chunked", body=b"ffffffffffffffff\r\n" + SMALL_BODY + b"\r\n0\r\n\r\n"),
    bytes.fromhex("1603010200010001fc0303") + bytes(range(1, 256)),  # a greeting of TLS
], ids=range(21))
def test_where_a_request_ends_is_said_plainly(server: Server, data: bytes) -> None:
    answer = send(server, data + NEXT)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, answer[:400]
    assert server.ask("GET", "/health") == {"status": "ok"}


def test_requests_one_after_the_other_in_chunks_and_with_a_question_before(server: Server) -> None:
    data = (NEXT + framed("Transfer-Encoding: chunked", body=CHUNKS) + framed(LENGTH) + framed(LENGTH, "Expect: 100-continue")
            + b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answers = send(server, data).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"100", b"200", b"200", b"200"]
    for answer in answers[1:3]:
        assert json.loads(answer.split(b"\r\n\r\n")[1])["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("host, status", [
    *((host, 200) for host in ("localhost", "LocalHost:80", "localhost.", "127.0.0.1:1", "127.1.2.3", "[::1]:80", "10.0.0.1")),
    *((host, 400) for host in ("evil.example", "127.evil.example", "127.0.0.1.evil.example", "localhost.evil.example",
                               "evil.example@localhost", "[::1.evil.example]", "127.0.0.1@evil.example", "..")),
])
def test_names_of_other_machines_are_refused(server: Server, host: str, status: int) -> None:
    """A page of another site can make a name of its own mean this machine."""
    assert server.ask("GET", "/health", status=status, Host=host)


def test_a_page_of_another_site_gets_no_leave(server: Server) -> None:
    answer = send(server, b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nConnection: close\r\n"
                  b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404") and b"access-control" not in answer.lower()


def test_large_bodies_are_read_few_at_a_time(models: dict[str, Path]) -> None:
    with Server(models["gla"], "--body", 8) as server:
        def most_memory() -> float:  # MiB
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

        body = json.dumps({"prompt": ["a"] * 1_000_000}).encode()
        server.ask("POST", "/v1/completions", body, 400)
        one = most_memory()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: server.ask("POST", "/v1/completions", body, 400), range(12)))
        assert all("a request takes at most 256" in answer["error"]["message"] for answer in answers)
        assert most_memory() < one + 400  # each alone takes some 150


def test_answers_are_whole(server: Server) -> None:
    page = server.ask("GET", "/chat.js")
    for ranges in ("0-4", ",".join(["0-"] * 1000)):
        assert server.ask("GET", "/chat.js", Range=f"bytes={ranges}") == page
    assert server.ask("POST", "/tokenize", {"prompt": "abc"}, Range="bytes=5-9")["count"] == 3


def test_slow_and_half_requests(server: Server) -> None:
    assert send(server, post_bytes(b'{"prompt"', length=500)).startswith(b"HTTP/1.1 400")  # half a request
    with socket.create_connection((server.host, server.port), timeout=20) as client:  # a byte now and then
        with pytest.raises(OSError):
            for _ in range(600):  # each request has 3 seconds
                client.sendall(b"G")
                time.sleep(0.2)
    assert server.ask("GET", "/health") == {"status": "ok"}


def test_limits(models: dict[str, Path]) -> None:
    with Server(models["gla"], "--streams", 1, "--queue", 2, "--connections", 6) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool, socket.create_connection((server.host, server.port)) as client:
            client.sendall(post_bytes(json.dumps({"prompt": "x", "stream": True} | LONG).encode()))
            server.wait_for_streams(1)
            answer = server.post("/v1/completions", 400, prompt=["a", "b", "c"], max_tokens=1)
            assert "a request takes at most 2" in answer["error"]["message"]
            wait = pool.submit(server.post, "/v1/completions", prompt=["a", "b"], max_tokens=1)
            server.wait_until(lambda one: one.metric("queue") == 2)
            answer = server.post("/v1/completions", 429, prompt="c", max_tokens=1)
            assert "the limit is 2" in answer["error"]["message"]
            assert server.metric("streams") == 1 and b"data: {" in client.recv(65536)
            client.close()
            assert len(wait.result()["choices"]) == 2
        idle = [socket.create_connection((server.host, server.port)) for _ in range(6)]
        server.wait_until(lambda one: b"too many connections" in send(one, b"", wait=1))
        for client in idle:
            client.close()
        server.wait_until(lambda one: b'"ok"' in send(one, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"))


def test_without_memory_new_texts_are_refused_and_old_ones_go_on(models: dict[str, Path]) -> None:
    with Server(models["softmax"], "--memory", 500) as server:  # 640 bytes a token
        message = server.post("/v1/completions", 400, prompt="x", n=2, **LONG)["error"]["message"]
        assert "ask for fewer tokens" in message
        body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 600_000, "ignore_eos": True}).encode()
        with socket.create_connection((server.host, server.port), timeout=60) as client:
            client.sendall(post_bytes(body))
            server.wait_for_streams(1)
            message = server.post("/v1/completions", 503, prompt="y", **LONG | {"max_tokens": 600_000})["error"]["message"]
            assert "try again later" in message
            assert server.text("y", max_tokens=3, ignore_eos=True)  # a short one fits
            assert server.metric("streams") == 1 and b"data: {" in client.recv(65536)
        server.wait_until_idle()
        server.text("y", max_tokens=1)


def test_a_key(models: dict[str, Path]) -> None:
    with Server(models["gla"], HORNER_API_KEY="secret") as server:
        assert server.ask("GET", "/health") == {"status": "ok"}
        assert server.ask("GET", "/v1/models", status=401)["error"]["type"] == "authentication_error"
        for wrong in ("secret", "Bearer secre", "Bearer secrets", "Bearer "):
            server.ask("GET", "/v1/models", status=401, Authorization=wrong)
        assert server.ask("GET", "/v1/models", Authorization="Bearer secret")["data"]
    with Server(models["gla"], "--host", "0.0.0.0") as server:
        assert any(line.startswith("warning: everybody") for line in server.lines)
    with Server(models["gla"]) as server:
        assert server.host == "127.0.0.1" and not any("warning" in line for line in server.lines)


def test_sigterm_drains(models: dict[str, Path]) -> None:
    server = Server(models["gla"], "--drain_seconds", 500)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(server.events, "/v1/completions", prompt="x", max_tokens=1500, ignore_eos=True)
        server.wait_until(lambda one: one.metric("prompt_tokens_total") > 0)
        assert server.stop() == 0
        assert long.result()[-1]["choices"][0]["finish_reason"] == "length"
    cut = Server(models["gla"], "--drain_seconds", 0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(cut.events, "/v1/completions", prompt="x", **LONG)
        cut.wait_for_streams(1)
        assert cut.stop() == 0
        assert "shutting down" in long.result()[-1]["error"]["message"]


def test_a_text_whose_prompt_is_still_read_is_finished_after_sigterm(models: dict[str, Path]) -> None:
    server = Server(models["gla"], "--drain_seconds", 500)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": "x" * 30000, "max_tokens": 3, "ignore_eos": True}
        slow = pool.submit(server.events, "/v1/completions", **body)
        server.wait_until(lambda one: one.metric("prompt_tokens_total") > 0)
        assert server.stop() == 0
        assert slow.result()[-1]["choices"][0]["finish_reason"] == "length"


def test_clients_that_cannot_be_taken_do_not_end_the_server(models: dict[str, Path], tmp_path: Path) -> None:
    full = tmp_path / "no_threads"
    with Server(models["gla"], **shim.environment(tmp_path, accept=3, threads=full)) as server:
        for _ in range(3):  # the connection is aborted before it is taken
            with pytest.raises(OSError):
                server.ask("GET", "/health")
        assert server.ask("GET", "/health") == {"status": "ok"}
        full.touch()
        head, body = send(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n\r\n")
        assert b"503" in head and f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
        assert json.loads(body)["error"]["code"] == "too_many_connections"
        full.unlink()
        assert server.text("x", max_tokens=3, ignore_eos=True)
