"""A `horner serve` for tests: started on a free port of this machine, asked over plain sockets."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
SMALL = ("--model.D", "16", "--model.layers", "2", "--schedule.steps", "2", "--eval.examples", "8")
LONG = {"max_tokens": 10**6, "ignore_eos": True}  # minutes: such a text ends only when it is cut off


def train(folder: Path, name: str, *words: str) -> Path:
    """A tiny model of bytes."""
    text = ROOT / "examples/text/shakespeare.txt"
    subprocess.run([PROGRAM, "train", "--task", f"byte:data={text},T=32", *SMALL, *words, "--out", folder,
                    "--name", name], check=True, capture_output=True)
    return folder / name


class Server:
    """A running server; use it as a context."""

    def __init__(self, model: Path | str, *words: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(model), "--port", "0", "--template", "chatml", *map(str, words)],
            stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
        self.lines: list[str] = []
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r" listens on http://(\S+):(\d+)$", line):
                self.host, self.port = found[1], int(found[2])
                break
        else:
            raise AssertionError("".join(self.lines))
        self.url = f"http://{self.host}:{self.port}"

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(600)  # at once on an idle machine
        assert self.process.stderr
        self.process.stderr.close()
        return code

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        """The JSON (or the bytes) of an answer; its status is checked."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        named = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, data, named)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status == status, (answer.status, content[:500])
        if "json" not in answer.headers["Content-Type"]:
            return content
        found = json.loads(content)
        if status >= 400:
            assert set(found["error"]) == {"message", "type", "code"} and found["error"]["message"]
        return found

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        return self.ask("POST", path, body, status)

    def text(self, prompt: Any, **body: Any) -> str:
        return self.post("/v1/completions", prompt=prompt, **body)["choices"][0]["text"]  # type: ignore[no-any-return]

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a stream; it must end with [DONE]."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        connection.request("POST", path, json.dumps(body | {"stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.read()
        lines = answer.read().decode().split("\n\n")
        connection.close()
        assert lines[-2:] == ["data: [DONE]", ""] and all(line.startswith("data: ") for line in lines[:-1])
        return [json.loads(line[6:]) for line in lines[:-2]]

    def metric(self, name: str) -> float:
        page = self.ask("GET", "/metrics").decode()
        (value,) = re.findall(rf"^horner_{name} (\S+)$", page, re.MULTILINE)
        return float(value)

    def wait_until(self, ready: Callable[["Server"], bool]) -> None:
        """Waits for something that comes soon on an idle machine; the limit is for one that is busy."""
        deadline = time.monotonic() + 60
        while not ready(self):
            assert time.monotonic() < deadline, f"it never came: {self.ask('GET', '/metrics').decode()[:800]}"
            time.sleep(0.02)

    def wait_for_streams(self, count: int) -> None:
        self.wait_until(lambda server: server.metric("streams") >= count)

    def wait_until_idle(self) -> None:
        self.wait_until(lambda server: server.metric("streams") + server.metric("queue") == 0)
