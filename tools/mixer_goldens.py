"""Golden outputs of the mixers by other hands.

    python tools/mixer_goldens.py equations       the papers' equations in fp64, numpy loops
    python tools/mixer_goldens.py transformers    layers of transformers 5.22.2 in fp32
    python tools/mixer_goldens.py fla             naive functions of fla-core 0.6.0 in fp32
    python tools/mixer_goldens.py --check         recomputes what is installed here and compares

Each of the first three writes src/mixers/goldens/<name>.safetensors: for every case the input
<case>.x, the output <case>.y and every parameter as <case>.<parameter>; its metadata maps <case> to
{"mixer", "D", "options", "tolerance", "versions"}. The second needs torch and transformers, the
third torch and einops and the files of fla-core (pip install --no-deps): its naive functions are
read from there one by one, since importing the package wants triton. The tests need the files alone.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from mixer_equations import Array, Case, D, equations
from mixer_peers import fla, transformers

FOLDER = Path(__file__).resolve().parent.parent / "src/mixers/goldens"

SOURCES: dict[str, tuple[Callable[[], list[Case]], tuple[str, ...]]] = {
    "equations": (equations, ("numpy",)),
    "transformers": (transformers, ("transformers", "torch")),
    "fla": (fla, ("fla-core", "torch")),
}


def compute(source: str) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
    make, packages = SOURCES[source]
    versions = {name: importlib.metadata.version(name) for name in packages}
    tensors, about = {}, {}
    for name, mixer, options, tolerance, arrays in make():
        about[name] = {"mixer": mixer, "D": D, "options": options, "tolerance": tolerance,
                       "versions": versions}  # fmt: skip
        tensors |= {f"{name}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}
    return tensors, about


def differences(source: str) -> list[str]:
    """What the file holds against what is computed here, with whatever versions are installed."""
    tensors, about = compute(source)
    with safe_open(FOLDER / f"{source}.safetensors", "np") as file:
        held = {name: json.loads(text) for name, text in file.metadata().items()}
        kept = {key: file.get_tensor(key) for key in file.keys()}
    for case in (*held.values(), *about.values()):
        case.pop("versions", None)
    found = [f"{source}: the cases differ"] if held != about or kept.keys() != tensors.keys() else []
    for key in sorted(kept.keys() & tensors.keys()):
        # A golden may move by a tenth of what the test allows: other BLAS, other order of sums.
        case = held.get(key.split(".")[0], {"tolerance": 0})
        scale = max(float(np.abs(tensors[key]).max()), 1e-30)
        error = float(np.abs(kept[key].astype(float) - tensors[key]).max()) / scale
        if not error <= case["tolerance"] / 10:
            found.append(f"{source}: {key} differs by {error:.1e} of its largest entry")
    return found


def check() -> int:
    found = []
    for source in SOURCES:
        try:
            found += differences(source)
            print(f"{source}: recomputed")
        except (ImportError, importlib.metadata.PackageNotFoundError) as error:
            print(f"{source}: skipped, {error}")
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return check()
    if len(sys.argv) != 2 or sys.argv[1] not in SOURCES:
        sys.exit("usage: mixer_goldens.py equations|transformers|fla|--check")
    tensors, about = compute(sys.argv[1])
    metadata = {name: json.dumps(case) for name, case in about.items()}
    FOLDER.mkdir(exist_ok=True)
    save_file(tensors, FOLDER / f"{sys.argv[1]}.safetensors", metadata)
    return 0


if __name__ == "__main__":
    sys.exit(main())
