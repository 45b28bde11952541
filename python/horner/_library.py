"""Loads libhorner.so, and where there is a GPU libhorner_cuda.so: they register the ops."""

import os
from pathlib import Path

import torch


def _folder() -> Path:
    folders = [Path(__file__).parent / "lib"]
    if os.environ.get("HORNER_LIBRARY"):
        folders.append(Path(os.environ["HORNER_LIBRARY"]))
    for folder in folders:
        if (folder / "libhorner.so").is_file():
            return folder
    looked = " or ".join(str(folder) for folder in folders)
    raise ImportError(f"horner: no libhorner.so in {looked}; HORNER_LIBRARY names a build folder")


def _load() -> None:
    if not torch.__version__.startswith("2.11."):
        wrong = f"horner: built for torch 2.11, but this is torch {torch.__version__}"
        raise ImportError(f"{wrong}; install the other one: pip install torch==2.11.0")
    libraries = [_folder() / "libhorner.so"]
    cuda = libraries[0].with_name("libhorner_cuda.so")
    if torch.cuda.is_available() and cuda.is_file():
        libraries.append(cuda)
    for library in libraries:
        try:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise ImportError(f"horner: cannot load {library}: {error}") from error


_load()
