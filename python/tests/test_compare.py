"""horner compare at a size of seconds: its files, going on, failures, and the report made again."""

import csv
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")

TINY = ["--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "12",
        "--train.batch", "8", "--eval.every", "4", "--eval.examples", "20", "--speed_lengths", "16,32",
        "--device", "cpu"]


def compare(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "compare", *words, *TINY, "--out", out], capture_output=True, text=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare")
    result = compare(out, "softmax", "taylor:order=2", "gla:heads=2", "--seeds", "2", "--lengths", "32")
    assert result.returncode == 0, result.stderr
    assert "No difference to softmax shown" in result.stdout or "than softmax: " in result.stdout
    return out


def test_json_holds_everything(done: Path) -> None:
    all_ = json.loads((done / "compare.json").read_text())
    assert [row["mixer"] for row in all_["rows"]] == ["softmax", "taylor:order=2", "gla:heads=2"]
    assert len(all_["runs"]) == 6 and not any(run["failure"] for run in all_["runs"])
    assert {baseline["name"] for baseline in all_["baselines"]} == {"chance", "shortcut"}
    for row in all_["rows"]:
        assert len(row["scores"]) == 2 and row["score"]["n"] == 2
        assert row["score"]["mean"] == pytest.approx(sum(row["scores"]) / 2)
        assert row["state_bytes"] > 0 and row["parameters"] > 0 and row["flops_per_token"] > 0
        assert row["train_tokens_per_second"] > 0 and row["peak_bytes"] > 0
        assert [point["T"] for point in row["speed"]] == [16, 32]
        assert all(point["prefill"] > 0 and point["decode"] > 0 for point in row["speed"])
        assert set(row["lengths"]) == {"32"} and row["loss_by_position"]
        assert any("num_kv_pairs" in name for name in row["test"])
        assert [point["step"] for point in row["curve"]][-1] == 12
    difference = all_["differences"][0]
    first, second = all_["rows"][1]["scores"], all_["rows"][0]["scores"]
    assert difference["seeds"]["mean"] == pytest.approx(sum(a - b for a, b in zip(first, second)) / 2)
    assert difference["examples"]["draws"] == 10000 and difference["examples"]["n"] == 20
    assert all_["verdict"].startswith("On mqar:T=16,pairs=2,vocabulary=64 over 2 paired seeds, softmax has")
    origin = dict(all_["origin"])
    assert origin["command"].startswith("./horner compare softmax taylor:order=2") and origin["seed"] == "0 .. 1"
    assert {"commit", "device", "dtype", "date"} <= set(origin)


def test_softmax_has_no_crossover_with_itself(done: Path) -> None:
    rows = json.loads((done / "compare.json").read_text())["rows"]
    assert rows[0]["memory_crossover"] is None and rows[0]["time_crossover"] is None
    assert rows[2]["memory_crossover"] is not None and rows[2]["time_crossover"] is not None
    for row in rows:
        assert all(0 < point["decode_p10"] <= point["decode"] <= point["decode_p90"] for point in row["speed"])


def test_crossovers_are_with_the_softmax_of_the_table(done: Path, tmp_path: Path) -> None:
    """With one key/value head for four heads the cache is smaller, and so it is passed later."""
    result = compare(tmp_path, "softmax:groups=1", "gla:heads=2", "--seeds", "1")
    assert result.returncode == 0, result.stderr
    assert "speed: 0 of 6 timings done" in result.stderr  # three rounds of the two models, no third one
    grouped = json.loads((tmp_path / "compare.json").read_text())["rows"][1]
    whole = json.loads((done / "compare.json").read_text())["rows"][2]
    assert grouped["memory_crossover"] > 3 * whole["memory_crossover"]


def test_one_name_is_one_experiment() -> None:
    """What the default calls softmax has its settings in its name; without them `softmax` is another mixer."""
    def settings(*mixers: str) -> dict[str, str]:
        done = subprocess.run([PROGRAM, "compare", *mixers, "--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16",
                               "--train.batch", "2", "--dry-run", "--json"], capture_output=True, text=True, check=True)
        return {row["mixer"]: row["settings"] for row in json.loads(done.stdout)["rows"]}

    default = settings()
    named = settings("softmax", *(name for name in default if name.startswith("taylor")), "linear", "gla", "mlstm")
    assert "softmax:position.kind=none" in default and "softmax" not in default
    shared = default.keys() & named.keys()
    assert len(shared) == 5 and all(default[name] == named[name] for name in shared)


def test_only_the_mixer_differs(done: Path) -> None:
    """The weights that the mixers share start equal: the loss of a seed's first batch is nearly so."""
    configs = [json.loads(path.read_text()) for path in (done / "runs").glob("*/config.json")]
    assert len(configs) == 6
    for config in configs:
        config["model"].pop("pattern")
        config.pop("seed")
        config.pop("name", None)
    assert all(config == configs[0] for config in configs)


def test_csv_has_a_line_for_each_run(done: Path) -> None:
    rows = list(csv.DictReader((done / "compare.csv").open()))
    assert len(rows) == 6 and {row["seed"] for row in rows} == {"0", "1"}
    assert all(Path(row["folder"]).is_dir() and float(row["test"]) >= 0 for row in rows)


def test_page_and_plots(done: Path) -> None:
    page = (done / "report.html").read_text()
    verdict = json.loads((done / "compare.json").read_text())["verdict"]
    assert page.index("<p class=\"verdict ") < page.index("<h2>")
    assert verdict.split(",")[0] in page and "http://www.w3.org" in page
    assert {url.split("/")[2] for url in re.findall(r"https://[^\"<]*", page)} <= {"arxiv.org"}  # links alone
    assert not re.search(r"(src|import)\W+https?:", page)
    assert {path.stem for path in (done / "plots").glob("*.svg")} >= {"score_state", "curves", "decode", "lengths"}


def test_second_time_runs_nothing(done: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "runs").glob("*/*")}
    result = compare(done, "softmax", "taylor:order=2", "gla:heads=2", "--seeds", "2", "--lengths", "32")
    assert result.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (done / "runs").glob("*/*")} == before


def test_report_makes_the_page_again(done: Path) -> None:
    page = (done / "report.html").read_text()
    (done / "report.html").unlink()
    subprocess.run([PROGRAM, "report", done], check=True, capture_output=True)
    assert (done / "report.html").read_text() == page


def test_another_comparison_keeps_the_last_report(tmp_path: Path) -> None:
    first = compare(tmp_path, "linear", "--seeds", "1")
    page = (tmp_path / "report.html").read_text()
    assert first.returncode == 0 and f"{tmp_path}/report.html" in first.stdout
    again = compare(tmp_path, "linear", "--seeds", "1")
    assert not (tmp_path / "earlier").exists() and "1 of 1 runs had finished before" in again.stdout
    page = (tmp_path / "report.html").read_text()
    other = compare(tmp_path, "linear", "gla", "--seeds", "1")
    (kept,) = (tmp_path / "earlier").iterdir()
    assert (kept / "report.html").read_text() == page and (kept / "compare.json").is_file() and (kept / "plots").is_dir()
    assert f"{kept}" in other.stdout and (tmp_path / "report.html").read_text() != page


def test_report_of_runs_needs_no_data(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("What is written is read. " * 200)
    words = ["train", "--task", "byte:data=text.txt,T=16", "--model.D", "16", "--schedule.steps", "2", "--eval.examples", "8",
             "--name", "r", "--device", "cpu"]
    subprocess.run([PROGRAM, *words], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "text.txt").unlink()
    result = subprocess.run([PROGRAM, "report", "runs/r"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "runs/r/report.html").read_text()
    assert "bits per byte" in page and 'class="tokens"' in page


def test_report_of_a_file_of_another_version(done: Path, tmp_path: Path) -> None:
    whole = json.loads((done / "compare.json").read_text())
    del whole["rows"][1]["speed"]
    for text, field in ((json.dumps(whole), "field rows[1].speed is missing"),
                        ('{"rows": [{}], "origin": []}', "field metric is missing"), ("[]", "field metric is missing")):
        (tmp_path / "compare.json").write_text(text)
        result = subprocess.run([PROGRAM, "report", tmp_path], capture_output=True, text=True)
        assert result.returncode == 3 and len(result.stderr.splitlines()) == 1
        assert field in result.stderr and "written by another version" in result.stderr
        assert not (tmp_path / "report.html").exists()


def test_report_of_runs(done: Path, tmp_path: Path) -> None:
    runs = sorted((done / "runs").iterdir())
    result = subprocess.run([PROGRAM, "report", *runs, "--out", tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert {row["mixer"] for row in rows} == {"conv:kind=dense softmax", "conv:kind=dense taylor:order=2",
                                            "conv:kind=dense gla:heads=2"}
    assert all(row["score"]["n"] == 2 for row in rows)
    wrong = subprocess.run([PROGRAM, "report", tmp_path / "none"], capture_output=True, text=True)
    assert wrong.returncode == 3 and "holds neither compare.json nor" in wrong.stderr


def test_a_failed_run_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    result = compare(tmp_path, "linear", "--seeds", "1", "--lr_grid", "0.001,1e30", "--jobs", "1")
    assert result.returncode == 0, result.stderr
    assert "Failed: linear, lr 1e+30, seed 0" in result.stdout
    (row,) = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert row["failed"] == 1 and row["lr"] == 0.001 and row["score"]["n"] == 1


def test_a_mixer_without_a_finished_run(tmp_path: Path) -> None:
    words = ("linear", "softmax", "--seeds", "1", "--jobs", "1")
    assert compare(tmp_path, *words).returncode == 0
    (linear,) = (tmp_path / "runs").glob("*linear*")
    for file in ("result.json", "env.json"):  # a run that cannot be told from another one is not continued
        (linear / file).unlink()
    result = compare(tmp_path, *words)
    assert result.returncode == 1, result.stderr
    assert f"Failed: linear, lr 0.005, seed 0: {linear}/env.json: is missing" in result.stdout.replace("\n", " ")
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("linear ")]
    assert row[1] == "failed" and set(row[2:]) == {"-"}
    (line,) = [line for line in csv.DictReader((tmp_path / "compare.csv").open()) if line["mixer"] == "linear"]
    assert line["parameters"] == line["state_bytes"] == line["D"] == ""


def test_interrupted_it_goes_on(tmp_path: Path) -> None:
    words = [PROGRAM, "compare", "linear", "gla", *TINY, "--seeds", "1", "--schedule.steps", "3000", "--eval.every",
             "0", "--out", tmp_path]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.time() + 60
    while not list((tmp_path / "runs").glob("*/metrics.jsonl")) and time.time() < end:
        time.sleep(0.1)
    time.sleep(1)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130, errors
    assert not (tmp_path / "compare.json").exists()
    assert list((tmp_path / "runs").glob("*/checkpoints/step_*/DONE"))


@pytest.mark.parametrize("words, line", [
    (["softmaxx"], "horner compare: unknown mixer 'softmaxx'; did you mean 'softmax'?"),
    (["gla", "gla"], "horner compare: mixer gla is named twice"),
    (["gla", "--model.pattern", "conv"], "horner compare: model.pattern must hold MIXER"),
    (["gla", "--iso", "parms"], "horner compare: iso must be one of"),
])
def test_mistakes(tmp_path: Path, words: list[str], line: str) -> None:
    result = compare(tmp_path / "out", *words)
    assert result.returncode == 2 and result.stderr.splitlines()[-1].startswith(line), result.stderr
    assert not (tmp_path / "out").exists()
