#!/usr/bin/env python3
"""Load for a server of OpenAI's API on this machine: N clients that stream texts one after the other.

    tools/load_serve.py http://127.0.0.1:8080 --clients 16 --seconds 600
    tools/load_serve.py http://127.0.0.1:8080 --clients 16 --program "horner serve" --into docs/results/serve.json

Prints JSON: texts, tokens per second, and the 50th and 99th percentile of the time to the first token and between tokens.
--into also adds it to a file of such runs and writes the table of all of them beside it, as Markdown.
Each client's prompts differ from those of the others, so that nothing is known beforehand; --same makes them equal. Many clients need
several --processes: one of Python parses about 20,000 events a second.
"""

import argparse
import datetime
import http.client
import json
import multiprocessing
import os
import platform
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

WORDS = "river stone light winter garden letter engine silver market window".split()


def percentile(values: list[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


class Client(threading.Thread):
    def __init__(self, number: int, options: argparse.Namespace, model: str, until: float) -> None:
        super().__init__()
        self.number, self.options, self.model, self.until = number, options, model, until
        self.first: list[float] = []
        self.between: list[float] = []
        self.texts = self.tokens = self.prompt_tokens = self.errors = 0

    def prompt(self, turn: int) -> str:
        start = 0 if self.options.same else self.number * 1009 + turn * 31
        return " ".join(WORDS[(start // 10 ** (i % 5) + i) % 10] for i in range(self.options.prompt_words))

    def run(self) -> None:
        address = urllib.parse.urlparse(self.options.url)
        turn = 0
        while time.monotonic() < self.until:
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
            try:
                self.text(connection, turn)
            except (OSError, http.client.HTTPException, ValueError):
                self.errors += 1
                time.sleep(0.1)
            finally:
                connection.close()
            turn += 1

    def text(self, connection: http.client.HTTPConnection, turn: int) -> None:
        body = {"model": self.model, "prompt": self.prompt(turn), "max_tokens": self.options.tokens, "stream": True,
                "seed": turn, "temperature": self.options.temperature, "ignore_eos": True, "top_k": 0, "top_p": 1, "min_p": 0,
                "stream_options": {"include_usage": True}}
        last = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(answer.read())
        seen = False
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("usage"):
                self.tokens += chunk["usage"]["completion_tokens"]
                self.prompt_tokens += chunk["usage"]["prompt_tokens"]
            if chunk["choices"] and chunk["choices"][0].get("text"):
                now = time.monotonic()
                (self.between if seen else self.first).append(now - last)
                last, seen = now, True
        self.texts += 1


def load(options: argparse.Namespace, model: str, numbers: range) -> dict[str, Any]:
    """What the clients of these numbers measured, all in this process."""
    clients = [Client(i, options, model, time.monotonic() + options.seconds) for i in numbers]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return {"first": [x for client in clients for x in client.first],
            "between": [x for client in clients for x in client.between],
            "count": {name: sum(getattr(client, name) for client in clients)
                      for name in ("texts", "tokens", "prompt_tokens", "errors")}}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    address = urllib.parse.urlparse(options.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    connection.request("GET", "/v1/models")
    about = json.loads(connection.getresponse().read())["data"][0]
    shares = [range(i, options.clients, options.processes) for i in range(options.processes)]
    begin = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        parts = pool.starmap(load, [(options, about["id"], share) for share in shares])
    seconds = time.monotonic() - begin
    first = [x for part in parts for x in part["first"]]
    between = [x for part in parts for x in part["between"]]
    count = {name: sum(part["count"][name] for part in parts) for name in parts[0]["count"]}
    return {
        "program": options.program or about["id"], "computed_by": about.get("computed_by", ""),
        "machine": options.machine or f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "clients": options.clients, "seconds": round(seconds, 1), "tokens_of_a_text": options.tokens,
        "temperature": options.temperature, "texts": count["texts"], "errors": count["errors"],
        "tokens_of_a_prompt": round(count["prompt_tokens"] / max(count["texts"], 1), 1),
        "tokens_per_second": round(count["tokens"] / seconds, 2),
        "first_token_seconds": {"p50": percentile(first, 0.5), "p99": percentile(first, 0.99)},
        "next_token_seconds": {"p50": percentile(between, 0.5), "p99": percentile(between, 0.99)}}


def table(runs: list[dict[str, Any]]) -> str:
    head = ["program", "machine", "clients", "seconds", "texts", "errors", "tokens/s", "first token, ms: p50", "p99",
            "between tokens, ms: p50", "p99", "prompt, text (tokens)", "temperature", "date"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for run in runs:
        times = [run[name][p] for name in ("first_token_seconds", "next_token_seconds") for p in ("p50", "p99")]
        cells = [run["program"], run["machine"], run["clients"], round(run["seconds"]), run["texts"], run["errors"],
                 f"{run['tokens_per_second']:.0f}", *("-" if t is None else f"{1000 * t:.0f}" for t in times),
                 f"{run['tokens_of_a_prompt']:.0f}, {run['tokens_of_a_text']}", run["temperature"], run["date"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt_words", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--program", help="name in the table")
    parser.add_argument("--machine", help="name in the table")
    parser.add_argument("--into", type=Path, help="JSON file of runs, to which this one is added")
    options = parser.parse_args()
    run = measure(options)
    print(json.dumps(run, indent=1))
    if options.into:
        runs = json.loads(options.into.read_text()) if options.into.exists() else []
        options.into.write_text(json.dumps([*runs, run], indent=1) + "\n")
        options.into.with_suffix(".md").write_text(
            "Clients that stream texts one after the other, `tools/load_serve.py`. The model is SmolLM2-135M (Q4_1 with a Q8_0 head).\n\n"
            + table([*runs, run]))


if __name__ == "__main__":
    main()
