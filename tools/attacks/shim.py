"""shim.c, compiled and preloaded into the program."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from attacks.target import Skipped, sanitizer

SOURCE = Path(__file__).with_name("shim.c")


@cache
def library() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise Skipped("no C compiler")
    made = Path(tempfile.mkdtemp(prefix="horner_shim_")) / "shim.so"
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", SOURCE, "-o", made, "-ldl"], check=True)
    return str(made)


def environment(root: Path, **more: object) -> dict[str, str]:
    """environment(out, fail="3:5") sets HORNER_SHIM_FAIL=3:5."""
    settings = {f"HORNER_SHIM_{name.upper()}": str(value) for name, value in more.items()}
    first = [sanitizer()] * bool(sanitizer())  # it refuses any other library before it
    return {"LD_PRELOAD": ":".join([*first, library()]), "HORNER_SHIM_ROOT": str(root), **settings}


def calls(log: Path) -> list[list[str]]:
    return [line.split(" ") for line in log.read_text().splitlines()]
