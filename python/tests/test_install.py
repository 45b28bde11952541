"""The package builds, installs and runs outside the source tree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import torch, horner
o = horner.power(torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 4)).o
assert torch.equal(o, torch.ones(1, 5, 2, 4)), o
print(horner.__file__)
"""


@pytest.mark.slow
def test_install(tmp_path: Path) -> None:
    """Under build/, so that a second run compiles only what changed."""
    install = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    install += ["--config-settings", f"build-dir={ROOT}/build/python"]
    install += ["--target", str(tmp_path), str(ROOT)]
    done = subprocess.run(install, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = {k: v for k, v in os.environ.items() if k != "HORNER_LIBRARY"}
    environment["PYTHONPATH"] = str(tmp_path)
    run = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "horner/__init__.py")
