"""Times flash-linear-attention's functions for `horner bench ops --peers DIR`: one JSON line per row.

Each function runs in a process of its own, so that one which crashes is a row that says so."""

import argparse
import importlib.metadata
import json
import subprocess
import sys

# function -> (op, variant as `horner bench` names them, the key dims it is for)
FUNCTIONS = {
    "linear_attn chunk": ("linear", "no decay", (64, 128)),
    "simple_gla chunk": ("linear", "decay per head", (64, 128)),
    "gla chunk": ("linear", "decay per key", (64, 128)),
    "based fused_chunk": ("power", "order 2", (16,)),
    "based parallel": ("power", "order 2", (16,)),
    "gated_delta_rule chunk": ("delta", "decay per head", (64, 128)),
}
SECONDS = 60  # for one function at one shape; compiling its kernels is most of it


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
    if name == "gated_delta_rule chunk":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        g, beta = F.logsigmoid(normal(B, T, H).float()), normal(B, T, H).sigmoid()
        k = F.normalize(k, dim=-1)
        return (lambda q, k, v, g, beta: chunk_gated_delta_rule(q, k, v, g=g, beta=beta)[0],
                [q, k, v, g, beta])
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


def run_one(name, dims, repeats):
    import torch

    call, inputs = function(name, torch, *dims)
    leaves = [x.detach().requires_grad_(True) for x in inputs]
    grad = torch.randn_like(call(*inputs))
    row = {}

    def forward():
        with torch.no_grad():
            call(*inputs)

    def both():
        torch.autograd.grad(call(*leaves), leaves, grad)

    row["eager_forward_ms"] = measure(torch, forward, repeats)
    row["forward_ms"] = replayed(torch, forward, repeats)
    print(json.dumps(row), flush=True)
    row["eager_both_ms"] = measure(torch, both, repeats)
    row["both_ms"] = replayed(torch, both, repeats)
    print(json.dumps(row), flush=True)


def last_line(text, otherwise):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else otherwise


def time_row(arguments, name, shape, dims):
    op, variant, _ = FUNCTIONS[name]
    row = {"program": "fla", "op": op, "variant": variant, "shape": shape, "form": name,
           "forward_ms": None, "both_ms": None, "eager_forward_ms": None, "eager_both_ms": None,
           "failure": ""}
    command = [sys.executable, __file__, "--folder", arguments.folder, "--repeats",
               str(arguments.repeats), "--one", name, "--shapes", "x".join(map(str, dims))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        output, code, errors = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as late:
        output, code, errors = (late.stdout or b"").decode(), 1, f"took more than {SECONDS} s"
    rows = [line for line in output.splitlines() if line.startswith("{")]
    if rows:
        row.update(json.loads(rows[-1]))
    if code != 0:
        row["failure"] = last_line(errors, f"ended with status {code}")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="folder that holds the package fla")
    parser.add_argument("--shapes", required=True, help="NAME:BxTxHxKxV,..")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--one", help="run this function in this process")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.folder)
    if arguments.one:
        run_one(arguments.one, [int(n) for n in arguments.shapes.split("x")], arguments.repeats)
        return
    import torch
    import triton
    try:
        fla = importlib.metadata.version("flash-linear-attention")
    except importlib.metadata.PackageNotFoundError:
        fla = "of unknown version"
    versions = [f"fla {fla}", f"torch {torch.__version__}", f"triton {triton.__version__}"]
    print(json.dumps({"versions": versions}), flush=True)
    for part in arguments.shapes.split(","):
        shape, text = part.split(":")
        dims = [int(n) for n in text.split("x")]
        for name, (_, _, widths) in FUNCTIONS.items():
            if dims[3] in widths:
                print(json.dumps(time_row(arguments, name, shape, dims)), flush=True)


if __name__ == "__main__":
    main()
