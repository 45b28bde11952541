"""Files made to exhaust stack, memory or time: refused in one line, in time that grows as their size does."""

import gzip
import json
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from attacks import target

NAME = "hostile-files"
WHAT = "TOML 20,000 deep, JSON 200,000 deep, headers of 80,000 names, 200,000 keys, a gzip bomb, a pipe, a tokenizer that doubles text; refused in one line within seconds"
SECONDS = 20  # of a processor; most take one


def toml(text: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder / "run.toml").write_text(text)
        return ["train", "--config", str(folder / "run.toml"), "--dry-run"]
    return make


def config(text: str) -> Callable[[Path], list[str]]:
    """The config.json of a model."""
    def make(folder: Path) -> list[str]:
        (folder / "config.json").write_text(text)
        return ["explain", "--checkpoint", str(folder)]
    return make


def many_names(folder: Path) -> list[str]:
    header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(80_000)}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(80_000))
    (folder / "config.json").write_text(json.dumps({"horner": {"layers": 1, "D": 8}}))
    return ["explain", "--checkpoint", str(folder)]


def bomb(folder: Path) -> list[str]:
    with gzip.open(folder / "text.txt.gz", "wb") as file:
        for _ in range(512):
            file.write(bytes(1 << 20))
    return ["train", "--task", f"byte:data={folder / 'text.txt.gz'}", "--dry-run"]


def pipe(folder: Path) -> list[str]:
    """Nobody writes into it."""
    os.mkfifo(folder / "text.txt")
    return ["train", "--task", f"byte:data={folder / 'text.txt'}", "--dry-run"]


def doubling(folder: Path) -> list[str]:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": model, "normalizer": {"type": "Sequence", "normalizers": [step] * 40}}))
    (folder / "text.txt").write_text("ab" * 1000)
    return ["train", "--task", f"bpe:data={folder / 'text.txt'},tokenizer={folder / 'tokenizer.json'}", "--dry-run"]


def deep(opens: str, closes: str, n: int) -> str:
    return opens * n + "1" + closes * n


CASES: list[tuple[str, Callable[[Path], list[str]], str]] = [
    ("key of 20,000 parts", toml(".".join("a" * 20_000) + " = 1\n"), "is nested deeper than 16"),
    ("table of 20,000 parts", toml("[" + ".".join("a" * 20_000) + "]\n"), "is nested deeper than 16"),
    ("inline tables in each other", toml("x = " + deep("{a.a.a.a.a.a = ", "}", 200) + "\n"), "is nested deeper than 16"),
    ("lists in each other", toml("x = " + deep("[", "]", 100_000) + "\n"), "run.toml:1: is nested deeper than 16"),
    ("TOML of 200,000 keys", toml("".join(f"k{i} = {i}\n" for i in range(200_000))), "unknown key 'k0'"),
    ("lists 200,000 deep", config(deep("[", "]", 200_000)), "is nested deeper than 100"),
    ("objects 200,000 deep", config(deep('{"horner":', "}", 200_000)), "is nested deeper than 100"),
    ("JSON of 200,000 keys", config(json.dumps({f"k{i}": i for i in range(200_000)})), "has no model_type"),
    ("header of 80,000 names", many_names, "unknown tensor 'embedding'"),
    ("gzip bomb", bomb, "refused beyond 100"),
    ("a pipe without a writer", pipe, "text.txt: is not a file"),
    ("tokenizer of doubling steps", doubling, "more than 16 times as long"),
]


def attempt(make: Callable[[Path], list[str]], expected: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        words = [str(target.program()), *make(Path(folder))]
        begun = target.processor_seconds()
        done = target.run(words)
        taken = target.processor_seconds() - begun
    wrong = target.one_line(done)
    if wrong:
        return wrong
    if expected not in done.stderr:
        return f"another reason: {done.stderr.strip()[:300]!r}"
    return f"took {taken:.0f} s of a processor" if taken > SECONDS else ""


def run() -> tuple[int, list[str]]:
    wrong = [(name, attempt(make, expected)) for name, make, expected in target.in_time(CASES)]
    return len(wrong), [f"{name}: {line}" for name, line in wrong if line]
