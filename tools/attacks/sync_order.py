"""The order of calls by which a power loss costs nothing."""

import tempfile
from pathlib import Path

from attacks import shim, target
from attacks.target import command

NAME = "sync_order"
WHAT = ("every rename of a run: the file was synced after its last write, and its folder is synced before anything is "
        "renamed that relies on it; metrics.jsonl is synced before each checkpoint is marked; no other file is written under "
        "its own name")


GROWING = ("metrics.jsonl", "lock")  # every other file appears whole, by a rename


def check(calls: list[list[str]]) -> tuple[int, list[str]]:
    renames, failures = 0, []
    unsynced: set[str] = set()  # files with bytes, and folders with names, that are not on the disk
    for words in calls:
        what, path = words[0], words[-1]
        above = str(Path(path).parent)
        if what == "fwrite":
            unsynced.add(path)
            if ".tmp" not in path and Path(path).name not in GROWING:
                failures.append(f"{path}: written under its own name")
        elif what == "fsync":
            unsynced.discard(path)
        elif what == "mkdir":
            unsynced.add(above)
        elif what == "rename":
            renames += 1
            source = words[1]
            waiting = [x for x in unsynced if x == source or x.startswith(source + "/")]
            if waiting:
                failures.append(f"{path}: renamed before {waiting[0]} was synced")
            if Path(path).name == "DONE":
                early = [x for x in unsynced if x.startswith((above + "/", str(Path(above).parent))) and
                         not x.endswith(".tmp")]
                failures += [f"{path}: marked before {x} was synced" for x in early]
            unsynced.add(above)
    failures += [f"{x}: never synced" for x in unsynced]
    return renames, failures


def run() -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        out, log = Path(name) / "out", Path(name) / "log"
        out.mkdir()
        target.run(command(out), env=shim.environment(out, log=log))
        return check(shim.calls(log))
