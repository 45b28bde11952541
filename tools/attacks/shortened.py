"""Files that become shorter while they are mapped."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from attacks import target
from attacks.one_writer import wait_for
from attacks.target import ENVIRONMENT, command, one_line

NAME = "shortened"
WHAT = ("the tokens of a run are cut while it reads them, as when a file is overwritten in place; one line names the file, and with "
        "the whole file the same command ends with the same bits")


def cut(folder: Path, keep: int) -> str:
    folder.mkdir()
    tokens, out = folder / "tokens.bin", folder / "out"
    content = bytes(byte for i in range(1 << 19) for byte in (i * 7919 % 251, 0))
    words = ["--task", f"bpe:data={tokens},tokenizer=bytes,T=64", "--schedule.steps", "300", "--eval.every", "0"]
    tokens.write_bytes(content)
    target.run(command(folder / "whole", *words))
    process = subprocess.Popen(command(out, *words), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not wait_for(lambda: (out / "run/checkpoints/step_00000003/DONE").exists() or process.poll() is not None):
        return "the run did not begin"
    process.send_signal(signal.SIGSTOP)  # it cannot end before the file is short
    os.truncate(tokens, keep)
    process.send_signal(signal.SIGCONT)
    said = process.communicate(timeout=300)
    done = subprocess.CompletedProcess(process.args, process.returncode, *said)
    if done.returncode != 3 or one_line(done) or f"{tokens}: became shorter" not in done.stderr:
        return f"cut to {keep} bytes: exit code {done.returncode}, {done.stderr[-300:]!r}"
    tokens.write_bytes(content)
    target.run(command(out, *words))
    return "" if target.outcome(out) == target.outcome(folder / "whole") else f"cut to {keep} bytes: other numbers"


def run() -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        results = [cut(Path(name) / str(keep), keep) for keep in target.in_time((0, 5000, 300_000))]
    return len(results), [line for line in results if line]
