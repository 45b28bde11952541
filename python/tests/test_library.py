"""Importing horner without its library, or with another torch, says so in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import horner


def import_error(folder: Path, program: str) -> str:
    """The last line that `program` prints in a copy of the package without libraries."""
    shutil.copytree(
        Path(horner.__file__).parent, folder / "horner", ignore=shutil.ignore_patterns("lib")
    )
    environment = os.environ | {"PYTHONPATH": str(folder), "HORNER_LIBRARY": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=folder
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_no_library(tmp_path: Path) -> None:
    line = import_error(tmp_path, "import horner")
    assert line.startswith(f"ImportError: horner: no libhorner.so in {tmp_path}/horner/lib or")


def test_broken_library(tmp_path: Path) -> None:
    (tmp_path / "libhorner.so").write_bytes(b"not a library")
    line = import_error(tmp_path, "import horner")
    assert line.startswith(f"ImportError: horner: cannot load {tmp_path}/libhorner.so")


@pytest.mark.parametrize("version", ["2.10.0", "2.12.1+cu130", "2.1.1"])
def test_another_torch(tmp_path: Path, version: str) -> None:
    program = f"import torch; torch.__version__ = '{version}'; import horner"
    line = import_error(tmp_path, program)
    assert line == (
        f"ImportError: horner: built for torch 2.11, but this is torch {version}; "
        "install the other one: pip install torch==2.11.0"
    )


OPENS = """
import ctypes, sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
torch.ops.load_library(folder / "libhorner.so")
kernels = ctypes.CDLL(str(folder / "libhorner.so"))._ZN6horner14rotate_kernelsEv  # rotate_kernels(): pointers, null without a GPU
kernels.restype = ctypes.POINTER(ctypes.c_void_p)
before = kernels()[0]
torch.ops.load_library(folder / "libhorner_cuda.so")
print(before, kernels()[0] is not None)
"""


def test_opening_the_cuda_library_hands_over_its_kernels() -> None:
    """Python opens it by torch.ops.load_library alone; no driver is needed for that."""
    folder = Path(os.environ["HORNER_LIBRARY"])
    if not (folder / "libhorner_cuda.so").is_file():
        pytest.skip("built without CUDA")
    done = subprocess.run([sys.executable, "-c", OPENS, str(folder)], capture_output=True, text=True)
    assert done.stdout.split() == ["None", "True"], done.stderr
