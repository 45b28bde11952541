"""Real clients and real models, converted or not: lm-evaluation-harness against `horner serve` gives the numbers of `horner score`."""

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from serving import PROGRAM, Server  # noqa: E402

DATA = os.environ.get("HORNER_DATA")
PYTHON = os.environ.get("HORNER_LM_EVAL", sys.executable)  # a Python that has lm-eval[api]
pytestmark = [
    pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program"),
    pytest.mark.skipif(not DATA, reason="HORNER_DATA is not set"),
    pytest.mark.skipif(subprocess.run([PYTHON, "-c", "import lm_eval, tenacity, aiohttp"], capture_output=True).returncode != 0,
                       reason="no lm-eval[api]; HORNER_LM_EVAL names a Python that has it"),
]
QUESTIONS = int(os.environ.get("HORNER_LM_EVAL_QUESTIONS", "20"))  # of each file
TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""
LAST_WORD = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list:
  - metric: acc
"""


def folder_of(name: str, out: Path) -> str:
    """A small model of the data, one that people know, and the same with other mixers in the place of softmax, without training."""
    if name == "tinystories":
        return f"{DATA}/tinystories656k"
    if name == "smollm2-135m":
        return name
    if found := os.environ.get("HORNER_CONVERTED"):  # a folder, to spare the conversion
        return found
    subprocess.run([PROGRAM, "convert", "smollm2-135m", "--to", "hybrid:far=centres,count=64", "--text", f"{DATA}/wikitext-2/valid.txt.xz",
                    "--calibration", "1", "--context", "512", "--windows", "1", "--texts", "0", "--device", "cpu", "--out", out],
                   check=True, capture_output=True)
    return str(out)


@pytest.mark.parametrize("name", ["tinystories", "smollm2-135m", "converted"])
def test_lm_eval_gives_the_numbers_of_score(name: str, tmp_path: Path) -> None:
    assert DATA
    model = folder_of(name, tmp_path / "converted")
    choices = ("copa_balanced", "arc_easy_test")
    words = [] if name == "tinystories" else ["lambada_words"]  # its tokens do not cut at spaces
    tasks = (*choices, *words)
    for task in tasks:
        source = f"{DATA}/choices/{task}" if task in choices else f"{DATA}/lambada/test"
        lines = lzma.open(f"{source}.jsonl.xz", "rt").read().splitlines()[:QUESTIONS]
        (tmp_path / f"{task}.jsonl").write_text("\n".join(lines) + "\n")
        text = TASK if task in choices else LAST_WORD
        (tmp_path / f"{task}.yaml").write_text(text.format(name=task, file=tmp_path / f"{task}.jsonl"))
    files = ",".join(str(tmp_path / f"{task}.jsonl") for task in choices)
    done = subprocess.run([PROGRAM, "score", model, "--choices", files, *(f"--last_word={tmp_path / word}.jsonl" for word in words),
                           "--device", "cpu", "--json"], capture_output=True, text=True, check=True)
    wanted = json.loads(done.stdout)["questions"]
    with Server(model, "--weights", "fp32", "--device", "cpu", "--name", "served") as server:
        arguments = f"model=served,base_url={server.url}/v1/completions,num_concurrent=4,max_retries=1,timeout=3000"
        done = subprocess.run(
            [PYTHON, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments, "--batch_size", "8", "--tasks", ",".join(tasks),
             "--include_path", tmp_path, "--output_path", tmp_path / "out", "--log_samples"],
            capture_output=True, text=True, env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1",
                                                              "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": ""})
        assert done.returncode == 0, done.stderr[-3000:]
    (found,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(found.read_text())["results"]
    worst = 0.0
    for task, scores in zip(tasks, wanted, strict=True):
        assert scores["questions"] == QUESTIONS
        assert results[task]["acc,none"] == pytest.approx(scores["right"]["value"], abs=1e-12)
        if task in choices:
            assert results[task]["acc_norm,none"] == pytest.approx(scores["normalised"]["value"], abs=1e-12)
        (samples,) = (tmp_path / "out").rglob(f"samples_{task}_*.jsonl")
        seen = set()
        for line in samples.read_text().splitlines():
            sample = json.loads(line)
            seen.add(sample["doc_id"])
            ours = scores["nats"][sample["doc_id"]]
            theirs = [-float(answer[0][0]) for answer in sample["resps"]]
            assert len(theirs) == len(ours) and ours.index(min(ours)) == theirs.index(min(theirs))
            worst = max(worst, *(abs(a - b) for a, b in zip(ours, theirs, strict=True)))
        assert len(seen) == QUESTIONS
        print(f"{name} {task}: {QUESTIONS} examples, right {scores['right']['value']:.4f} in both")
    print(f"{name}: the sums of log-probabilities differ by at most {worst:.1e} nats")
    assert worst < 2e-3
