"""The wheel, in an environment that has torch and nothing else: docs/python.md runs there, outside the source tree."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SMOKE = """
import sys, torch, horner
o = horner.power(torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 4)).o
assert torch.equal(o, torch.ones(1, 5, 2, 4)), o
for row in horner.nn._list.mixers():
    layer = getattr(horner.nn, row.title)(64)
    y = layer(torch.randn(2, 9, 64))
    y.square().sum().backward()
    assert y.isfinite().all() and all(p.grad is not None for p in layer.parameters()), row.name
for name in ("numpy", "pytest", "transformers"):
    assert name not in sys.modules, name
print(horner.__file__)
"""


def without_build() -> dict[str, str]:
    """The environment, less what leads to the build under test."""
    ours = ("HORNER_LIBRARY", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in ours}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=without_build())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lend(venv: Path) -> Path:
    """Links torch and what importing it needs (tools/requirements.txt) into a venv; returns its site-packages."""
    (site,) = venv.glob("lib/python3*/site-packages")
    names = re.findall(r"^([\w-]+)==", (ROOT / "tools/requirements.txt").read_text(), re.MULTILINE)
    for name in names:
        try:
            files = distribution(name).files or []
        except ModuleNotFoundError:  # the CUDA toolkit has it
            continue
        folder = Path(str(distribution(name).locate_file("")))
        for top in {path.parts[0] for path in files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(folder / top)
    return site


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a venv with the wheel. It is built in build/python, so that a second run compiles only what changed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", str(folder)]
    build += ["--config-settings", f"build-dir={ROOT}/build/python"]
    cuda = "ON" if torch.cuda.is_available() else "OFF"  # kernels only where they can run
    build += ["--config-settings", f"cmake.define.HORNER_CUDA={cuda}"]
    run(*build, str(ROOT), cwd=folder)
    (wheel,) = folder.glob("horner-*.whl")
    assert "-py3-none-linux" in wheel.name
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    lend(folder / "venv")
    python = folder / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    run(*install, cwd=folder)
    return python


@pytest.mark.slow
def test_every_layer_runs(python: Path, tmp_path: Path) -> None:
    printed = run(python, "-I", "-c", SMOKE, cwd=tmp_path)
    assert Path(printed.strip()).is_relative_to(python.parents[1])


@pytest.mark.slow
def test_the_tutorial_runs(python: Path, tmp_path: Path) -> None:
    """All examples of the page, of which the first replaces softmax by gla in a PyTorch model."""
    page = (ROOT / "docs/python.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert "horner.nn.GLA" in examples[0]
    run(python, "-I", "-c", "\n".join(examples), cwd=tmp_path)
