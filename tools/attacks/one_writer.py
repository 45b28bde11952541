"""Two processes for one run folder, and orphans of a killed comparison."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable

from attacks import target
from attacks.target import ENVIRONMENT, command, one_line, program

NAME = "one_writer"
WHAT = ("a second process on a run folder is refused with the pid and host of the first; `compare` is killed, and none of its "
        "children lives on")

LONG = ["--schedule.steps", "100000", "--eval.every", "0", "--checkpoint.every", "0"]


def wait_for(found: Callable[[], bool], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found():
            return True
        time.sleep(0.02)
    return False


def second_writer(folder: Path) -> str:
    """Empty, or what went wrong."""
    first = subprocess.Popen(command(folder, *LONG), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        if not wait_for(lambda: (folder / "run/metrics.jsonl").exists()):
            return "the first process did not begin"
        done = target.run(command(folder, *LONG), seconds=120)
        wanted = f"is in use by process {first.pid} on {socket.gethostname()}"
        return one_line(done) or ("" if wanted in done.stderr else f"no '{wanted}' in {done.stderr!r}")
    except subprocess.TimeoutExpired:
        return "the second process runs as well"
    finally:
        first.kill()
        first.wait()


def children(folder: Path) -> list[int]:
    """Processes whose command line names the folder and `train`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"train" in words and any(os.fsencode(folder) in word for word in words):
            found.append(int(path.parent.name))
    return found


def killed_parent(folder: Path, signal_number: int) -> str:
    words = [str(program()), "compare", "linear", "softmax", "--task", "mqar:T=16,pairs=2,vocabulary=32", "--model.D", "16",
             "--train.batch", "8", *LONG[:4], "--seeds", "1", "--jobs", "2", "--device", "cpu", "--out", str(folder)]
    parent = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        if not wait_for(lambda: len(list(folder.glob("runs/*/metrics.jsonl"))) == 2):
            return "the children did not begin"
        parent.send_signal(signal_number)
        parent.wait()
        return "" if wait_for(lambda: not children(folder), 10) else f"children {children(folder)} live on"
    finally:
        parent.kill()
        for child in children(folder):
            os.kill(child, signal.SIGKILL)


def run() -> tuple[int, list[str]]:
    failures = []
    with tempfile.TemporaryDirectory() as name:
        for number in target.in_time(range(5)):
            failures.append(second_writer(Path(name) / f"second{number}"))
            failures.append(killed_parent(Path(name) / f"parent{number}", signal.SIGKILL))
            failures.append(killed_parent(Path(name) / f"segv{number}", signal.SIGSEGV))
    return len(failures), [line for line in failures if line]
