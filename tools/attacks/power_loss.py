"""Power loss: only what was synced is on the disk."""

import ctypes
import os
import random
import shutil
import struct
import tempfile
from pathlib import Path

from attacks import shim, target
from attacks.target import command, outcome

LIBC = ctypes.CDLL(None, use_errno=True)

NAME = "power_loss"
WHAT = ("the power fails before a random call that writes; what was not synced is lost, names and contents independently; "
        "the newest checkpoint is there, and the same command ends with the same bits")


def key_of(path: Path) -> str:
    """The name under which shim.c keeps an inode: its number and time of birth (statx)."""
    buffer = ctypes.create_string_buffer(256)
    if LIBC.statx(-100, os.fsencode(path), 0x100, 0x900, buffer) != 0:
        raise OSError(ctypes.get_errno(), "statx", str(path))
    (inode,) = struct.unpack_from("Q", buffer, 32)
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)
    return f"{inode}_{seconds}.{nanoseconds}"


class Disk:
    """What a disk may hold after a power loss: `kept` has what was synced, `live` what the program saw."""

    def __init__(self, kept: Path, live: Path, dice: random.Random, loses: str) -> None:
        self.kept, self.live, self.dice, self.loses = kept, live, dice, loses

    def choose(self, what: str) -> bool:
        """Whether the synced version is taken."""
        return self.loses == "all" or (self.loses == what) or (self.loses == "some" and self.dice.random() < 0.5)

    def restore(self, key: str, live: Path | None, to: Path) -> None:
        to.mkdir(exist_ok=True)
        listed = self.kept / f"{key}.folder"
        entries: list[tuple[str, str, str]] = []
        if self.choose("names") or live is None:
            text = listed.read_text() if listed.exists() else ""
            entries = [(kind, name, below) for kind, below, name in (line.split(" ", 2) for line in text.splitlines())]
        else:
            entries = [("folder" if path.is_dir() else "file", path.name, key_of(path)) for path in live.iterdir()]
        for kind, name, below in entries:
            now = live / name if live and (live / name).exists() and key_of(live / name) == below else None
            if kind == "folder":
                self.restore(below, now, to / name)
            else:
                self.restore_file(below, now, to / name)

    def restore_file(self, key: str, live: Path | None, to: Path) -> None:
        synced = self.kept / key
        before = synced.read_bytes() if synced.exists() else b""
        if live is None or self.choose("contents"):
            to.write_bytes(before)
        elif self.loses == "some" and self.dice.random() < 0.5:  # the size is there, the bytes are not
            size = live.stat().st_size
            to.write_bytes((before + bytes(size))[:size])
        else:
            shutil.copy(live, to)


def marked_before(calls: list[list[str]], cut: int) -> str:
    """The newest checkpoint that was finished before a call, since the run had gone on to other files; empty: none."""
    marked, finished = "", ""
    for words in calls[:cut - 1]:
        path = Path(words[-1])
        if words[0] == "rename" and path.name == "DONE":
            marked = path.parent.name
        elif path.name != marked:
            finished = marked
    return finished


def attack(cuts: list[int], seed: int = 0) -> tuple[int, list[str]]:
    """`cuts`: percentages of the calls of a whole run."""
    tries, failures, dice = 0, [], random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, log = folder / "whole", folder / "log"
        whole.mkdir()
        target.run(command(whole), env=shim.environment(whole, log=log))
        calls, wanted = shim.calls(log), outcome(whole)
        total = len(calls)
        for number, percent in enumerate(target.in_time(cuts)):
            tries += 1
            live, kept, after = (folder / f"{part}{number}" for part in ("live", "kept", "after"))
            live.mkdir(), kept.mkdir()
            cut = max(1, min(total, total * percent // 100 + dice.randrange(-3, 4)))
            target.run(command(live), env=shim.environment(live, cut=cut, disk=kept))
            loses = ("all", "names", "contents", "some")[number % 4]
            disk = Disk(kept, live, dice, loses)
            disk.restore(key_of(live), live, after)
            marked = marked_before(calls, cut)
            if marked and not (after / "run/checkpoints" / marked / "DONE").exists():
                failures.append(f"call {cut}, {loses} lost: {marked} is gone")
            done = target.run(command(after))
            try:
                if done.returncode != 0:
                    failures.append(f"call {cut}, {loses} lost: {done.stderr[-200:]}")
                elif outcome(after) != wanted:
                    failures.append(f"call {cut}, {loses} lost: other numbers")
            except (OSError, IndexError, ValueError) as error:
                failures.append(f"call {cut}, {loses} lost: {error}")
            for path in (live, kept, after):
                shutil.rmtree(path, ignore_errors=True)
    return tries, failures


def run() -> tuple[int, list[str]]:
    return attack(target.shuffled(range(100)))
