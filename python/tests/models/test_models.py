"""Real models: downloaded by `horner get`, then compared with what transformers gave (tools/model_goldens.py)."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import horner

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("HORNER_LIBRARY", ""))
pytestmark = pytest.mark.skipif(not (BUILD / "horner").is_file(), reason="HORNER_LIBRARY holds no program")


def get(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUILD / "horner", "get", *words], capture_output=True, text=True, env=os.environ | environment)


@pytest.mark.parametrize("name", ["smollm2-135m", "minilm"])
def test_get(name: str) -> None:
    done = get(name, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["name"] == name and Path(row["folder"]).is_dir()
    assert json.loads(get(name, "--json").stdout)[0]["downloaded"] is False


def test_a_damaged_model_is_replaced(tmp_path: Path) -> None:
    folder = Path(json.loads(get("minilm", "--json").stdout)[0]["folder"])
    cache = tmp_path / "horner/minilm"
    shutil.copytree(folder, cache)
    (cache / "config.json").write_text("{}")
    (row,) = json.loads(get("minilm", "--json", XDG_CACHE_HOME=str(tmp_path)).stdout)
    assert row["downloaded"] and (cache / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert sorted(path.name for path in cache.parent.iterdir()) == ["minilm"]


def test_numbers_are_those_of_transformers() -> None:
    get("smollm2-135m")
    get("minilm")
    done = subprocess.run([BUILD / "horner_test", "--gtest_filter=*RealModels.*"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    passed, skipped = (5, 0) if os.environ.get("HORNER_DATA") else (4, 1)  # one reads WikiText
    assert f"PASSED  ] {passed} tests" in done.stdout and done.stdout.count("[  SKIPPED ] Hybrid") >= skipped
    assert ("SKIPPED" in done.stdout) == bool(skipped)


def test_generate_writes_the_text_of_transformers() -> None:
    """The program itself, so the decoder of the CPU; transformers did not stop at the end of a text."""
    get("smollm2-135m")
    golden = dict(zip(*torch.ops.horner.read_tensors(str(ROOT / "src/model/formats/goldens/real/smollm2-135m.safetensors")), strict=True))
    words = ["--prompt", "The capital of France is", "--weights", "fp32", "--temperature", "0", "--tokens", "200", "--device", "cpu", "--json"]
    done = subprocess.run([BUILD / "horner", "generate", "smollm2-135m", *words], capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    wanted = golden["greedy"][0, golden["prompt"].shape[1]:].tolist()
    assert made["tokens"]["prompt"] == golden["prompt"].shape[1] and made["computed_by"].startswith("fp32")
    assert made["ids"] == wanted[:len(made["ids"])]
    assert len(made["ids"]) == 200 or made["finish"] == "end"


def test_weights_cost_what_the_page_says() -> None:
    """The table of docs/generate.md, but for what another CPU rounds otherwise."""
    page = (ROOT / "docs/generate.md").read_text()
    rows = {row[0]: [float(x) for x in row[1:]] for row in
            (line.strip("| ").split(" | ") for line in page.splitlines()) if re.fullmatch("fp32|bf16|q8|q4|auto", row[0]) and len(row) == 5}
    get("smollm2-135m")
    words = re.search(r"horner (bench generate smollm2-135m --beside .*)", page)
    assert words and set(rows) == {"fp32", "bf16", "q8", "q4", "auto"}
    done = subprocess.run([BUILD / "horner", *words[1].split(), "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    found = {row["weights"]: row for row in result["beside"]} | {"auto": result["horner"] | {"weight_bytes": result["weight_bytes"]}}
    for name, (megabytes, kl, same, nats) in rows.items():
        assert found[name]["weight_bytes"] / 1e6 == pytest.approx(megabytes, abs=0.06)
        assert found[name]["kl"] == pytest.approx(kl, rel=0.1, abs=1e-5)
        assert found[name]["same_top1"] == pytest.approx(same, abs=0.01)
        assert found[name]["nats"] == pytest.approx(nats, abs=2e-3)


@torch.no_grad()
def test_python_opens_it() -> None:
    """By its name, with the logits of transformers."""
    get("smollm2-135m")
    model = horner.load("smollm2-135m")
    file = ROOT / "src/model/formats/goldens/real/smollm2-135m.safetensors"
    golden = dict(zip(*torch.ops.horner.read_tensors(str(file)), strict=True))
    logits = model(golden["tokens"])[0, golden["places"]][:, ::16]
    assert (logits - golden["values"]).abs().max() < 1e-4 * golden["values"].abs().max()
