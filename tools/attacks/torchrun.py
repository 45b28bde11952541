"""Several processes that disagree, die or stall."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from attacks.target import ENVIRONMENT, command

NAME = "torchrun"
WHAT = ("two processes with different settings or data are refused in one line; a killed or stopped one is "
        "reported within a minute, never by `terminate called`, and so is one that never comes")

LONG = ["--model.dropout", "0", "--schedule.steps", "1000000", "--eval.every", "0", "--checkpoint.every", "0"]


def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start(words: list[list[str]], only: int | None = None) -> list["subprocess.Popen[str]"]:
    """One process per command, as torchrun would start them; `only`: this one alone."""
    common = {**ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port()), "WORLD_SIZE": str(len(words))}
    return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank, command in enumerate(words) if only in (None, rank)]


def end(processes: list["subprocess.Popen[str]"], seconds: float) -> list[str]:
    """The stderr of each; those that do not end in time are killed."""
    until, said = time.monotonic() + seconds, []
    for process in processes:
        try:
            said.append(process.communicate(timeout=max(0.1, until - time.monotonic()))[1])
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGCONT)
            process.kill()
            said.append(process.communicate()[1] + "(did not end)")
    return said


def other_settings(folder: Path, *other: str) -> str:
    out = folder / "settings"
    processes = start([command(out), command(out, *other)])
    said = end(processes, 300)
    for process, text in zip(processes, said):
        if process.returncode != 2 or not re.fullmatch(r"horner train: the processes of the run differ: .* in process 0, "
                                                       r".* in process 1\n", text):
            return f"{other}: exit code {process.returncode}, {text[-300:]!r}"
    return "" if not (out / "run").exists() else f"{other}: a run folder was made"


def lost(folder: Path, victim: int, signal_number: int, seconds: float = 60) -> str:
    """The others end with one line within a minute."""
    out = folder / f"lost_{victim}_{signal_number}"
    processes = start([command(out, *LONG)] * 2)
    begin = time.monotonic()
    while time.monotonic() - begin < 300 and not (out / "run/metrics.jsonl").exists():
        time.sleep(0.05)
    time.sleep(1)
    os.kill(processes[victim].pid, signal_number)
    other = processes[1 - victim]
    (said,) = end([other], seconds)
    end([processes[victim]], 0.2)
    lines = [line for line in said.splitlines() if not line.startswith("step ")]
    good = other.returncode == 1 and len(lines) == 1 and re.match(r"horner.*process \d", lines[0])
    return "" if good else f"process {victim}, signal {signal_number}: exit code {other.returncode}, {said[-400:]!r}"


def absent(folder: Path, seconds: float = 60) -> str:
    """Of two processes one is never started; the other ends with one line. Both cases at once, since each waits 40 seconds."""
    waiting = [(victim, start([command(folder / f"absent_{victim}", *LONG)] * 2, only=1 - victim)) for victim in (0, 1)]
    until = time.monotonic() + seconds
    failures = []
    for victim, alone in waiting:
        (said,) = end(alone, until - time.monotonic())
        if alone[0].returncode != 1 or not re.fullmatch(r"horner.*process \d.*\n", said):
            failures.append(f"process {victim} never came: exit code {alone[0].returncode}, {said[-400:]!r}")
    return "; ".join(failures)


def run() -> tuple[int, list[str]]:
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for other in (["--optim.lr", "0.5"], ["--model.D", "32"], ["--seed", "7"]):
            failures.append(other_settings(folder, *other))
        for number in range(1):
            for victim in (0, 1):
                for signal_number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP):
                    failures.append(lost(folder / str(number), victim, signal_number))
        failures.append(absent(folder))
    return len(failures), [line for line in failures if line]
