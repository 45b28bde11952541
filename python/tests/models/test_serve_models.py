"""Real clients and a real model: lm-evaluation-harness against `horner serve` gives the numbers of `horner score`."""

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


def test_lm_eval_gives_the_numbers_of_score(tmp_path: Path) -> None:
    assert DATA
    choices = ("copa_balanced", "arc_easy_test")
    names = (*choices, "lambada_words")
    for name in names:
        source = f"{DATA}/choices/{name}" if name in choices else f"{DATA}/lambada/test"
        lines = lzma.open(f"{source}.jsonl.xz", "rt").read().splitlines()[:QUESTIONS]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        task = TASK if name in choices else LAST_WORD
        (tmp_path / f"{name}.yaml").write_text(task.format(name=name, file=tmp_path / f"{name}.jsonl"))
    files = ",".join(str(tmp_path / f"{name}.jsonl") for name in choices)
    done = subprocess.run([PROGRAM, "score", "smollm2-135m", "--choices", files, "--last_word", tmp_path / "lambada_words.jsonl",
                           "--device", "cpu", "--json"], capture_output=True, text=True, check=True)
    wanted = json.loads(done.stdout)["questions"]
    with Server("smollm2-135m", "--weights", "fp32", "--device", "cpu") as server:
        arguments = f"model=smollm2-135m,base_url={server.url}/v1/completions,num_concurrent=4,max_retries=1"
        done = subprocess.run(
            [PYTHON, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments, "--batch_size", "8", "--tasks", ",".join(names),
             "--include_path", tmp_path, "--output_path", tmp_path / "out", "--log_samples"],
            capture_output=True, text=True, env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1",
                                                              "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": ""})
        assert done.returncode == 0, done.stderr[-3000:]
    (found,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(found.read_text())["results"]
    for name, scores in zip(names, wanted, strict=True):
        assert scores["questions"] == QUESTIONS
        assert results[name]["acc,none"] == pytest.approx(scores["right"]["value"], abs=1e-12)
        if name in choices:
            assert results[name]["acc_norm,none"] == pytest.approx(scores["normalised"]["value"], abs=1e-12)
        (samples,) = (tmp_path / "out").rglob(f"samples_{name}_*.jsonl")
        for line in samples.read_text().splitlines():
            sample = json.loads(line)
            ours = scores["nats"][sample["doc_id"]]
            theirs = [-float(answer[0][0]) for answer in sample["resps"]]
            assert theirs == pytest.approx(ours, abs=2e-3)
