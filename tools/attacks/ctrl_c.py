"""Ctrl-C in the parts of a run that take long."""

import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable

from attacks import target
from attacks.one_writer import children
from attacks.target import ENVIRONMENT, command, outcome, program

NAME = "ctrl_c"
WHAT = ("Ctrl-C in a long validation, in one large batch of it, in the test, in the measurement of speed and while examples are "
        "made is heard within two seconds, and the same command ends with the same bits; the second Ctrl-C ends at once")

# The validation takes half a minute, the steps before it no time.
SLOW = ["--task", "mqar:T=64,pairs=2,vocabulary=128,test=200000", "--eval.examples", "0", "--schedule.steps", "6"]
# One batch of the validation takes 15 s of a processor.
LARGE = ["--task", "mqar:T=2048,pairs=64,vocabulary=4096", "--model.D", "256", "--train.batch", "1", "--eval.batch", "64",
         "--eval.examples", "0", "--schedule.steps", "2"]
# Examples that take long to be put in order, and to be made.
MADE = {"order": ["--task", "mqar:T=16,pairs=2,vocabulary=32,train=60000000"],
        "batch": ["--task", "pathfinder:antialias=16,distractors=1000", "--train.batch", "2000"]}


def interrupt(words: list[str], ready: Callable[[], bool], pause: float, again: bool = False) -> tuple[float, int, str]:
    """Seconds until the end after Ctrl-C, as on an idle machine, the exit code and stderr. The long part begins when it is
    `ready`."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    end = time.monotonic() + 300
    while not ready() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)
    time.sleep(pause)
    slow = target.slowdown()
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    if again:
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    try:
        said = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1] + "(not heard)"
    taken = time.monotonic() - begin
    return taken / max(1, slow, target.slowdown()), process.returncode, said


def in_evaluation(folder: Path, every: str, name: str, run: list[str] = SLOW) -> str:
    out = folder / name
    words = command(out, *run, "--eval.every", every, "--log.every", "1")
    ready = out / ("run/checkpoints/step_00000006" if every == "0" else "run/metrics.jsonl")
    seconds, code, said = interrupt(words, ready.exists, 1.5)
    if seconds > 2 or code != 130 or "stopped" not in said:
        return f"{name}: {seconds:.1f} s, exit code {code}, {said[-200:]!r}"
    return ""


def in_data(folder: Path, name: str) -> str:
    out = folder / name
    seconds, code, said = interrupt(command(out, *MADE[name]), (out / "run/env.json").exists, 1)
    good = seconds <= 2 and code == 130 and "stopped before the first step" in said
    return "" if good else f"{name}: {seconds:.1f} s, exit code {code}, {said[-200:]!r}"


def goes_on(folder: Path) -> str:
    """Stopped in a validation of moderate length, the run ends as one that was not stopped."""
    medium = ["--task", "mqar:T=16,pairs=2,vocabulary=32,test=6000", "--eval.examples", "0", "--schedule.steps", "6",
              "--eval.every", "3", "--checkpoint.every", "0"]
    whole, parts = folder / "whole", folder / "parts"
    target.run(command(whole, *medium))
    _, code, said = interrupt(command(parts, *medium), (parts / "run/metrics.jsonl").exists, 0.3)
    target.run(command(parts, *medium))
    return "" if outcome(parts) == outcome(whole) else f"after {code} {said[-100:]!r}: other numbers"


def in_speed(folder: Path, again: bool) -> str:
    out = folder / f"speed{again}"
    words = [str(program()), "compare", "softmax", "linear", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--model.D",
             "64", "--schedule.steps", "2", "--seeds", "1", "--device", "cpu", "--speed_lengths", "16384",
             "--out", str(out)]
    seconds, code, said = interrupt(
        words, lambda: len(list(out.glob("runs/*/result.json"))) == 2 and not children(out), 0.5, again)
    good = seconds <= 2 and (code == 130 or (again and code in (-2, 130)))
    return "" if good else f"speed: {seconds:.1f} s, exit code {code}, {said[-200:]!r}"


def second(folder: Path) -> str:
    out = folder / "second"
    seconds, code, said = interrupt(command(out, *SLOW, "--train.batch", "4096", "--schedule.steps", "500"),
                                    (out / "run/metrics.jsonl").exists, 1, again=True)
    return "" if seconds < 1 and code in (-2, 130) else f"second: {seconds:.1f} s, exit code {code}, {said[-200:]!r}"


def run() -> tuple[int, list[str]]:
    failures = []
    with tempfile.TemporaryDirectory() as name:
        for number in target.in_time(range(2)):
            folder = Path(name) / str(number)
            folder.mkdir()
            failures += [in_evaluation(folder, "3", "validation"), in_evaluation(folder, "0", "test"), goes_on(folder),
                         in_evaluation(folder, "1", "batch of a validation", LARGE),
                         in_data(folder, "order"), in_data(folder, "batch"),
                         in_speed(folder, False), in_speed(folder, True), second(folder)]
    return len(failures), [line for line in failures if line]
