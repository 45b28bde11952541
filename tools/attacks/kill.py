"""kill -9 at random moments."""

import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from attacks import target
from attacks.target import ENVIRONMENT, command, outcome

NAME = "kill"
WHAT = "`kill -9` at a random moment of a run, several times in a row; the same command ends with the same bits"


def run_killed(out: Path, moments: random.Random, kills: int) -> int:
    """Kills the run `kills` times, then lets it end; returns how many kills hit it."""
    hit = 0
    for _ in range(kills):
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < 60 and not (out / "run/metrics.jsonl").exists():
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        hit += process.wait() == -signal.SIGKILL
    target.run(command(out))
    return hit


def attack(series: int, kills: int) -> tuple[int, list[str]]:
    tries, failures = 0, []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        target.run(command(whole))
        for seed in target.in_time(range(series)):
            out = Path(folder) / str(seed)
            tries += run_killed(out, random.Random(seed), kills)
            try:
                if outcome(out) != outcome(whole):
                    failures.append(f"series {seed}: other numbers than a run that was never killed")
            except (OSError, IndexError, ValueError) as error:
                failures.append(f"series {seed}: {error}")
    return tries, failures


def run() -> tuple[int, list[str]]:
    return attack(series=20, kills=5)
