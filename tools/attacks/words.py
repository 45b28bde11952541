"""Damaged files of a run, killed children, vanished folders, no memory: what a user reads."""

import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from attacks import target
from attacks.one_writer import children, wait_for
from attacks.target import ENVIRONMENT, command, one_line, program

NAME = "words"
WHAT = ("files of a run with other contents, a killed child, a deleted folder, no memory; each is one line that a user "
        "understands, with the right exit code, or a note and the run goes on")

FORBIDDEN = ("stoll", "_M_", "json.exception", "basic_string", "terminate called", "vector::", "bad_alloc")
CONTENTS = ("", "[]", "{}", "null", "1", '{"step": -1}', '{"lines": -5}', '{"step": 24, "lines": -5}', '{"step": "a"}',
            '{"folder": 1}', '{"lengths": {"x": {}}}', '{"format_version": 99}', '{"format_version": "a"}', "{" * 50, "\0" * 50)
VALUES = (None, True, -1, 1.5, 10**30, 1e300, "", "x", [], {}, [[]], {"x": 1})
MUTATED = ("result.json", "env.json", "config.json", "checkpoints/step_00000024/DONE")
FILES = ("config.json", "env.json", "metrics.jsonl", "result.json", "checkpoints/step_00000024/trainer.json",
         "checkpoints/step_00000024/DONE", "checkpoints/step_00000024/config.json",
         "checkpoints/step_00000024/optimizer.safetensors", "checkpoints/step_abc/DONE",
         "checkpoints/step_99999999999999999999/DONE", "checkpoints/step_/DONE")


def judge(done: "subprocess.CompletedProcess[str]") -> str:
    """Either it went well, or one line said why not."""
    bad = [word for word in FORBIDDEN if word in done.stderr]
    if bad:
        return f"'{bad[0]}' in {done.stderr[-300:]!r}"
    return one_line(done) if done.returncode != 0 else ""


def damaged(folder: Path, contents: tuple[str, ...] = CONTENTS) -> list[str]:
    results = []
    whole = folder / "whole"
    target.run(command(whole))
    for file, content in target.in_time(target.shuffled(itertools.product(FILES, contents)), share=0.6):
        out = folder / "damaged"
        shutil.copytree(whole, out)
        if file != "result.json":
            (out / "run/result.json").unlink()
        (out / "run" / file).parent.mkdir(exist_ok=True)
        (out / "run" / file).write_text(content)
        wrong = judge(target.run(command(out)))
        results.append(f"{file} = {content[:30]!r}: {wrong}" if wrong else "")
        shutil.rmtree(out)
    return results


def places(json_value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    keys = json_value.keys() if isinstance(json_value, dict) else range(len(json_value)) if isinstance(json_value, list) else ()
    return [path] * bool(path) + [place for key in keys for place in places(json_value[key], (*path, key))]


def mutated(folder: Path, rounds: int) -> list[str]:
    """One value of a JSON file of a run, or the name of one, is another."""
    whole, dice, results = folder / "whole", random.Random(0), []
    target.run(command(whole, "--eval.lengths", "24"))
    for number in target.in_time(range(rounds)):
        out = folder / "mutated"
        shutil.copytree(whole, out)
        file = MUTATED[number % len(MUTATED)]
        if file != "result.json":
            (out / "run/result.json").unlink()
        path = out / "run" / file
        content = json.loads(path.read_text())
        place, value = dice.choice(places(content)), dice.choice(VALUES)
        if number == 0:
            place = ("lengths", "24")  # a number in a name
        above = content
        for key in place[:-1]:
            above = above[key]
        if isinstance(above, dict) and number % 3 == 0:
            above["x"] = above.pop(place[-1])
        else:
            above[place[-1]] = value
        path.write_text(json.dumps(content))
        wrong = judge(target.run(command(out, "--eval.lengths", "24")))
        results.append(f"{file} {place} = {value!r}, {number}: {wrong}" if wrong else "")
        shutil.rmtree(out)
    return results


def killed_child(folder: Path) -> str:
    words = [str(program()), "compare", "linear", "softmax", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--model.D",
             "16", "--train.batch", "8", "--schedule.steps", "3000", "--eval.every", "0", "--seeds", "2", "--jobs", "4",
             "--speed_lengths", "[]", "--device", "cpu", "--out", str(folder)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    if not wait_for(lambda: len(list(folder.glob("runs/*/metrics.jsonl"))) == 4):
        parent.kill()
        return "the children did not begin"
    victim = next(pid for pid in children(folder) if b"linear" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(victim, signal.SIGKILL)
    said = parent.communicate(timeout=900)[0]
    counted = "over 1 of 2 paired seeds" in said or "over one seed" in said
    if "killed by signal 9" in said and counted and parent.returncode == 0:  # the other seed of the mixer finished
        return ""
    return f"killed child: exit code {parent.returncode}, {said[-800:]!r}"


def ignored_children(folder: Path) -> str:
    """The parent of `compare` ignores SIGCHLD, as some supervisors do, and so would `compare`."""
    words = [str(program()), "compare", "linear", "softmax", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--model.D",
             "16", "--train.batch", "8", "--schedule.steps", "4", "--seeds", "1", "--speed_lengths", "[]", "--device", "cpu",
             "--out", str(folder)]
    try:
        done = target.run(words, seconds=120, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    except subprocess.TimeoutExpired:
        return "SIGCHLD ignored: the end of a child is not seen"
    return "" if done.returncode == 0 else f"SIGCHLD ignored: {done.returncode} {done.stderr[-300:]!r}"


def expected_later(folder: Path) -> str:
    target.run(command(folder))
    done = target.run(command(folder, "--expect", "test/loss >= 0"))
    return "" if "Expected test/loss >= 0: holds" in done.stdout else f"expect on a finished run: {done.stdout[-200:]!r}"


def vanished(folder: Path, begun: str, wanted: str, *settings: str) -> str:
    """The run folder goes when `begun` is there. One of the two safeguards must tell it: `settings` keep the other from asking."""
    process = subprocess.Popen(command(folder, "--schedule.steps", "1000000", "--eval.every", "0", *settings), env=ENVIRONMENT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if not wait_for(lambda: (folder / "run" / begun).exists() and (folder / "run" / begun).stat().st_size > 0, 60):
            return "deleted folder: the run did not begin"
        (folder / "run").rename(folder / "gone")  # at once, so that no file is missing for another reason
        shutil.rmtree(folder / "gone", ignore_errors=True)
        said = process.communicate(timeout=120)[1]
        return "" if process.returncode == 1 and wanted in said else f"deleted folder: {process.returncode} {said[-200:]!r}"
    except subprocess.TimeoutExpired:
        return f"deleted folder: nothing said, {wanted!r} was wanted"
    finally:
        process.kill()
        process.communicate()


def vanished_before_a_line(folder: Path) -> str:
    return vanished(folder, "metrics.jsonl", "metrics.jsonl: the file is gone", "--log.every", "50", "--checkpoint.every", "0")


def vanished_before_a_checkpoint(folder: Path) -> str:
    return vanished(folder, "checkpoints/step_00000500/DONE", "checkpoints: the folder is gone", "--log.every", "1000000",
                    "--checkpoint.every", "500")


def no_memory(folder: Path) -> str:
    if target.sanitizer():
        raise target.Skipped("a sanitizer reserves more addresses than the limit of this test")
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    folder.mkdir(parents=True, exist_ok=True)
    large = folder / "large"
    with large.open("wb") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    asks = {"a tensor": (command(folder, "--model.D", "3000"), "out of memory: you tried to allocate"),
            "a string": ([str(program()), "train", "--config", str(large)], "out of memory\n"),
            "a map": (command(folder, "--task", f"byte:data={large},T=32"), "out of memory: ")}
    for what, (words, wanted) in asks.items():
        done = target.run(words, preexec_fn=limit)
        if done.returncode != 5 or one_line(done) or wanted not in done.stderr:
            return f"no memory for {what}: {done.returncode} {done.stderr[-200:]!r}"
    return ""


def file_limit(folder: Path) -> str:
    """A file may not grow beyond 20 kB: ulimit -f."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    done = target.run(command(folder), preexec_fn=limit)
    fine = done.returncode == 1 and not one_line(done) and "cannot be written: File too large" in done.stderr
    return "" if fine else f"file limit: {done.returncode} {done.stderr[-200:]!r}"


ALONE = (killed_child, ignored_children, file_limit, expected_later, vanished_before_a_line,
         vanished_before_a_checkpoint, no_memory)


def run() -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a").mkdir()
        results = [attack(folder / attack.__name__) for attack in ALONE
                   if attack is not no_memory or not target.sanitizer()]
        results += damaged(folder / "a") + mutated(folder / "b", 120)
    return len(results), [line for line in results if line]
