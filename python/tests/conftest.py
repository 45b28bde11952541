"""What holds for every test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch._functorch.config

import sanitizer  # noqa: F401  (takes the libraries out of the environment)
from serving import PROGRAM, Server, train

# torch's check that an op returns memory of its own only warns, unless CI is set. A test fails everywhere.
torch._functorch.config.error_on_custom_op_aliasing = True


# Tiny models of bytes that the tests of `horner serve` ask.
@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("models")
    return {name: train(out, name, "--model.pattern", name) for name in ("gla", "softmax")}


@pytest.fixture(scope="session")
def converted(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The softmax model with other mixers, as `horner convert` makes it without training."""
    out = tmp_path_factory.mktemp("converted") / "model"
    subprocess.run([PROGRAM, "convert", models["softmax"], "--to", "hybrid:window=16,sinks=2,far=centres,count=16", "--context", "128",
                    "--windows", "1", "--calibration", "1", "--texts", "0", "--out", out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module", params=["gla", "softmax"])
def server(models: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(models[request.param], "--name", "tiny", "--request_seconds", 3) as one:
        yield one
