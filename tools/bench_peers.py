"""Times flash-linear-attention's functions for `horner bench ops --peers DIR`: one JSON line per row.

A function runs in a process of its own, so that one which crashes is a row that says so. All are compiled first,
side by side; then they are timed, one after the other."""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time

# function -> (op, variant as `horner bench` names them, the key dims it is for)
FUNCTIONS = {
    "linear_attn chunk": ("linear", "no decay", (64, 128)),
    "simple_gla chunk": ("linear", "decay per head", (64, 128)),
    "gla chunk": ("linear", "decay per key", (64, 128)),
    "based fused_chunk": ("power", "order 2", (16,)),
    "based parallel": ("power", "order 2", (16,)),
    "delta_rule chunk": ("delta", "no decay", (64, 128)),
    "gated_delta_rule chunk": ("delta", "decay per head", (64, 128)),
    "kda chunk": ("delta", "decay per key", (64, 128)),
}
COMPILE_SECONDS = 240  # for all of them together: their autotuning compiles many variants
SECONDS = 40  # for one function at one shape


def function(name, torch, B, T, H, K, V):
    """(callable of the inputs, inputs), as the library wants them laid out."""
    import torch.nn.functional as F

    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    q, k, v = normal(B, T, H, K), normal(B, T, H, K), normal(B, T, H, V)
    if name == "linear_attn chunk":
        from fla.ops.linear_attn import chunk_linear_attn
        return lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False)[0], [q, k, v]
    if name == "simple_gla chunk":
        from fla.ops.simple_gla import chunk_simple_gla
        g = F.logsigmoid(normal(B, T, H).float())
        return lambda q, k, v, g: chunk_simple_gla(q, k, v, g=g)[0], [q, k, v, g]
    if name == "gla chunk":
        from fla.ops.gla import chunk_gla
        g = F.logsigmoid(normal(B, T, H, K)) / 16
        return lambda q, k, v, g: chunk_gla(q, k, v, g)[0], [q, k, v, g]
    if name == "delta_rule chunk":
        from fla.ops.delta_rule import chunk_delta_rule
        beta = normal(B, T, H).sigmoid()
        k = F.normalize(k, dim=-1)
        return lambda q, k, v, beta: chunk_delta_rule(q, k, v, beta=beta)[0], [q, k, v, beta]
    if name == "gated_delta_rule chunk":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        g, beta = F.logsigmoid(normal(B, T, H).float()), normal(B, T, H).sigmoid()
        k = F.normalize(k, dim=-1)
        return (lambda q, k, v, g, beta: chunk_gated_delta_rule(q, k, v, g=g, beta=beta)[0],
                [q, k, v, g, beta])
    if name == "kda chunk":
        from fla.ops.kda import chunk_kda
        g, beta = F.logsigmoid(normal(B, T, H, K).float()) / 16, normal(B, T, H).sigmoid()
        k = F.normalize(k, dim=-1)
        return lambda q, k, v, g, beta: chunk_kda(q, k, v, g, beta)[0], [q, k, v, g, beta]
    if name == "based fused_chunk":
        from fla.ops.based import fused_chunk_based
        return lambda q, k, v: fused_chunk_based(q, k, v, use_norm=True), [q, k, v]
    from fla.ops.based import parallel_based
    return lambda q, k, v: parallel_based(q, k, v, use_norm=True), [q, k, v]


def summary(ms):
    ms = sorted(ms)

    def at(share):
        return ms[int(share * (len(ms) - 1) + 0.5)]

    return {"median": at(0.5), "p10": at(0.1), "p90": at(0.9)}


def measure(torch, work, repeats):
    flush = torch.empty(1 << 26, device="cuda")  # 256 MB
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ms = []
    for i in range(repeats + 5):
        flush.fill_(i)
        start.record()
        work()
        end.record()
        end.synchronize()
        if i >= 5:
            ms.append(start.elapsed_time(end))
    return summary(ms)


def replayed(torch, work, repeats):
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return measure(torch, graph.replay, repeats)
    except RuntimeError:
        return None


def run_one(name, row, repeats):
    """Times of one function at one shape, as a dictionary; repeats = 0: it is called once and not timed."""
    import torch

    call, inputs = function(name, torch, *row["dims"])
    leaves = [x.detach().requires_grad_(True) for x in inputs]
    grad = torch.randn_like(call(*inputs))
    times = {}

    def forward():
        with torch.no_grad():
            call(*inputs)

    def both():
        torch.autograd.grad(call(*leaves), leaves, grad)

    try:
        if repeats == 0:
            both()
            return times
        times["eager_forward_ms"] = measure(torch, forward, repeats)
        times["forward_ms"] = replayed(torch, forward, repeats)
        times["eager_both_ms"] = measure(torch, both, repeats)
        times["both_ms"] = replayed(torch, both, repeats)
    except Exception as error:  # the backward is refused where Triton would get it wrong
        times["failure"] = reason(error)
    return times


def run_all(name, rows, repeats):
    for row in rows:
        try:
            times = run_one(name, row, repeats)
        except Exception as error:
            times = {"failure": reason(error)}
        print(json.dumps({"shape": row["shape"], **times}), flush=True)


def reason(error):
    """A CUDA error's first line names it, the others give advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def last_line(text, otherwise):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else otherwise


def command(arguments, name, rows, repeats):
    return [sys.executable, __file__, "--folder", arguments.folder, "--repeats", str(repeats),
            "--one", name, "--rows", json.dumps(rows)]


def blank(name, row):
    op, variant, _ = FUNCTIONS[name]
    return {"program": "fla", "op": op, "variant": variant, "shape": row["shape"], "form": name,
            "forward_ms": None, "both_ms": None, "eager_forward_ms": None, "eager_both_ms": None,
            "failure": ""}


def time_function(arguments, name, rows):
    """One line per row; after a crash the rest goes on in a new process."""
    while rows:
        try:
            done = subprocess.run(command(arguments, name, rows, arguments.repeats),
                                  capture_output=True, text=True, timeout=SECONDS * len(rows))
            output, errors = done.stdout, last_line(done.stderr, f"status {done.returncode}")
        except subprocess.TimeoutExpired as late:
            output, errors = (late.stdout or b"").decode(), f"took more than {SECONDS} s"
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        lines = lines + [{"failure": errors}] if len(lines) < len(rows) else lines
        for row, line in zip(rows, lines):
            print(json.dumps({**blank(name, row), **line}), flush=True)
        rows = rows[len(lines):]


def compile_all(arguments, jobs):
    """A process for every function and width of its heads; returns the (function, widths) that did not get done."""
    processes = {}
    for name, rows in jobs.items():
        by_width = {tuple(row["dims"][3:]): row for row in reversed(rows)}
        for width, row in by_width.items():
            processes[name, width] = subprocess.Popen(
                command(arguments, name, [row], 0),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + COMPILE_SECONDS
    late = set()
    for job, process in processes.items():
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            late.add(job)
    return late


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="folder that holds the package fla")
    parser.add_argument("--rows", required=True,
                        help='[{"op", "variant", "shape", "dims": [B, T, H, K, V]}, ..]')
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--one", help="run this function in this process")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.folder)
    os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")  # what compiling found is kept
    rows = json.loads(arguments.rows)
    if arguments.one:
        run_all(arguments.one, rows, arguments.repeats)
        return
    import torch
    import triton
    try:
        fla = importlib.metadata.version("flash-linear-attention")
    except importlib.metadata.PackageNotFoundError:
        fla = "of unknown version"
    versions = [f"fla {fla}", f"torch {torch.__version__}", f"triton {triton.__version__}"]
    print(json.dumps({"versions": versions}), flush=True)
    jobs = {}
    for name, (op, variant, widths) in FUNCTIONS.items():
        fits = [row for row in rows
                if (row["op"], row["variant"]) == (op, variant) and row["dims"][3] in widths]
        if fits:
            jobs[name] = fits
    late = compile_all(arguments, jobs)
    for name, fits in jobs.items():
        time_function(arguments, name, [row for row in fits if (name, tuple(row["dims"][3:])) not in late])
        for row in fits:
            if (name, tuple(row["dims"][3:])) in late:
                failure = f"was not compiled after {COMPILE_SECONDS} s (what was is kept: try again)"
                print(json.dumps({**blank(name, row), "failure": failure}), flush=True)


if __name__ == "__main__":
    main()
