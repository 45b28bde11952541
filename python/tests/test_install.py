"""The package builds, installs and runs outside the source tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import torch, horner
o = horner.power(torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 4)).o
assert torch.equal(o, torch.ones(1, 5, 2, 4)), o
print(horner.__file__)
"""


@pytest.mark.slow
def test_install(tmp_path: Path) -> None:
    """Built in build/python, so that a second run compiles only what changed."""
    ours = ("HORNER_LIBRARY", "PYTHONPATH", "LD_PRELOAD")  # of the build under test
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    install = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    install += ["--config-settings", f"build-dir={ROOT}/build/python"]
    cuda = "ON" if torch.cuda.is_available() else "OFF"  # kernels only where they can run
    install += ["--config-settings", f"cmake.define.HORNER_CUDA={cuda}"]
    install += ["--target", str(tmp_path), str(ROOT)]
    done = subprocess.run(install, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    run, environment["PYTHONPATH"] = [sys.executable, "-c", PROGRAM], str(tmp_path)
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "horner/__init__.py")
