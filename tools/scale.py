"""The cost of training on many GPUs, on paper: writes the tables of docs/scale.md.

Measured: steps of one H200 (docs/results/bench_train_h200_T1024.json). Assumed: the link speeds below, and that a transfer
runs at the same time as the part of the step that it does not depend on.

    python tools/scale.py            # prints the tables
    python tools/scale.py --check    # compares them with docs/scale.md
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NODE = 8  # GPUs of a node
NVLINK = 0.8 * 450e9  # bytes/s between a GPU and its node, one direction: 80 % of what is stated
NETWORK = 0.8 * 50e9  # bytes/s of a GPU's own 400 Gb/s adapter: 80 %
GPUS = (8, 512)
SHARDS = ("none", "optimizer", "full")


def bench() -> dict:
    return json.loads((ROOT / "docs/results/bench_train_h200_T1024.json").read_text())


def pass_seconds(parameters: float, gpus: int) -> float:
    """One all-gather or one reduce-scatter of fp32 numbers: inside the nodes, then 1/8 of it through each adapter."""
    inside, nodes = min(gpus, NODE), gpus / NODE
    seconds = 4 * parameters * (inside - 1) / inside / NVLINK
    return seconds + (4 * parameters / NODE * (nodes - 1) / nodes / NETWORK if nodes > 1 else 0)


def step_seconds(compute: float, optimiser: float, parameters: float, gpus: int, shard: str) -> float:
    forward, backward, one = compute / 3, 2 * compute / 3, pass_seconds(parameters, gpus)
    if shard == "none":  # the sum is a reduce-scatter and an all-gather
        return forward + max(backward, 2 * one) + optimiser
    if shard == "optimizer":
        return forward + max(backward, one) + optimiser / gpus + one
    return max(forward, one) + max(backward, 2 * one) + optimiser / gpus


def vectors(parameters: float, gpus: int, shard: str, held: float) -> float:
    """Bytes; held: parameters of two blocks and of what is outside of the blocks."""
    return {"none": 16 * parameters, "optimizer": parameters * (8 + 8 / gpus),
            "full": 16 * parameters / gpus + 8 * held}[shard]


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def measured() -> str:
    rows = []
    data = bench()
    tokens = data["options"]["B"] * data["options"]["T"]
    for row in data["rows"]:
        if row["mixer"] not in ("softmax", "linear", "gated_deltanet", "mamba2"):
            continue
        n, step = row["parameters"], row["milliseconds"] / 1e3
        parts = {part["part"]: part["milliseconds"] for part in row["profile"]["parts"]}
        optimiser = parts["optimiser"] / 1e3
        for gpus in GPUS:
            cells = [row["mixer"], f"{n / 1e6:.0f} M", f"{1e3 * step:.0f}", str(gpus),
                     f"{1e3 * pass_seconds(n, gpus):.1f}"]
            for shard in SHARDS:
                seconds = step_seconds(step - optimiser, optimiser, n, gpus, shard)
                cells.append(f"{1e3 * seconds:.0f} ms, {gpus * tokens / seconds / 1e6:.3g} M tok/s")
            rows.append(cells)
    return table(["mixer", "parameters", "one GPU, ms", "GPUs", "one pass, ms", *SHARDS], rows)


def larger() -> str:
    """Models with the shape of common ones, at the rate of the measured softmax model: 6 FLOP per parameter and token."""
    data = bench()
    softmax = next(row for row in data["rows"] if row["mixer"] == "softmax")
    rate = 6 * softmax["parameters"] * softmax["tokens_per_second"]
    rows = []
    for name, layers, width, tokens in (("7 G", 32, 4096, 16384), ("70 G", 80, 8192, 4096)):
        block = 12 * width * width
        outside = 2 * 32000 * width
        n = layers * block + outside
        compute = 6 * n * tokens / rate
        for gpus in GPUS:
            for shard in SHARDS:
                held = vectors(n, gpus, shard, 2 * block + outside) / 2**30
                seconds = step_seconds(compute, 0, n, gpus, shard)
                rows.append([name, str(gpus), shard, f"{held:.0f} GiB" + (" (too much)" if held > 130 else ""),
                             f"{1e3 * pass_seconds(n, gpus):.0f}", f"{1e3 * compute:.0f}", f"{1e3 * seconds:.0f}",
                             f"{100 * compute / seconds:.0f} %"])
    return table(["parameters", "GPUs", "shard", "vectors of a GPU", "one pass, ms", "compute, ms", "step, ms",
                  "share of the time that computes"], rows)


def main() -> None:
    tables = [measured(), larger()]
    if "--check" not in sys.argv:
        print("\n".join(tables))
        return
    page = (ROOT / "docs/scale.md").read_text()
    if not all(text in page for text in tables):
        sys.exit("docs/scale.md: its tables are not those of tools/scale.py")


if __name__ == "__main__":
    main()
