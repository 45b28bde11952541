"""Faults: a call that writes fails."""

import errno
import itertools
import tempfile
from pathlib import Path

from attacks import shim, target
from attacks.target import command, one_line, outcome

NAME = "faults"
WHAT = ("the n-th call that opens, writes, syncs or renames fails (no space, input/output error); one line and an exit code, "
        "then the same command ends with the same bits")


def attack(step: int, errors: tuple[int, ...] = (errno.ENOSPC, errno.EIO)) -> tuple[int, list[str]]:
    """Every `step`-th call of a whole run."""
    tries, failures = 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, log = folder / "whole", folder / "log"
        whole.mkdir()
        target.run(command(whole), env=shim.environment(whole, log=log))
        wanted = outcome(whole)
        calls = range(1, len(shim.calls(log)) + 1, step)
        for error, call in target.in_time(target.shuffled(itertools.product(errors, calls))):
            tries += 1
            out = folder / f"{error}_{call}"
            out.mkdir()
            words = shim.calls(log)[call - 1]
            where = f"call {call} ({words[0]} {Path(words[-1]).name}), {errno.errorcode[error]}"
            done = target.run(command(out), env=shim.environment(out, fail=f"{call}:{error}"))
            wrong = one_line(done) if done.returncode != 0 else ""
            if wrong:
                failures.append(f"{where}: {wrong}")
            again = target.run(command(out))
            try:
                if again.returncode != 0 or outcome(out) != wanted:
                    failures.append(f"{where}: afterwards {again.stderr[-200:] or 'other numbers'}")
            except (OSError, IndexError, ValueError) as problem:
                failures.append(f"{where}: afterwards {problem}")
    return tries, failures


def run() -> tuple[int, list[str]]:
    return attack(step=7)
