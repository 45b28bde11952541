"""horner train as a user meets it: stopped at any moment, full disks, TensorBoard, several processes."""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")

SMALL = ["train", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--device", "cpu", "--model.D", "16",
         "--model.pattern", "softmax:heads=2,linear:heads=2", "--model.dropout", "0.1", "--train.batch", "8",
         "--schedule.steps", "60", "--eval.every", "9", "--checkpoint.every", "3", "--log.every", "2"]
CLOCK = ("time", "tokens_per_second", "memory", "data_wait", "mfu")
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # several tests run at once


def command(out: Path, *more: str) -> list[str]:
    return [str(PROGRAM), *SMALL, "--out", str(out), "--name", "run", *more]


def numbers(out: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock says."""
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    subprocess.run(command(out), check=True, capture_output=True, env=ONE_THREAD)
    return out


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment_it_goes_on_with_the_same_bits(whole: Path, tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    kills = 0
    for _ in range(40):
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=ONE_THREAD)
        if kills < 5:
            # Until it has begun to write, then a random moment, among them those within a checkpoint.
            start = time.monotonic()
            while process.poll() is None and time.monotonic() - start < 20:
                if any((tmp_path / "run/checkpoints").glob("*.tmp")) or (tmp_path / "run/metrics.jsonl").exists():
                    break
            time.sleep(moments.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
    assert (tmp_path / "run/result.json").exists()
    assert numbers(tmp_path) == numbers(whole)
    last = "run/checkpoints/step_00000060/model.safetensors"
    assert (tmp_path / last).read_bytes() == (whole / last).read_bytes()


def test_killed_while_a_checkpoint_is_written(whole: Path, tmp_path: Path) -> None:
    """A folder without DONE and one that was not renamed yet are not checkpoints."""
    shutil.copytree(whole / "run", tmp_path / "run")
    run = tmp_path / "run"
    (run / "result.json").unlink()
    newest = sorted((run / "checkpoints").iterdir())[-1]
    (newest / "DONE").unlink()
    (newest / "model.safetensors").write_bytes(b"half")
    (run / "checkpoints/step_00000099.tmp").mkdir()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 61, "lo')
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path) == numbers(whole)
    assert not (run / "checkpoints/step_00000099.tmp").exists()


def test_interrupt_saves_and_says_so(whole: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path, "--checkpoint.every", "0"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=ONE_THREAD)
    metrics = tmp_path / "run/metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:  # a step is done
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    if process.returncode != 0:  # it may have been at its end
        assert process.returncode == 130
        assert "horner train: stopped at step" in stderr.splitlines()[-1]
        assert list((tmp_path / "run/checkpoints").glob("step_*/DONE"))
    again = subprocess.run(command(tmp_path), check=True, capture_output=True, text=True, env=ONE_THREAD)
    if process.returncode != 0:
        assert re.search(r"goes on from step \d+", again.stderr), again.stderr
    assert numbers(tmp_path) == numbers(whole)


def test_nats_and_bits_have_their_own_names(tmp_path: Path) -> None:
    """The summary of a text run: a column for each unit, and the two agree."""
    (tmp_path / "text.txt").write_bytes(b"To be, or not to be, that is the question: " * 200)
    done = subprocess.run(
        [PROGRAM, "train", "--task", f"byte:data={tmp_path}/text.txt,T=32", "--model.D", "16", "--schedule.steps", "2",
         "--eval.examples", "8", "--train.batch", "4", "--device", "cpu", "--out", tmp_path, "--name", "run"],
        check=True, capture_output=True, text=True, env=ONE_THREAD)
    lines = done.stdout.splitlines()
    head = next(line for line in lines if "loss, nats" in line)
    assert "bits per byte" in head
    test = next(line for line in lines if line.startswith("test "))
    place = {name: float(test[head.index(name):].split()[0]) for name in ("loss, nats", "bits per byte")}
    assert place["bits per byte"] == pytest.approx(place["loss, nats"] / math.log(2), rel=0.2)  # a separator is a target too


def test_full_disk_is_one_line_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    try:
        done = subprocess.run(command(disk, "--checkpoint.keep", "100"), capture_output=True, text=True, env=ONE_THREAD)
        assert done.returncode == 1
        assert "cannot be written: No space left on device" in done.stderr.splitlines()[-1]
        whole_ones = [path.parent for path in (disk / "run/checkpoints").glob("step_*/DONE")]
        assert whole_ones
        for path in whole_ones:
            assert (path / "model.safetensors").stat().st_size == (whole_ones[0] / "model.safetensors").stat().st_size
        assert not list((disk / "run/checkpoints").glob("*.tmp"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("more, code, line", [
    (["--optim.lrr", "1"], 2, "horner train: unknown flag '--optim.lrr'; did you mean '--optim.lr'?"),
    (["--task", "mqr"], 2, "horner train: unknown task 'mqr'; did you mean 'mqar'?"),
    (["--model.pattern", "sofmax"], 2, "horner train: unknown mixer 'sofmax'; did you mean 'softmax'?"),
    (["--model.pattern", "softmax,linear,taylor"], 2, "horner train: model.pattern names 3 mixers for 2 layers"),
    (["--schedule.steps", "0"], 2, "horner train: schedule.steps must be at least 1, got 0"),
    (["--expect", "accuracy"], 2, "horner train: expect: 'accuracy' must be SCORE >= x, "),
    (["--expect", "test/acuracy >= 0"], 2, "horner train: expect: unknown score 'acuracy'; did you mean 'accuracy'?"),
    (["--expect", "test_T9/loss <= 0"], 2, "horner train: expect: test_T9/loss: eval.lengths does not hold this length"),
    (["--out", "/dev/null"], 1, "horner train: /dev/null: the folder cannot be made: "),
    (["--config", "/none.toml"], 3, "horner train: /none.toml: cannot be opened: "),
])
def test_a_mistake_is_one_line(more: list[str], code: int, line: str, tmp_path: Path) -> None:
    done = subprocess.run([PROGRAM, "train", "--out", tmp_path, "--name", "run", *more], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout == "" and done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_file_below_flags_above_defaults(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('[optim]\nlr = 0.5\nbeta2 = 0.9\n')
    done = subprocess.run([PROGRAM, "train", "--optim.lr", "0.25", "--config", config, "--print-config"],
                          capture_output=True, text=True, check=True)
    import tomllib
    optim = tomllib.loads(done.stdout)["optim"]
    assert (optim["lr"], optim["beta2"], optim["beta1"]) == (0.25, 0.9, 0.9)
    config.write_text('[optim]\nlearning_rate = 0.5\n')
    done = subprocess.run([PROGRAM, "train", "--config", config], capture_output=True, text=True)
    assert done.returncode == 2 and f"{config}:2: unknown key 'optim.learning_rate'" in done.stderr


def test_tensorboard_reads_it(whole: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(whole / "run/tb"))
    events.Reload()
    lines = [line for line in numbers(whole) if "train/loss" in line]
    scalars = events.Scalars("train/loss")
    assert [event.step for event in scalars] == [line["step"] for line in lines]
    for event, line in zip(scalars, lines):
        assert event.value == pytest.approx(line["train/loss"], rel=1e-6)
    assert "valid/accuracy" in events.Tags()["scalars"]


def test_checkpoint_is_a_safetensors_file(whole: Path) -> None:
    from safetensors import safe_open
    folder = whole / "run/checkpoints/step_00000060"
    with safe_open(folder / "model.safetensors", "np") as file:
        assert file.get_tensor("embedding").shape == (32, 16)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "horner"


def test_answers_are_recorded(whole: Path, tmp_path: Path) -> None:
    expect = "test/accuracy <= 1,valid/best >= 2,test/num_kv_pairs/accuracy-9 >= 0"
    done = subprocess.run([PROGRAM, *SMALL, "--schedule.steps", "3", "--out", tmp_path, "--name", "run", "--expect",
                           expect], capture_output=True, text=True)
    assert done.returncode == 4 and "Expected test/accuracy <= 1: holds" in done.stdout
    assert done.stderr.splitlines()[-1] == "horner train: expected valid/best >= 2: it does not hold"
    record = tmp_path / "results/known"
    done = subprocess.run([PROGRAM, "report", tmp_path / "run", "--answers", record], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(record.with_suffix(".json").read_text())
    result = json.loads((tmp_path / "run/result.json").read_text())
    env = json.loads((tmp_path / "run/env.json").read_text())
    assert [row["expected"] for row in rows] == expect.split(",")
    assert [row["holds"] for row in rows] == [True, False, False]
    assert rows[0]["measured"] == result["test"]["accuracy"] and rows[2]["measured"] is None
    for row in rows:
        assert row["seconds"] == result["seconds"] and row["run"] == "run"
        assert all(row[key] == env[key] for key in ("device", "commit", "date"))
    assert record.with_suffix(".md").read_text() == done.stdout and "**no**" in done.stdout
    for folder, code, line in ((whole / "run", 2, "nothing was expected of this run"), (tmp_path, 3, "no finished run")):
        done = subprocess.run([PROGRAM, "report", folder, "--answers", record], capture_output=True, text=True)
        assert done.returncode == code and line in done.stderr and done.stderr.count("\n") == 1


def test_tool_runs_and_records_configurations(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    for name, expect in (("a", 'expect = ["test/loss >= 0"]'), ("b", 'expect = ["test/loss <= 0"]'), ("c", "")):
        (tmp_path / f"configs/{name}.toml").write_text(f"""task = "mqar:T=16,pairs=2,vocabulary=32,test=16"
name = "{name}"
{expect}
[schedule]
steps = 1
""")
    tool = Path(__file__).resolve().parents[2] / "tools/known_answers"
    done = subprocess.run([tool], cwd=tmp_path, capture_output=True, text=True,
                          env={**ONE_THREAD, "HORNER": str(PROGRAM), "JOBS": "2"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "docs/results/known_answers.json").read_text())
    assert [(row["run"], row["holds"]) for row in rows] == [("a", True), ("b", False)]


def torchrun(out: Path, *more: str, processes: int = 2, restarts: int = 0) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node",
            str(processes), "--max-restarts", str(restarts), *command(out, "--model.dropout", "0", *more)]


@pytest.mark.parametrize("device, processes", [("cpu", 1), ("cpu", 2), ("cuda", 1), ("cuda", 2)])
def test_processes_train_the_same_model(tmp_path: Path, device: str, processes: int) -> None:
    """Gloo carries the gradients on a CPU, NCCL on GPUs."""
    if device == "cuda" and torch.cuda.device_count() < processes:
        pytest.skip(f"{torch.cuda.device_count()} GPUs, {processes} wanted")
    one, two = tmp_path / "one", tmp_path / "two"
    more = ["--schedule.steps", "20", "--device", device, "--train.precision", "fp32"]
    subprocess.run(command(one, "--model.dropout", "0", *more), check=True, capture_output=True, env=ONE_THREAD)
    done = subprocess.run(torchrun(two, *more, processes=processes), capture_output=True, text=True, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    a, b = numbers(one), numbers(two)
    assert [line["step"] for line in a] == [line["step"] for line in b]
    for x, y in zip(a, b):
        for key in x:
            if "loss" in key:
                assert y[key] == pytest.approx(x[key], abs=1e-5), key


def test_a_killed_worker_ends_the_job_and_a_restart_goes_on(tmp_path: Path) -> None:
    words = torchrun(tmp_path, "--schedule.steps", "1000", "--checkpoint.every", "50", "--eval.every", "0",
                     "--log.every", "100", restarts=1)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ONE_THREAD)
    while not list((tmp_path / "run/checkpoints").glob("step_*/DONE")) and process.poll() is None:
        time.sleep(0.01)
    ours = f"ps -eo pid,ppid,args | awk '$2 == {process.pid} && /horner train/ {{print $1}}'"
    workers = subprocess.run(["sh", "-c", ours], capture_output=True, text=True).stdout.split()
    assert len(workers) == 2
    os.kill(int(workers[1]), signal.SIGKILL)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert json.loads((tmp_path / "run/result.json").read_text())["resumed"]


def test_a_foreign_model_is_trained_further(tmp_path: Path) -> None:
    """--from a Hugging Face folder: its settings and weights; what comes out is a model that is read again."""
    root = Path(__file__).resolve().parents[2]
    words = ["--task", f"byte:data={root / 'README.md'},T=32", "--from", str(root / "src/model/formats/goldens/llama3"),
             "--device", "cpu", "--schedule.steps", "2", "--train.batch", "2", "--eval.examples", "2", "--optim.lr", "0"]
    done = subprocess.run([PROGRAM, "train", *words, "--out", tmp_path, "--name", "run"], capture_output=True, text=True,
                          env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run/config.json").read_text())["model"]
    assert config["D"] == 16 and "position.scaling=llama3" in config["pattern"][0] and config["tied"]
    folder = next((tmp_path / "run/checkpoints").glob("step_*"))
    from safetensors.torch import load_file
    ours = load_file(folder / "model.safetensors")
    theirs = load_file(root / "src/model/formats/goldens/llama3/model.safetensors")
    assert torch.equal(ours["layer_1.mixer.k_weight"], theirs["model.layers.1.self_attn.k_proj.weight"])
    assert ours["embedding"].shape == (257, 16)  # bytes: the golden has no tokenizer
