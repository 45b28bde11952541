"""What attacks share: the program, a small run that takes seconds, and what its outcome is."""

import json
import os
import random
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"  # has torch, for torchrun

SMALL = ["train", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--device", "cpu", "--model.D", "16",
         "--model.pattern", "softmax:heads=2,linear:heads=2", "--model.dropout", "0.1", "--train.batch", "8",
         "--schedule.steps", "24", "--eval.every", "9", "--eval.examples", "32", "--checkpoint.every", "3",
         "--log.every", "2", "--no-log.tensorboard"]
CLOCK = ("time", "tokens_per_second", "memory", "data_wait", "mfu")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


Item = TypeVar("Item")
_begin, _limit = 0.0, float("inf")


def limit(seconds: float) -> None:
    """From now on `in_time` stops after this time."""
    global _begin, _limit
    _begin, _limit = time.monotonic(), seconds


def in_time(items: Iterable[Item], share: float = 1) -> Iterator[Item]:
    """The items until a share of the time is over, at least one: a slow machine tries fewer."""
    for number, item in enumerate(items):
        if number > 0 and time.monotonic() - _begin > share * _limit:
            return
        yield item


def shuffled(items: Iterable[Item]) -> list[Item]:
    """Always in the same order, in which the first ones stand for all."""
    mixed = list(items)
    random.Random(0).shuffle(mixed)
    return mixed


def slowdown() -> float:
    """How much longer than a processor's time the clock says: 1 on an idle machine."""
    begin, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.1:
        pass
    return (time.monotonic() - begin) / 0.1


class Skipped(Exception):
    """This machine cannot run the attack; the text says why."""


def program() -> Path:
    named = os.environ.get("HORNER") or (os.environ.get("HORNER_LIBRARY", "") + "/horner")
    found = [Path(named), *sorted(ROOT.glob("build/*/horner"))]
    for path in found:
        if path.is_file():
            return path.resolve()
    raise Skipped("the program is not built: run ./horner list first")


@cache
def sanitizer() -> str:
    """The library of the sanitizers that the program was built with (HORNER_PRESET=asan, asan-clang); empty: none."""
    needed = subprocess.run(["ldd", program()], capture_output=True, text=True).stdout
    return next((line.split()[2] for line in needed.splitlines() if "asan" in line.split()[0]), "")


def command(out: Path, *more: str) -> list[str]:
    """The small run as `out`/run."""
    return [str(program()), *SMALL, "--out", str(out), "--name", "run", *more]


def run(words: list[str], seconds: float = 900, **more: Any) -> subprocess.CompletedProcess[str]:
    """Its environment may be extended by env={..}."""
    env = {**ENVIRONMENT, **more.pop("env", {})}
    return subprocess.run(words, capture_output=True, text=True, errors="replace", env=env, timeout=seconds, **more)


def processor_seconds() -> float:
    """Of the programs that have ended so far. A loaded machine does not change it much, as it changes a clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def outcome(out: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The numbers of metrics.jsonl without what a clock says, and the bytes of the last weights."""
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    newest = sorted((out / "run/checkpoints").glob("step_*/model.safetensors"))[-1]
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in lines], newest.read_bytes()


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    """Nothing if a failure was said in one line; else what is wrong with it."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("step ", "Note: "))]
    if done.returncode <= 0:
        return f"exit code {done.returncode}: {done.stderr[-300:]!r}"
    if len(lines) != 1 or not lines[0].startswith("horner"):
        return f"exit code {done.returncode}, but not one line: {done.stderr[-300:]!r}"
    return ""
