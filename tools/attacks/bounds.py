"""Settings beyond every bound: refused at once, in one line, with nothing written."""

import tempfile
from pathlib import Path

from attacks import target

NAME = "bounds"
WHAT = "settings out of range (no width, 10^9 layers or tokens, NaN, empty and climbing names); refused in one line within seconds, nothing written"
SECONDS = 20  # of a processor; most take one
TASK = "mqar:T=20,pairs=3,vocabulary=64"
TRAIN = ["train", "--task", TASK, "--device", "cpu", "--schedule.steps", "2", "--train.batch", "2", "--eval.examples", "4"]
COMPARE = ["compare", "softmax", "--task", TASK, "--device", "cpu", "--seeds", "1", "--schedule.steps", "2"]

# What is asked, and a part of the line that must come; OUT is an empty folder.
CASES = [
    ([*TRAIN, "--out", "OUT", "--optim.eps", "-1"], "optim.eps must be above 0, got -1"),
    ([*TRAIN, "--out", "OUT", "--optim.eps", "nan"], 'optim.eps must be a number, got "nan"'),
    ([*TRAIN, "--out", "OUT", "--optim.lr", "inf"], "optim.lr must be at least 0, got inf"),
    ([*TRAIN, "--out", "OUT", "--optim.weight_decay", "-5"], "optim.weight_decay must be at least 0, got -5"),
    ([*TRAIN, "--out", "OUT", "--schedule.decay", "nan"], 'schedule.decay must be a number, got "nan"'),
    ([*TRAIN, "--out", "OUT", "--schedule.final_lr", "-3"], "schedule.final_lr must be at least 0, got -3"),
    ([*TRAIN, "--out", "OUT", "--train.window.probability", "7"], "train.window.probability must lie in [0,1], got 7"),
    ([*TRAIN, "--out", "OUT", "--train.window.short_window", "0"], "train.window.short_window must be at least 1, got 0"),
    ([*TRAIN, "--out", "OUT", "--train.target", "nan"], 'train.target must be a number, got "nan"'),
    ([*TRAIN, "--out", "OUT", "--eval.batch", "-1"], "eval.batch must be at least 0, got -1"),
    ([*TRAIN, "--out", "OUT", "--eval.lengths", "0"], "eval.lengths must be at least 1, got 0"),
    ([*TRAIN, "--out", ""], "out must name a folder"),
    ([*TRAIN, "--out", "OUT", "--name", ".."], "name must be the name of a folder below out"),
    ([*TRAIN, "--out", "OUT", "--name", "a/../../b"], "name must be the name of a folder below out"),
    ([*TRAIN, "--out", "OUT", "--model.D", "0"], "D must be at least 1, got 0"),
    ([*TRAIN, "--out", "OUT", "--model.D", "100000000"], "[model] D must be at most 1048576, got 100000000"),
    ([*TRAIN, "--out", "OUT", "--model.layers", "1000000000"], "[model] layers must be at most 65536, got 1000000000"),
    ([*TRAIN, "--out", "OUT", "--model.layers", "1000000000", "--dry-run"], "[model] layers must be at most 65536"),
    ([*TRAIN, "--out", "OUT", "--model.layers", "65000", "--model.D", "4096"], "need at least"),
    ([*TRAIN, "--out", "OUT", "--model.positions", "2000000000"], "[model] positions must be at most 1073741824"),
    ([*TRAIN, "--out", "OUT", "--model.pattern", "taylor:order=100000000"], "order must lie in 0 .. 64, got 100000000"),
    ([*TRAIN, "--out", "OUT", "--name", "a\nb"], 'name must have no control character, and no blank at its ends, got "a\\nb"'),
    ([*TRAIN, "--out", "OUT", "--name", " "], "name must have no control character"),
    (["train", "--task", "induction:T=60000000", "--device", "cpu", "--out", "OUT"], "need at least"),
    (["train", "--task", "icl_linear:n=100000,d=1000000", "--device", "cpu", "--out", "OUT"], "need at least"),
    (["train", "--task", "mqar_stacked:T=1000000000", "--device", "cpu", "--out", "OUT"], "[mqar_stacked] T must be at most 67108864"),
    (["train", "--task", "mqar_comp:T=1000000000", "--dry-run", "--device", "cpu"], "[mqar_comp] T must be at most 67108864"),
    (["train", "--task", "mqar_stacked:vocabulary=60000000,e=100", "--dry-run"], "the vectors of all ids must have at most 67108864"),
    (["train", "--task", "mqar:train=1000000000", "--dry-run"], "[mqar] train must be at most 67108864, got 1000000000"),
    (["train", "--task", "listops:train=1000000000", "--device", "cpu", "--out", "OUT"], "[listops] train must be at most"),
    (["train", "--task", "pathfinder:distractors=60000000", "--dry-run"], "[pathfinder] distractors must be at most 1024"),
    (["train", "--task", "pathfinder:antialias=60000000", "--dry-run"], "[pathfinder] antialias must be at most 16"),
    (["train", "--task", "icl_linear:steps=60000000", "--dry-run"], "[icl_linear] steps must be 1 .. 10000"),
    (["train", "list"], "takes no argument 'list'"),
    (["list", "train"], "takes no argument 'train'"),
    ([*COMPARE, "--out", "OUT", "--speed_lengths", "0"], "speed_lengths must be at least 1, got 0"),
    ([*COMPARE, "--out", "OUT", "--speed_lengths", "128,1000000000"], "speed_lengths: 1000000000 tokens"),
    ([*COMPARE, "--out", ""], "out must name a folder"),
    ([*COMPARE, "--out", "OUT", "--model.layers", "1000000000"], "[model] layers must be at most 65536"),
    (["compare", "softmax", "--seeds", "1000000000", "--dry-run"], "are 1000000000 runs; at most 10000"),
    (["compare", "softmax", "--seeds", "9223372036854775807", "--seed", "5", "--dry-run"], "runs; at most 10000"),
    (["compare", "softmax", "--seeds", "1", "--seed", "9223372036854775807", "--dry-run"], "seed must be at most"),
    ([*COMPARE, "--out", "OUT", "--jobs", "-1"], "jobs must be at least 0, got -1"),
    (["reproduce", "dsf", "--seeds", "1000000000", "--runs", "OUT"], "[reproduce] seeds must be at most 1000, got 1000000000"),
    (["reproduce", "dsf", "--minutes", "nan", "--runs", "OUT"], "minutes must be a number, got"),
    (["bench", "train", "--mixer", "softmax", "--layers", "1000000000", "--device", "cpu"], "[model] layers must be at most 65536"),
    (["bench", "train", "--mixer", "softmax", "--T", "1000000000", "--device", "cpu"], "need at least"),
    (["bench", "generate", "OUT", "--context", "1000000000000000000"], "--context must lie in 1 .. 16777216"),
    (["bench", "generate", "OUT", "--steps", "9223372036854775807"], "--steps must lie in 1 .. 16777216"),
    (["bench", "generate", "OUT", "--streams", "1000000000"], "--streams must lie in 1 .. 4096"),
    (["theory", "--repeats", "1000000000000"], "repeats must be 16 .. 1000000, got 1000000000000"),
    (["verify", "--mixer", "gla", "--D", "100000000"], "D must be at most 1024, got 100000000"),
    (["serve", "OUT", "--request_seconds", "0"], "request_seconds must lie in 1 .. 86400, got 0"),
    (["serve", "OUT", "--write_seconds", "-1"], "write_seconds must lie in 1 .. 86400, got -1"),
    (["serve", "OUT", "--drain_seconds", "-1"], "drain_seconds must lie in 0 .. 86400, got -1"),
    (["serve", "OUT", "--connections", "1000000000"], "connections must lie in 1 .. 65536"),
    (["serve", "OUT", "--body", "99999999999999999"], "body must lie in 1 .. 65536"),
    (["serve", "OUT", "--streams", "1000000000"], "streams must lie in 1 .. 65536"),
    (["serve", "OUT", "--queue", "1000000000"], "queue must lie in 1 .. 1000000"),
    (["serve", "OUT", "--cache", "99999999999999999"], "cache must lie in 0 .. 1000000000"),
    (["explain", "softmax", "--D", "0"], "D must be in 1 .. 16384, got 0"),
    (["explain", "softmax", "--T", "1000000000"], "T must be in 2 .. 1024, got 1000000000"),
    (["explain", "taylor:order=100000000"], "order must lie in 0 .. 64, got 100000000"),
    (["explain", "softmax:position.kind=selective_rope,position.temperature_max=nan", "--D", "16", "--T", "8"],
     'position.temperature_max must be a number, got "nan"'),
    (["explain", "softmax:position.kind=selective_rope,position.temperature_max=inf", "--D", "16", "--T", "8"],
     "position.temperature_max must be at least 0, got inf"),
    (["verify", "--op", "linear", "--K", "0"], "K must be at least 1, got 0"),
    (["verify", "--op", "linear", "--K", "1000000000"], "K must be at most 1024, got 1000000000"),
    (["verify", "--op", "power", "--T", "1000000000"], "B H T T must be at most"),
]


def attempt(words: list[str], expected: str) -> str:
    """Nothing if the words are refused as they must be; else what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        begun = target.processor_seconds()
        done = target.run([str(target.program()), *(str(out) if word == "OUT" else word for word in words)],
                          cwd=folder)
        taken = target.processor_seconds() - begun
        wrong = target.one_line(done)
        if wrong:
            return wrong
        if expected not in done.stderr:
            return f"another reason: {done.stderr.strip()!r}"
        if any(Path(folder).iterdir()):
            return "something was written"
        return f"took {taken:.0f} s of a processor" if taken > SECONDS else ""


def run() -> tuple[int, list[str]]:
    tries, failures = 0, []
    for words, expected in target.in_time(CASES):
        tries += 1
        wrong = attempt(words, expected)
        if wrong:
            failures.append(f"horner {' '.join(words)}: {wrong}")
    return tries, failures
