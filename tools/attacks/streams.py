"""Closed and full standard streams."""

import itertools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

from attacks import target
from attacks.target import ENVIRONMENT, command, outcome

NAME = "streams"
WHAT = ("stdin, stdout and stderr closed, full or with a reader that has left, in every combination; the run goes on, no data "
        "file gets a word of it, and a result that could not be written is exit code 1")

KINDS = ("open", "closed", "full", "left")


def prepare(kinds: tuple[str, str, str]) -> Callable[[], None]:
    def in_child() -> None:
        for number, kind in enumerate(kinds):
            if kind == "closed":
                os.close(number)
            elif kind == "full":
                os.dup2(os.open("/dev/full", os.O_RDWR), number)
            elif kind == "left":
                ends = os.pipe()
                os.dup2(ends[1], number)
                os.close(ends[0]), os.close(ends[1])
    return in_child


def attack(all_kinds: list[tuple[str, str, str]]) -> tuple[int, list[str]]:
    tries, failures = 0, []
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        target.run(command(whole))
        for kinds in target.in_time(all_kinds):
            tries += 1
            out = Path(name) / "_".join(kinds)
            done = subprocess.run(command(out), preexec_fn=prepare(kinds), env=ENVIRONMENT, timeout=900,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            expected = 0 if kinds[1] in ("open", "closed") else 1
            try:
                if done.returncode != expected:
                    failures.append(f"{kinds}: exit code {done.returncode}, {done.stderr[-200:]!r}")
                elif outcome(out) != outcome(whole):
                    failures.append(f"{kinds}: other numbers")
            except (OSError, IndexError, ValueError) as error:
                failures.append(f"{kinds}: {error}")
    return tries, failures


def run() -> tuple[int, list[str]]:
    return attack(target.shuffled(itertools.product(("open", "closed"), KINDS, KINDS)))
