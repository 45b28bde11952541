"""Examples of the tasks by another hand: plain Python, written from the specification's layouts.

    python tools/task_goldens.py            writes src/tasks/goldens.json
    python tools/task_goldens.py --check    compares it with what is there

A row holds a task with its settings, split (0 train, 1 valid, 2 test), index, tokens, and targets
(-100: none) or label. Examples must never change: runs of yesterday could not be repeated.
"""

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any, Callable

FILE = Path(__file__).resolve().parent.parent / "src/tasks/goldens.json"
SEED, NONE, MASK = 1234, -100, 0xFFFFFFFF
Example = tuple[list[int], list[int]]


class Random:
    """Philox4x32-10 with counter (block, index low, index high, split 65536 + stream)."""

    def __init__(self, split: int, index: int, stream: int = 0) -> None:
        self.counter = [0, index & MASK, index >> 32, split * 65536 + stream]
        self.words: list[int] = []

    def word(self) -> int:
        if not self.words:
            c, k0, k1 = list(self.counter), SEED & MASK, SEED >> 32
            for _ in range(10):
                p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK]
                k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
            self.words = c
            self.counter[0] += 1
        return self.words.pop(0)

    def integer(self, n: int) -> int:
        return self.word() * n >> 32

    def uni(self) -> float:
        return (self.word() + 0.5) / 2**32

    def distinct(self, n: int, m: int) -> list[int]:
        slots = list(range(n))
        for i in range(m):
            j = i + self.integer(n - i)
            slots[i], slots[j] = slots[j], slots[i]
        return slots[:m]

    def race(self, w: list[float], m: int) -> list[int]:
        e = [-math.log(self.uni()) / x for x in w]
        return sorted(range(len(w)), key=lambda i: e[i])[:m]


def mqar(r: Random, split: int, index: int, T: int, P: int, N: int, noise: bool) -> Example:
    tokens, targets = [0] * T, [NONE] * T
    keys = [1 + x for x in r.distinct(N // 2 - 1, P)]
    values = [N // 2 + x for x in r.distinct(N // 2, P)]
    g = r.race([(i + 1) ** (0.01 - 1) for i in range((T - 2 * P) // 2)], P)
    for j in range(P):
        tokens[2 * j], tokens[2 * j + 1] = keys[j], values[j]
        tokens[2 * P + 2 * g[j]], targets[2 * P + 2 * g[j]] = keys[j], values[j]
    other = Random(split, index, 1)
    return [t if t or not noise else other.integer(N) for t in tokens], targets


def copy(r: Random, G: int, M: int, A: int, selective: bool) -> Example:
    data = [1 + r.integer(A - 2) for _ in range(M)]
    places = sorted(r.distinct(G + M, M)) if selective else range(M)
    tokens = [0] * (G + M) + [A - 1] * M
    for place, token in zip(places, data):
        tokens[place] = token
    return tokens, [NONE] * (G + M) + data


def induction(r: Random, T: int, N: int) -> Example:
    p = r.integer(T - 2)
    tokens = [N - 1 if t in (p, T - 1) else r.integer(N - 1) for t in range(T)]
    return tokens, [NONE] * (T - 1) + [tokens[p + 1]]


def parity(r: Random, low: int, high: int, every: bool) -> Example:
    tokens = [1 + r.integer(2) for _ in range(low + r.integer(high - low + 1))]
    sums = [1 + sum(x - 1 for x in tokens[: t + 1]) % 2 for t in range(len(tokens))]
    return tokens, sums if every else [NONE] * (len(tokens) - 1) + sums[-1:]


def calculate(tokens: list[int]) -> Example:
    text = "".join("?+-*=01234()"[t] for t in tokens[:-1])
    return tokens, [NONE] * (len(tokens) - 1) + [5 + eval(text) % 5]


def modarith(r: Random, low: int, high: int) -> Example:
    numbers = -(-low // 2) + r.integer(high // 2 - -(-low // 2) + 1)
    tokens = [5 + r.integer(5)]
    for _ in range(numbers - 1):
        tokens += [1 + r.integer(3), 5 + r.integer(5)]
    return calculate(tokens + [4])


def brackets(r: Random, low: int, high: int, operators: int) -> Example:
    def number() -> list[int]:
        return [5 + r.integer(5)]

    def e(n: int) -> list[int]:
        if n <= 2:
            return [2] * (n - 1) + number()
        if n <= 4:
            return [10] + [2] * (n - 3) + number() + [11]
        a = 1 + r.integer(n - 4)
        return [10] + e(a) + [1 + r.integer(operators)] + e(n - a - 3) + [11]

    return calculate(e(low + r.integer(high - low + 1) - 1) + [4])


def s5(r: Random, k: int) -> Example:
    elements = list(itertools.permutations(range(5)))
    y, tokens, targets = elements[0], [1], [NONE]
    for _ in range(k):
        x = r.integer(120)
        y = tuple(elements[x][i] for i in y)  # y first, then x
        tokens.append(2 + x)
        targets.append(2 + elements.index(y))
    return tokens, targets


def needle(r: Random, T: int, m: int) -> Example:
    tokens = [0] * T
    keys = [16 + x for x in r.distinct(128, m)]
    values = [[144 + r.integer(128) for _ in range(4)] for _ in range(m)]
    last = T - 5 - 6
    places = [math.floor(10 * r.integer(11) * last / 100 + 0.5)]
    while len(places) < m:
        place = r.integer(last + 1)
        if all(abs(place - other) >= 6 for other in places):
            places.append(place)
    for place, key, v in zip(places, keys, values):
        tokens[place : place + 6] = [1, key, *v]
    tokens[-5:] = [2, keys[0], *values[0][:3]]
    return [t or 272 + r.integer(240) for t in tokens], [NONE] * (T - 4) + values[0]


def mad_noisy_recall(r: Random, T: int, noise: float) -> Example:
    value = [8 + r.integer(8) for _ in range(8)]
    tokens: list[int] = []
    targets: list[int] = []
    seen: list[int] = []
    for t in range(0, T, 2):
        last, need = t == T - 2, t == T - 4 and not seen
        if not last and not need and r.uni() < noise:
            tokens += [16 + r.integer(16), 16 + r.integer(16)]
            targets += [NONE, NONE]
            continue
        key = seen[r.integer(len(seen))] if last else r.integer(8)
        targets += [value[key] if key in seen else NONE, NONE]
        tokens += [key, value[key]]
        seen += [] if key in seen else [key]
    return tokens, targets


def listops(r: Random) -> tuple[list[int], int]:
    def tree(depth: int) -> tuple[list[int], int]:
        if depth == 10 or r.uni() > 0.25:
            digit = r.integer(10)
            return [1 + digit], digit
        children = [tree(depth + 1) for _ in range(2 + r.integer(9))]
        op, values = r.integer(4), sorted(value for _, value in children)
        n = len(values)
        median = (values[(n - 1) // 2] + values[n // 2]) // 2
        value = (values[0], values[-1], median, sum(values) % 10)[op]
        return [11 + op] + [t for tokens, _ in children for t in tokens] + [15], value

    while True:
        tokens, value = tree(1)
        if 500 < len(tokens) < 2000:
            return tokens, value


TASKS: dict[str, Callable[[Random, int, int], tuple[list[int], Any]]] = {
    "mqar:T=32,pairs=4,vocabulary=64": lambda r, s, i: mqar(r, s, i, 32, 4, 64, False),
    "mqar:T=32,pairs=8,vocabulary=64,noise=true": lambda r, s, i: mqar(r, s, i, 32, 8, 64, True),
    "copy:G=5,M=4,A=8": lambda r, s, i: copy(r, 5, 4, 8, False),
    "selective_copy:G=9,M=4,A=8": lambda r, s, i: copy(r, 9, 4, 8, True),
    "induction:T=24": lambda r, s, i: induction(r, 24, 16),
    "parity": lambda r, s, i: parity(r, *((40, 256) if s else (3, 40)), False),
    "cumparity": lambda r, s, i: parity(r, 4, 128, True),
    "modarith": lambda r, s, i: modarith(r, *((40, 256) if s else (3, 40))),
    "modarith_brackets": lambda r, s, i: brackets(r, *((40, 256) if s else (3, 40)), 2),
    "modarith_brackets:times=true": lambda r, s, i: brackets(r, *((40, 256) if s else (3, 40)), 3),
    "group:k=12": lambda r, s, i: s5(r, 12),
    "needle:T=64,m=3": lambda r, s, i: needle(r, 64, 3),
    "mad_noisy_recall:T=40,masked=true": lambda r, s, i: mad_noisy_recall(r, 40, 0.2),
    "listops": lambda r, s, i: listops(r),
}


def main() -> None:
    rows = []
    for task, make in TASKS.items():
        for split, index in ((0, 0), (0, 2**33 + 5), (2, 1)):
            if index > 2**32 and ("listops" in task or "mad" in task or "cumparity" in task):
                continue  # their training sets end before
            tokens, answer = make(Random(split, index), split, index)
            name = "label" if isinstance(answer, int) else "targets"
            row = {"task": task, "split": split, "index": index, "tokens": tokens, name: answer}
            rows.append(row)
    text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
    if "--check" in sys.argv:
        sys.exit(None if FILE.read_text() == text else f"{FILE.name} is not what this script makes")
    FILE.write_text(text)


if __name__ == "__main__":
    main()
