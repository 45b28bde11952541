"""A training loop in Python with horner.nn beside the C++ trainer: the same model, batches, loss, clipping and AdamW.

    HORNER_LIBRARY=build/cuda PYTHONPATH=python python tools/bench_train_nn.py --mixer softmax,gla --D 1024 --layers 20 \\
        --heads 16 --mlp_dim 2048 --vocabulary 32000 --B 36 --T 1024 --device cuda

The C++ step is what `horner bench train` times. On a GPU both are one CUDA graph per step, replayed in a row without a wait
between steps; on a CPU both are eager. Each side runs in a process of its own. They take --rounds turns, and each one's
fastest turn counts. Prints a table, or with --json one object. Exit status 4: Python took more than --most times as long.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {"D": 128, "layers": 2, "heads": 4, "mlp_dim": 0, "vocabulary": 256, "B": 32, "T": 256, "steps": 20}
WARM = 3  # steps before the clock starts, and before a graph is recorded
BATCHES = 4  # that the steps take in turn


def with_heads(mixer: str, heads: int) -> str:
    """gla -> gla:heads=16 if the mixer has heads and the spec does not say how many, as `horner bench train` does."""
    from horner.nn._list import mixers

    name, _, settings = mixer.partition(":")
    row = next(row for row in mixers() if row.name == name)
    if "heads" not in {s.name for s in row.settings} or any(s.startswith("heads=") for s in settings.split(",")):
        return mixer
    return f"{mixer}{',' if settings else ':'}heads={heads}"


def own_step(model: Any, device: str) -> Callable[[Any, Any], None]:
    """Forward, loss, backward, clipping and AdamW on (B,T) tokens and targets; nothing waits for the device."""
    import torch

    matrices = [p for name, p in model.named_parameters() if p.dim() >= 2 and name.endswith(("weight", "embedding", "positions"))]
    known = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in known]
    on_gpu = device != "cpu"
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=torch.tensor(1e-3, device=device), betas=(0.9, 0.95), fused=True, capturable=on_gpu,
    )

    def step(tokens: Any, targets: Any) -> None:
        optimiser.zero_grad()
        with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16, enabled=on_gpu, cache_enabled=False):
            loss = model.loss(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimiser.step()

    return step


def recorded(step: Callable[[Any, Any], None], tokens: Any, targets: Any) -> Callable[[Any, Any], None]:
    """The step as one CUDA graph, which reads its batch from where this one lies."""
    import torch

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(WARM):
            step(tokens, targets)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(tokens, targets)

    def replay(new_tokens: Any, new_targets: Any) -> None:
        tokens.copy_(new_tokens, non_blocking=True)
        targets.copy_(new_targets, non_blocking=True)
        graph.replay()

    return replay


def time_python(a: argparse.Namespace, mixer: str) -> dict[str, Any]:
    """Milliseconds of a step of horner.nn."""
    import torch

    import horner

    torch.manual_seed(0)
    model = horner.nn.Model(
        pattern=[with_heads(mixer, a.heads)], layers=a.layers, D=a.D, mlp_dim=a.mlp_dim, vocabulary=a.vocabulary,
        device=a.device, seed=0,
    )
    on_gpu = a.device != "cpu"
    batches = []
    for _ in range(BATCHES):
        tokens = torch.randint(a.vocabulary, (a.B, a.T + 1))
        pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        batches.append(tuple(x.pin_memory() if on_gpu else x for x in pair))
    step = own_step(model, a.device)
    if on_gpu:
        step = recorded(step, *(x.to(a.device) for x in batches[0]))

    def run(steps: int) -> list[float]:
        """Seconds of each step on a CPU; of all steps together on a GPU."""
        times = [time.perf_counter()]
        for s in range(steps):
            step(*batches[s % BATCHES])
            times.append(time.perf_counter())
        if on_gpu:
            torch.cuda.synchronize()
            return [(time.perf_counter() - times[0]) / steps]
        return [end - begin for begin, end in zip(times, times[1:], strict=False)]

    run(WARM)
    return {
        "milliseconds": 1e3 * statistics.median(run(a.steps)),
        "memory": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def output_of(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def time_program(a: argparse.Namespace, mixer: str) -> dict[str, Any]:
    """Milliseconds of a step of the C++ trainer."""
    program = Path(os.environ.get("HORNER_LIBRARY", "build/cuda")) / "horner"
    sizes = [word for name in SIZES for word in (f"--{name}", str(getattr(a, name)))]
    command = [str(program), "bench", "train", "--mixer", mixer, *sizes, "--rounds", "1", "--device", a.device, "--json"]
    row: dict[str, Any] = output_of(command)["rows"][0]
    why = row["failure"] or (row["graph_failure"] if a.device != "cpu" else "")
    if why:
        sys.exit(f"{mixer}: the program has no time: {why}")
    return row | {"milliseconds": row["graph_milliseconds"] or row["milliseconds"]}


def compare(a: argparse.Namespace, mixer: str) -> dict[str, Any]:
    """Both sides in turn."""
    python = [sys.executable, __file__, *sys.argv[1:], "--once", mixer]
    turns = [(time_program(a, mixer), output_of(python)) for _ in range(a.rounds)]
    cpp, own = (min(side, key=lambda x: x["milliseconds"]) for side in zip(*turns, strict=True))
    if cpp["parameters"] != own["parameters"]:
        sys.exit(f"{mixer}: {own['parameters']} parameters in Python, {cpp['parameters']} in C++: not the same model")
    return {
        "mixer": mixer, "parameters": own["parameters"], "cpp_milliseconds": cpp["milliseconds"],
        "python_milliseconds": own["milliseconds"], "ratio": own["milliseconds"] / cpp["milliseconds"],
        "cpp_memory": cpp["memory"], "python_memory": own["memory"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixer", default="softmax,gla", help="mixers, separated by commas; settings by ; in place of ,")
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--most", type=float, default=1.05, help="the largest ratio that is no failure")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", help=argparse.SUPPRESS)  # one turn of Python, which prints its own time
    a = parser.parse_args()
    if a.once:
        print(json.dumps(time_python(a, a.once)))
        return 0
    rows = [compare(a, mixer.replace(";", ",")) for mixer in a.mixer.split(",")]
    if a.json:
        print(json.dumps({"device": a.device, "sizes": {name: getattr(a, name) for name in SIZES}, "rows": rows}))
    else:
        print("mixer  parameters  C++ ms  Python ms  ratio  C++ GiB  Python GiB")
        for r in rows:
            memory = f"{r['cpp_memory'] / 2**30:.1f}  {r['python_memory'] / 2**30:.1f}"
            print(f"{r['mixer']}  {r['parameters'] / 1e6:.1f} M  {r['cpp_milliseconds']:.2f}  "
                  f"{r['python_milliseconds']:.2f}  {r['ratio']:.3f}  {memory}")
    return 4 if any(r["ratio"] > a.most for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
