"""Several processes that share a run out: train.shard, with Gloo on a CPU."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")

SMALL = ["train", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--device", "cpu", "--model.D", "16",
         "--train.batch", "8",
         "--schedule.steps", "12", "--eval.every", "6", "--eval.examples", "16", "--checkpoint.every", "4",
         "--log.every", "1", "--optim.ema", "0.9", "--optim.lr", "0.01", "--name", "run"]
THREE = ["--model.layers", "3", "--model.pattern", "softmax:heads=2,gated_deltanet:heads=2"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # several tests run at once


def train(out: Path, world: int, *more: str) -> None:
    """As torchrun starts them (test_train.py has it itself), without the seconds that torchrun takes to start."""
    words = [str(PROGRAM), *SMALL, "--out", str(out), *([] if "--model.pattern" in more else THREE), *more]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    several = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if world > 1 else {}
    processes = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  env={**ONE_THREAD, **several, "RANK": str(rank)}) for rank in range(world)]
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), "".join(said)


def losses(out: Path) -> dict[tuple[int, str], float]:
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    return {(line["step"], key): line[key] for line in lines for key in line if "loss" in key}


def assert_same(out: Path, whole: Path) -> None:
    """The loss curve of one process to 1e-5, and its model."""
    assert losses(out).keys() == losses(whole).keys()
    for key, loss in losses(whole).items():
        assert losses(out)[key] == pytest.approx(loss, abs=1e-5), key
    last = "run/checkpoints/step_00000012/model.safetensors"
    ours, theirs = load_file(out / last), load_file(whole / last)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert (ours[name] - tensor).abs().max() < 1e-4, name


def interrupt(out: Path) -> None:
    """As if it had been killed after step 8."""
    run = out / "run"
    for path in (run / "result.json", run / "checkpoints/step_00000012/DONE"):
        path.unlink()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    train(out, 1)
    return out


@pytest.mark.parametrize("shard, processes, then", [
    ("optimizer", 2, ("full", 4)), ("optimizer", 4, ("none", 1)),
    ("full", 2, ("optimizer", 4)), ("full", 4, ("full", 2)),
])
def test_shards_train_the_same_model_and_any_number_goes_on(
        whole: Path, tmp_path: Path, shard: str, processes: int, then: tuple[str, int]) -> None:
    train(tmp_path, processes, "--train.shard", shard)
    assert_same(tmp_path, whole)
    checkpoint = tmp_path / "run/checkpoints/step_00000012"
    files = {path.name for path in checkpoint.glob("optimizer*")}
    shards = {f"optimizer-{i + 1:05}-of-{processes:05}.safetensors" for i in range(processes)}
    assert files == {"optimizer.safetensors.index.json", *shards}
    assert files <= json.loads((checkpoint / "DONE").read_text())["xxh128"].keys()
    interrupt(tmp_path)
    train(tmp_path, then[1], "--train.shard", then[0])
    assert json.loads((tmp_path / "run/result.json").read_text())["resumed"]
    assert_same(tmp_path, whole)


def test_one_process_writes_and_several_go_on(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "run", tmp_path / "run")
    interrupt(tmp_path)
    train(tmp_path, 2, "--train.shard", "full")
    assert_same(tmp_path, whole)


def test_gathered_blocks_are_recomputed_and_gradients_accumulate(whole: Path, tmp_path: Path) -> None:
    train(tmp_path, 2, "--train.shard", "full", "--train.checkpoint_activations", "--train.accumulation", "2")
    assert_same(tmp_path, whole)


# The ops linear, delta, power, scan and attention, short convolutions, positions, and gates.
MIXERS = ("linear:heads=2,deltanet:heads=2,gated_deltanet:heads=2,taylor:heads=2,rg_lru,"
          "s6,mamba2:head=16,window:window=5,softmax:heads=2")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("long")
    train(out, 1, "--model.pattern", MIXERS, "--model.layers", "9")
    return out


@pytest.mark.parametrize("processes, n, shard", [(2, 2, "optimizer"), (4, 4, "none"), (4, 2, "none")])
def test_parts_of_a_sequence_give_the_gradients_of_the_whole(
        long: Path, tmp_path: Path, processes: int, n: int, shard: str) -> None:
    train(tmp_path, processes, "--model.pattern", MIXERS, "--model.layers", "9", "--train.sequence_parallel", str(n),
          "--train.shard", shard)
    assert_same(tmp_path, long)


def test_a_damaged_shard_is_set_aside(tmp_path: Path) -> None:
    train(tmp_path, 2, "--train.shard", "optimizer")
    run = tmp_path / "run"
    (run / "result.json").unlink()
    shard = run / "checkpoints/step_00000012/optimizer-00002-of-00002.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    train(tmp_path / "other", 1, "--from", str(run), "--schedule.steps", "1")  # the model itself is as it was
    train(tmp_path, 1)
    result = json.loads((run / "result.json").read_text())
    assert any("optimizer-00002-of-00002.safetensors: is damaged" in note for note in result["notes"])


@pytest.mark.parametrize("processes, more, line", [
    (1, ["--train.shard", "full"], "train.shard = full shares out over processes, and this is one"),
    (2, ["--train.shard", "full", "--train.batch", "7"],
     "train.shard = full: train.batch = 7 must be a multiple of 2 processes times train.accumulation = 1"),
    (1, ["--train.shard", "half"], "train.shard must be one of"),
    (3, ["--train.sequence_parallel", "2"], "train.sequence_parallel = 2 must divide the number of processes, which is 3"),
    (3, ["--train.sequence_parallel", "3"], "train.sequence_parallel = 3 must divide the task's T = 16"),
    (2, ["--train.sequence_parallel", "2", "--model.positions", "16"],
     "train.sequence_parallel = 2 does not go with learned positions"),
    (2, ["--train.sequence_parallel", "2", "--train.shard", "full"],
     "train.sequence_parallel = 2 does not go with train.shard = full"),
    (2, ["--train.sequence_parallel", "2", "--model.pattern", "softmax:causal=false"],
     "train.sequence_parallel = 2 does not go with mixers that read in both directions"),
])
def test_a_bad_combination_is_one_line(tmp_path: Path, processes: int, more: list[str], line: str) -> None:
    env = {**ONE_THREAD, "WORLD_SIZE": str(processes)} if processes > 1 else ONE_THREAD
    dry = ["--dry-run", "--processes", str(processes)]
    done = subprocess.run([PROGRAM, *SMALL, "--out", tmp_path, *more, *dry], capture_output=True, text=True, env=env)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"horner train: {line}"), done.stderr


def dry(*more: str) -> dict[str, Any]:
    done = subprocess.run([PROGRAM, *SMALL, *THREE, *more, "--dry-run", "--json"], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_dry_run_says_what_a_process_holds() -> None:
    none, moments = dry("--optim.ema", "0"), dry("--optim.ema", "0", "--processes", "4", "--train.shard", "optimizer")
    full = [dry("--optim.ema", "0", "--processes", r, "--train.shard", "full")["weight_bytes_each"] for r in "24"]
    n = none["parameters"]
    assert none["weight_bytes_each"] == 16 * n and moments["weight_bytes_each"] == 10 * n
    assert full[0] - full[1] == pytest.approx(4 * n)
    assert full[1] < 4 * n + 8 * n  # two of the three blocks, and what is outside of them
    assert moments["activation_bytes_each"] * 4 == none["activation_bytes"]


def test_tables_on_paper_are_those_of_the_tool() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, root / "tools/scale.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
