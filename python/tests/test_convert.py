"""`horner convert`: the folder, the certificate, and the mistakes."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads of a tiny model wait for each other


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, words)], cwd=ROOT, env=ALONE, capture_output=True, text=True)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of bytes that has learned something."""
    folder = tmp_path_factory.mktemp("teacher")
    done = run("train", "--task", "byte:data=examples/text/shakespeare.txt,T=64", "--model.pattern", "softmax:heads=2",
               "--model.D", 32, "--model.layers", 4, "--schedule.steps", 60, "--optim.lr", 0.01, "--eval.examples", 8,
               "--name", "run", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def convert(teacher: Path, out: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run("convert", teacher, "--out", out, "--context", 128, "--windows", 3, "--calibration", 2, *words)


def test_the_folder_is_a_model_with_a_certificate(teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "student"
    done = convert(teacher, out, "--to", "window:window=16,sinks=2", "--keep", "layers=1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((out / "certificate.json").read_text())
    assert told["softmax_layers"] == [1] and told["training_tokens"] == 0
    assert {(h["layer"], h["head"]) for h in told["heads"]} == {(layer, h) for layer in (0, 2, 3) for h in (0, 1)}
    near, far = told["score"]["by_position"][:4], told["score"]["by_position"][5:]
    assert all(row["kl"] < 1e-5 for row in near)  # the window holds everything
    assert far and all(row["kl"] > 1e-6 for row in far)
    for head in told["heads"]:
        assert 0 <= head["error"] <= head["bound"] + 1e-6 <= 1 + 1e-6
    assert told["state"][-1]["bytes"] < told["state"][-1]["teacher_bytes"]
    assert {"README.md", "certificate.html", "config.json", "model.safetensors"} <= {p.name for p in out.iterdir()}
    assert "## What was lost" in (out / "README.md").read_text()


def test_every_command_opens_it(teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "student"
    assert convert(teacher, out, "--to", "window:window=16,sinks=2", "--keep", "every=2").returncode == 0
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "examples/text/shakespeare.txt").read_text()[-3000:])
    for words in (["generate", out, "--prompt", "The", "--tokens", 8], ["explain", "--model", out, "--T", 64],
                  ["score", out, "--text", text, "--against", teacher, "--context", 128]):
        done = run(*words)
        assert done.returncode == 0, done.stderr
    done = run("train", "--task", f"byte:data={text},T=64", "--from", out, "--schedule.steps", 1, "--eval.examples", 4,
               "--name", "more", "--out", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_plan_is_drawn_and_compared(teacher: Path, tmp_path: Path) -> None:
    done = convert(teacher, tmp_path / "student", "--to", "taylor:order=2,centre=mean", "--keep", "plan:kl=0.02", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    planning = told["planning"]
    chosen = planning["tried"][planning["chosen"]]
    assert chosen["kept"] == told["softmax_layers"] and chosen["kl"]["mean"] <= 0.02
    assert planning["tried"][-1]["name"] == "every=4" and planning["gain_over_every_4"]["n"] == 4
    assert (tmp_path / "student/plots/plans.svg").is_file()


HYBRID = ("--to", "hybrid:window=4,sinks=1,far=linear", "--device", "cpu", "--seed", 3)
TRAINING = ("--batch", 4, "--length", 64, "--tokens", 4 * 64 * 60, "--checkpoint", 5)


@pytest.fixture(scope="module")
def trained(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student that was trained without a stop."""
    out = tmp_path_factory.mktemp("trained") / "student"
    done = convert(teacher, out, *HYBRID, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert "align" in done.stdout and "distil" in done.stdout and "of 0 done" not in done.stderr
    return out


def test_training_lowers_the_kl(trained: Path, teacher: Path) -> None:
    told = json.loads((trained / "certificate.json").read_text())
    start, align, distil = told["steps"]
    assert [step["name"] for step in told["steps"]] == ["start", "align", "distil"]
    assert (align["tokens"], distil["tokens"]) == (9 * 256, 51 * 256) and told["training_tokens"] == 60 * 256
    assert align["curve"][-1][1] < align["curve"][0][1]
    assert distil["kl"]["mean"] < 0.8 * start["kl"]["mean"]
    assert told["score"]["kl"]["mean"] == distil["kl"]["mean"]
    assert not (trained / "training").exists()
    config = json.loads((trained / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert "What each step brought" in (trained / "certificate.html").read_text()
    assert "| distil |" in (trained / "README.md").read_text()
    assert run("generate", trained, "--prompt", "The", "--tokens", 8).returncode == 0
    done = convert(teacher, trained, *HYBRID, *TRAINING)
    assert done.returncode == 2 and "holds a model already" in done.stderr


def stop_when(pattern: str, how: signal.Signals, teacher: Path, out: Path, *words: object) -> tuple[int, str]:
    """The exit code and what it said, of a conversion that gets a signal once a file is there."""
    command = [PROGRAM, "convert", teacher, "--out", out, "--context", 128, "--windows", 3, "--calibration", 2, *words]
    with subprocess.Popen([*map(str, command)], cwd=ROOT, env=ALONE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as running:
        while running.poll() is None and not list(out.glob(pattern)):
            time.sleep(0.002)
        running.send_signal(how)
        said = running.communicate()[1]
    return running.returncode, said


def test_a_stopped_conversion_goes_on_with_the_same_bits(trained: Path, teacher: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "student", (*HYBRID, *TRAINING)
    for pattern, how, code in [("training/start/start.json", signal.SIGKILL, -9),
                               ("training/align/checkpoints/step_00000005/DONE", signal.SIGKILL, -9),
                               ("training/distil/checkpoints/step_*/DONE", signal.SIGTERM, 130),
                               ("training/distil/checkpoints/step_0000003*/DONE", signal.SIGKILL, -9)]:
        got, said = stop_when(pattern, how, teacher, out, *words)
        assert got == code, said
        assert code != 130 or "the same command goes on from there" in said
        assert not (out / "config.json").exists()
    for more, line in [(("--batch", 8), "batch = 4 then, 8 now"), (("--tokens", 0), "tokens = 15360 then, 0 now"),
                       (("--distil.new", 0.01), "distil.new = 0.001 then, 0.01 now"),
                       (("--text", ROOT / "LICENSE"), "text = [] then")]:
        other = convert(teacher, out, *words, *more)
        assert other.returncode == 2 and f"holds another conversion: {line}" in other.stderr, other.stderr
    done = convert(teacher, out, *words)
    assert done.returncode == 0, done.stderr
    assert "goes on from step" in done.stderr
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    ours, theirs = (json.loads((folder / "certificate.json").read_text()) for folder in (out, trained))
    assert [step["kl"] for step in ours["steps"]] == [step["kl"] for step in theirs["steps"]]
    assert ours["heads"] == theirs["heads"]


def test_other_data_are_refused(teacher: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "student"
    shakespeare = (ROOT / "examples/text/shakespeare.txt").read_text()
    text.write_text(shakespeare[:50000])
    words = (*HYBRID, *TRAINING, "--text", text)
    stop_when("training/align/checkpoints/step_*/DONE", signal.SIGKILL, teacher, out, *words)
    text.write_text(shakespeare[:40000])
    done = convert(teacher, out, *words)
    assert done.returncode == 2 and f"{text} has other contents now" in done.stderr, done.stderr


def test_another_config_of_the_teacher_is_refused(teacher: Path, tmp_path: Path) -> None:
    """The same weights with other settings, or another tokenizer, are another teacher."""
    model, out = tmp_path / "model", tmp_path / "student"
    shutil.copytree(sorted((teacher / "checkpoints").iterdir())[-1], model)
    (model / "DONE").unlink()
    stop_when("training/start/start.json", signal.SIGKILL, model, out, *HYBRID, *TRAINING)
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    done = convert(model, out, *HYBRID, *TRAINING)
    assert done.returncode == 2 and f"{model}/config.json has other contents now" in done.stderr, done.stderr


def test_a_damaged_start_is_made_again(trained: Path, teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "student"
    stop_when("training/align", signal.SIGKILL, teacher, out, *HYBRID, *TRAINING)
    weights = out / "training/start/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    shutil.rmtree(out / "training/align", ignore_errors=True)
    done = convert(teacher, out, *HYBRID, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert "start/model.safetensors: is damaged: its checksum is not the one in DONE; the start is made again" in done.stderr
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_the_time_is_limited(teacher: Path, tmp_path: Path) -> None:
    done = convert(teacher, tmp_path / "student", *HYBRID, *TRAINING, "--minutes", 1e-9)
    assert done.returncode == 130 and "time is up in the step 'calibrating'; the same command" in done.stderr


def test_nothing_is_trained_where_every_layer_stays(teacher: Path, tmp_path: Path) -> None:
    done = convert(teacher, tmp_path / "student", *HYBRID, *TRAINING, "--keep", "every=1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["training_tokens"] == 0 and "window_only" not in told and told["score"]["kl"]["mean"] < 1e-9


def test_mistakes_are_one_line(teacher: Path, tmp_path: Path) -> None:
    window = ("--to", "window")
    for words, code, line in [
        ((), 2, "--to names the mixer"),
        (("--to", "windw"), 2, "unknown mixer 'windw'; did you mean 'window'?"),
        ((*window, "--keep", "sometimes"), 2, "keep must be every=N"),
        ((*window, "--keep", "layers=9"), 2, "layer 9 is not there; layers are 0 .. 3"),
        ((*window, "--tokens", "5"), 2, "tokens must be 0 or at least batch x length = 8192, one step, got 5"),
        ((*window, "--tokens", "9000", "--align_tokens", "90000"), 2, "align_tokens must be from 0 to tokens = 9000"),
        ((*window, "--tokens", "9000", "--distil.rest", "-1"), 2, "distil.rest must be at least 0, got -1"),
        ((*window, "--tokens", "100000", "--length", "20000000", "--batch", "0"), 2, "batch must be at least 1, got 0"),
        ((*window, "--tokens", "12000", "--length", "12000", "--batch", "1", "--text", ROOT / "LICENSE"), 3,
         "windows of length 12000 need more"),
        ((*window, "--context", "1"), 2, "context must be at least 2, got 1"),
        ((*window, "--test", ROOT / "pyproject.toml", "--context", "100000"), 3, "two windows want 200000"),
        ((*window, "--text", "/nowhere"), 3, "/nowhere"),
    ]:
        done = convert(teacher, tmp_path / "no", *words)
        assert done.returncode == code and line in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "no").exists()
    for model, line in [("src/model/formats/goldens/bert", "is not a language model"), (tmp_path / "none", "is no folder")]:
        done = run("convert", model, *window, "--out", tmp_path / "no")
        assert done.returncode == 3 and line in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_it_says_what_both_models_write(teacher: Path, tmp_path: Path) -> None:
    """With a window that holds everything the student is its teacher; with a narrow one its texts part from the teacher's."""
    found = {}
    for window in (4096, 2):
        done = convert(teacher, tmp_path / str(window), "--to", f"window:window={window}", "--needles", 2, "--texts", 4, "--json")
        assert done.returncode == 0, done.stderr
        found[window] = json.loads(done.stdout)
        assert [n["T"] for n in found[window]["needle"]] == [128, 256, 512, 1024]
    whole, narrow = found[4096]["generated"], found[2]["generated"]
    assert whole == {"texts": 4, "prompt": 64, "tokens": 32, "same_texts": 1.0, "tokens_before_first_difference": 32.0}
    assert narrow["tokens_before_first_difference"] < 32
    assert all(n["student"] == n["teacher"] for n in found[4096]["needle"])
    assert "What it writes" in (tmp_path / "2/certificate.html").read_text()
