"""The annotations of the package hold."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import sanitizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy")
def test_mypy() -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/stubs.py", "--check"], capture_output=True, text=True,
                          env=sanitizer.python_environment())
    assert done.returncode == 0, done.stderr
