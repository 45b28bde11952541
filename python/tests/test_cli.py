"""The program's manners: exit codes, one clear line per mistake, results on stdout, JSON that parses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True)


@pytest.mark.parametrize("words, code, line", [
    (["lst"], 2, "horner: unknown command 'lst'; did you mean 'list'?"),
    (["list", "--mixer", "gal"], 2, "horner list: unknown mixer 'gal'; did you mean 'gla'?"),
    (["list", "--mixer", "gla:head=2"], 2, "horner list: unknown key 'head'; did you mean 'heads'?"),
    (["explain", "gla:heads"], 2, "horner explain: a setting must be name=value, got 'heads'"),
    (["train", "--expect", "tset/accuracy >= 1"], 2, "horner train: 'tset/accuracy' names no score: "),
    (["list", "--task", "mqr"], 2, "horner list: unknown task 'mqr'; did you mean 'mqar'?"),
    (["verify", "--devise", "cpu"], 2,
     "horner verify: unknown flag '--devise'; did you mean '--device'?"),
    (["verify", "--op", "lineer"], 2, "horner verify: unknown op 'lineer'; did you mean 'linear'?"),
    (["verify", "--T", "many"], 2, 'horner verify: T must be an integer, got "many"'),
    (["verify", "--T", "0"], 2, "horner verify: T must be at least 1, got 0"),
    (["verify", "--H", "3", "--G", "2"], 2,
     "horner verify: H must be a multiple of G, got H = 3 and G = 2"),
    (["verify", "--device", "tpu"], 2,
     "horner verify: device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
    (["verify", "--device", "cuda:9"], 5, "horner verify: device cuda:9: "),
    (["theory", "--lengths", "64,32"], 2,
     "horner theory: lengths must increase, got 32 after 64"),
    (["theory", "--repeats", "1"], 2, "horner theory: repeats must be at least 16, got 1"),
    (["bench"], 2, "horner bench: say what to time: ops"),
    (["bench", "ops", "--device", "cpu", "--shape", "S9"], 2,
     "horner bench: unknown shape 'S9'; did you mean 'S1'?"),
    (["bench", "ops", "--device", "cpu", "--peers", "/nowhere"], 2,
     "horner bench: peers run on a GPU, not on cpu"),
    (["verify", "--op", "scan", "--out", "/proc/none"], 1,
     "horner verify: /proc/none: the folder cannot be made: "),
])
def test_a_mistake_is_one_line(words: list[str], code: int, line: str) -> None:
    done = run(*words)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(line)
    assert done.stderr.count("horner") == 1


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["verify", "--help"], []])
def test_help(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 0 and "Usage: horner" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("mixer", ["softmax", "linear", "taylor"])
def test_bench_train_has_a_peer_of_the_same_size(mixer: str) -> None:
    words = ["--mixer", mixer, "--D", "16", "--T", "16", "--B", "2", "--steps", "1", "--rounds", "1", "--device", "cpu"]
    done = run("bench", "train", *words, "--peer", sys.executable, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["milliseconds"] > 0 and row["peer_milliseconds"] > 0
    peer = subprocess.run([sys.executable, Path(__file__).resolve().parents[2] / "tools/bench_train_peer.py",
                           *words[:8], "--steps", "1"], capture_output=True, text=True, check=True)
    assert json.loads(peer.stdout)["parameters"] == row["parameters"]


def test_list_json() -> None:
    ops = {op["name"]: op for op in json.loads(run("list", "--json").stdout)["ops"]}
    assert set(ops) == {"attention", "power", "linear", "delta", "scan"}
    assert ops["linear"]["state_bytes"] == 64 * 64 * 4
    assert ops["power"]["state_bytes"] == (1 + 64 + 64 * 65 // 2) * 65 * 4
    assert ops["power"]["options"]["order"]["default"] == 2


def test_list_of_a_mixer() -> None:
    mixers = {mixer["name"]: mixer for mixer in json.loads(run("list", "--json").stdout)["mixers"]}
    assert json.loads(run("list", "--mixer", "gla", "--json").stdout) == mixers["gla"]
    assert set(mixers["gla"]["options"]) <= set(run("list", "--mixer", "gla").stdout.split())


# The same text is the same mixer in every command.
def test_a_mixer_with_settings() -> None:
    line = next(line for line in run("list", "--mixer", "gla:heads=2,conv=4").stdout.splitlines()
                if line.startswith("heads "))
    assert line.split()[1] == "2"
    told = json.loads(run("explain", "gla:heads=2,conv=4", "--T", "8", "--json").stdout)["settings"]
    assert (told["heads"], told["conv"]) == (2, 4)
    plan = run("compare", "gla:heads=2,conv=4", "--dry-run")
    assert plan.returncode == 0 and "gla:heads=2,conv=4" in plan.stdout
    row, = json.loads(run("bench", "train", "--mixer", "gla:heads=2,conv=4", "--D", "16", "--T", "8", "--B", "2",
                          "--steps", "1", "--rounds", "1", "--device", "cpu", "--json").stdout)["rows"]
    assert row["mixer"] == "gla:heads=2,conv=4"


def test_list_of_tasks_json() -> None:
    tasks = {task["name"]: task for task in json.loads(run("list", "--json").stdout)["tasks"]}
    assert {"mqar", "group", "listops", "pathfinder", "icl_linear"} <= set(tasks)
    assert json.loads(run("list", "--task", "group", "--json").stdout) == tasks["group"]
    assert tasks["group"]["options"]["group"]["default"] == "S5"


def test_verify_json(tmp_path: Path) -> None:
    done = run("verify", "--op", "scan,delta", "--device", "cpu", "--T", "9", "--json",
               "--out", str(tmp_path))
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["failed"] == 0
    assert {row["op"] for row in report["rows"]} == {"scan", "delta"}
    assert all(row["error"] <= row["bound"] for row in report["rows"])
    assert json.loads((tmp_path / "verify.json").read_text()) == report
