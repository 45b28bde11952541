"""horner.load and horner.save: the folders of the program, and models of others, opened in Python."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

import horner

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
needs_program = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
SETTINGS = {"pattern": ["gla:heads=2", "softmax:heads=2"], "layers": 2, "D": 16, "vocabulary": 11}


def ids() -> torch.Tensor:
    return torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_save_then_load(tmp_path: Path, dtype: torch.dtype) -> None:
    model = horner.nn.Model(**SETTINGS, seed=1, dtype=dtype)
    horner.save(model, tmp_path / "a/b")
    loaded = horner.load(tmp_path / "a/b", dtype=dtype)
    assert not loaded.training and all(p.requires_grad for p in loaded.parameters())
    assert torch.equal(loaded(ids()), model(ids()))
    horner.save(loaded, tmp_path / "a/b")  # over the file that it was read from
    assert torch.equal(horner.load(tmp_path / "a/b", dtype=dtype)(ids()), model(ids()))


def test_buffers_are_saved_in_fp64(tmp_path: Path) -> None:
    model = horner.nn.Model(pattern=["linear:heads=2,feature=favor,feature_dim=8"], layers=1, D=16, vocabulary=11)
    assert model.layer_0.mixer.feature_directions.dtype == torch.float64
    horner.save(model, tmp_path)
    assert torch.equal(horner.load(tmp_path)(ids()), model(ids()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the program: two steps on one small task."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    command = [
        PROGRAM, "train", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--device", "cpu",
        "--model.pattern", "gla:heads=2", "--model.D", "16", "--model.layers", "2", "--schedule.steps", "2", "--seed", "5",
        "--train.batch", "8", "--eval.examples", "8", "--out", folder.parent, "--name", folder.name,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@needs_program
def test_a_run_of_the_program(run: Path) -> None:
    model = horner.load(run)
    newest = max((run / "checkpoints").glob("step_*"))
    stored = dict(zip(*torch.ops.horner.read_tensors(str(newest / "model.safetensors")), strict=True))
    assert stored.keys() == model.state_dict().keys()
    assert all(torch.equal(x, stored[name]) for name, x in model.state_dict().items())
    assert torch.equal(horner.load(newest)(ids()), model(ids()))
    assert not torch.equal(model.head_weight, horner.nn.Model(**model.options, seed=5).head_weight)  # it was trained


# ---- models of others: tools/model_goldens.py wrote them, and the numbers of transformers ------------------


GOLDENS = Path(__file__).resolve().parents[2] / "src/model/formats/goldens"
DECODERS = ["llama", "llama3", "linear", "mistral", "qwen2", "qwen3", "gpt2"]
FILES = [*DECODERS, "llama.gguf", "qwen2.gguf", "qwen3.gguf", "gpt2.gguf"]


def expected(name: str) -> dict[str, torch.Tensor]:
    file = GOLDENS / name.removesuffix(".gguf") / "expected.safetensors"
    return dict(zip(*torch.ops.horner.read_tensors(str(file)), strict=True))


@pytest.mark.parametrize("name", FILES)
@torch.no_grad()
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model, golden = horner.load(GOLDENS / name), expected(name)
    tokens, wanted = golden["tokens"], golden["values"]
    whole = model(tokens)[0]
    assert (whole[golden["places"]] - wanted).abs().max() < 1e-4 * wanted.abs().max()
    first, state = model(tokens[:, :17], [])
    rest, state = model(tokens[:, 17:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1)[0], whole, rtol=1e-4, atol=1e-4)
    horner.save(model, tmp_path)  # as a folder of ours
    assert torch.equal(horner.load(tmp_path)(tokens)[0], whole)


@torch.no_grad()
def test_an_encoder_is_that_of_transformers() -> None:
    model, golden = horner.load(GOLDENS / "bert"), expected("bert")
    assert not model.causal
    rows = model(golden["tokens"].expand(2, -1), lengths=torch.tensor([300, 17]))
    torch.testing.assert_close(rows[0, golden["places"]], golden["values"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rows[1, :17], golden["first_17"], rtol=1e-4, atol=1e-4)


def test_quantised_blocks_become_values_of_the_type_asked_for() -> None:
    exact, half = horner.load(GOLDENS / "blocks.gguf"), horner.load(GOLDENS / "blocks.gguf", dtype=torch.bfloat16)
    for (name, x), y in zip(exact.state_dict().items(), half.state_dict().values(), strict=True):
        assert x.dtype == torch.float32 and torch.equal(x.bfloat16(), y), name
    assert all(p.requires_grad for p in exact.parameters())


@pytest.mark.parametrize("name", ["llama", "llama.gguf", "blocks.gguf"])
def test_a_model_trains_further(name: str) -> None:
    model = horner.load(GOLDENS / name)
    tokens = torch.randint(41, (2, 20), generator=torch.Generator().manual_seed(1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@needs_program
def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    def refused(path: Path, says: str) -> None:
        with pytest.raises((OSError, ValueError, RuntimeError), match=says) as error:
            horner.load(path)
        assert "\n" not in str(error.value)

    (tmp_path / "cut.gguf").write_bytes((GOLDENS / "llama.gguf").read_bytes()[:2000])
    refused(tmp_path / "cut.gguf", "cut.gguf: ")
    (tmp_path / "cut.gguf").unlink()
    refused(tmp_path / "none", "is no folder, no file and no model of `horner get`")
    refused(tmp_path, "has no config.json, and not one GGUF file")
    horner.save(horner.nn.Model(**SETTINGS), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"horner": config["horner"] | {"D": 32}}))
    refused(tmp_path, r"must be \(11, 32\), got \(11, 16\)")
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path, "config.json: has no model_type")
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "is not JSON")
    newest = max((run / "checkpoints").glob("step_*"))
    damaged = bytearray((newest / "model.safetensors").read_bytes())
    damaged[-1] ^= 1
    (newest / "model.safetensors").write_bytes(damaged)
    refused(run, "is damaged: its checksum")
    with pytest.raises(TypeError, match=r"takes a horner\.nn\.Model, got Linear"):
        horner.save(torch.nn.Linear(1, 1), tmp_path)
    with pytest.raises(NotImplementedError, match="meta"):
        horner.save(horner.nn.Model(**SETTINGS, device="meta"), tmp_path)
    with pytest.raises((RuntimeError, ValueError), match="x has no numbers here: it is on the meta device"):
        torch.ops.horner.write_tensors(str(tmp_path / "x"), ["x"], [torch.empty(2, device="meta")])
