#!/usr/bin/env python3
"""Load for servers of OpenAI's API on this machine: N clients that stream texts one after the other.

    tools/load_serve.py "horner serve=http://127.0.0.1:8080" --clients 16 --seconds 600
    tools/load_serve.py "horner serve=http://127.0.0.1:8080" "llama.cpp=http://127.0.0.1:8081" --seconds 60 --rounds 10 --into docs/results/serve.json

At the end of its time a client leaves in the middle of its text.
Several servers take turns: --rounds times each is under load for --seconds, while the others are idle. So other work on the machine
slows all of them alike.
Prints JSON: texts, tokens per second, and the 50th and 99th percentile of the time to the first token and between tokens.
--into also adds it to a file of such runs and writes the page of all of them beside it, as Markdown; --instead takes the runs of
other machines out of that file first.
Each client's prompts differ from those of the others, so that nothing is known beforehand; --same makes them equal. Many clients need
several --processes: one of Python parses about 20,000 events a second. "clients_busy" is the share of its time that the busiest of
them computed; near 1 the clients bound the speed.
"""

import argparse
import datetime
import http.client
import json
import multiprocessing
import os
import platform
import shlex
import subprocess
import sys
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
    def __init__(self, number: int, options: argparse.Namespace, url: str, model: str, until: float) -> None:
        super().__init__()
        self.number, self.options, self.url, self.model, self.until = number, options, url, model, until
        self.first: list[float] = []
        self.between: list[float] = []
        self.texts = self.tokens = self.prompt_tokens = self.errors = 0

    def prompt(self, turn: int) -> str:
        start = 0 if self.options.same else self.number * 1009 + turn * 31
        return " ".join(WORDS[(start // 10 ** (i % 6) + i) % 10] for i in range(self.options.prompt_words))

    def run(self) -> None:
        address = urllib.parse.urlparse(self.url)
        turn = self.options.turn
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
        pieces = 0
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("usage"):
                self.tokens += chunk["usage"]["completion_tokens"]
                self.prompt_tokens += chunk["usage"]["prompt_tokens"]
            if chunk["choices"] and chunk["choices"][0].get("text"):
                now = time.monotonic()
                (self.between if pieces else self.first).append(now - last)
                last, pieces = now, pieces + 1
                if now > self.until:  # cut off; a piece is a token, except where a character has several
                    self.tokens += pieces
                    return
        self.texts += 1


def load(options: argparse.Namespace, url: str, model: str, numbers: range) -> dict[str, Any]:
    """What the clients of these numbers measured, all in this process."""
    begin, computed = time.monotonic(), time.process_time()
    clients = [Client(i, options, url, model, begin + options.seconds) for i in numbers]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return {"busy": (time.process_time() - computed) / (time.monotonic() - begin),
            "first": [x for client in clients for x in client.first],
            "between": [x for client in clients for x in client.between],
            "count": {name: sum(getattr(client, name) for client in clients)
                      for name in ("texts", "tokens", "prompt_tokens", "errors")}}


class Program:
    """A server, and what was measured of it so far."""

    def __init__(self, words: str) -> None:
        self.name, self.url = words.split("=", 1) if "=" in words.split("://")[0] else ("", words)
        address = urllib.parse.urlparse(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        connection.request("GET", "/v1/models")
        self.about = json.loads(connection.getresponse().read())["data"][0]
        self.first: list[float] = []
        self.between: list[float] = []
        self.count = dict.fromkeys(("texts", "tokens", "prompt_tokens", "errors"), 0)
        self.seconds = 0.0
        self.speeds: list[float] = []  # of each turn
        self.busy = 0.0  # the busiest process of clients

    def turn(self, options: argparse.Namespace) -> None:
        shares = [range(i, options.clients, options.processes) for i in range(options.processes)]
        begin = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            parts = pool.starmap(load, [(options, self.url, self.about["id"], share) for share in shares])
        seconds = time.monotonic() - begin
        for part in parts:
            self.busy = max(self.busy, part["busy"])
            self.first += part["first"]
            self.between += part["between"]
            for name in self.count:
                self.count[name] += part["count"][name]
        self.seconds += seconds
        self.speeds.append(sum(part["count"]["tokens"] for part in parts) / seconds)
        print(f"{self.name or self.about['id']}: {self.speeds[-1]:.1f} tokens/s", file=sys.stderr)

    def run(self, options: argparse.Namespace) -> dict[str, Any]:
        texts = self.count["texts"]
        return {
            "program": self.name or self.about["id"], "computed_by": self.about.get("computed_by", ""),
            "machine": options.machine or f"{platform.machine()}, {os.cpu_count()} cores",
            "note": options.note, "commit": options.commit,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command(),
            "clients": options.clients, "processes": options.processes, "clients_busy": round(self.busy, 3), "seconds": round(self.seconds, 1), "turns": len(self.speeds),
            "tokens_of_a_text": options.tokens, "temperature": options.temperature, "texts": texts, "errors": self.count["errors"],
            "tokens_of_a_prompt": round(self.count["prompt_tokens"] / max(texts, 1), 1),
            "tokens_per_second": round(self.count["tokens"] / self.seconds, 2),
            "tokens_per_second_of_turns": [round(speed, 2) for speed in self.speeds],
            "first_token_seconds": {"p50": percentile(self.first, 0.5), "p99": percentile(self.first, 0.99)},
            "next_token_seconds": {"p50": percentile(self.between, 0.5), "p99": percentile(self.between, 0.99)}}


def command() -> str:
    """As it was given, less what is for the page alone."""
    words = [word for last, word in zip(sys.argv, sys.argv[1:]) if not {"--note", "--commit", "--instead"} & {last, word}]
    return " ".join(["tools/load_serve.py", *map(shlex.quote, words)])


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    if not options.commit:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
        options.commit = head.stdout.strip()
    programs = [Program(words) for words in options.server]
    for options.turn in range(0, 1000 * options.rounds, 1000):  # the prompts of each turn are new
        for program in programs:
            program.turn(options)
    return [program.run(options) for program in programs]


def table(runs: list[dict[str, Any]]) -> str:
    head = ["program", "clients", "seconds", "texts", "errors", "tokens/s", "of turns", "first token, ms: p50", "p99",
            "between tokens, ms: p50", "p99"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for run in runs:
        times = [run[name][p] for name in ("first_token_seconds", "next_token_seconds") for p in ("p50", "p99")]
        speeds = run["tokens_per_second_of_turns"]
        cells = [run["program"], run["clients"], round(run["seconds"]), run["texts"], run["errors"], f"{run['tokens_per_second']:.0f}",
                 f"{min(speeds):.0f} to {max(speeds):.0f}", *("-" if t is None else f"{1000 * t:.0f}" for t in times)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def page(runs: list[dict[str, Any]]) -> str:
    """One section for the runs of each command."""
    text = ("# `horner serve` under load\n\nThis page says how fast `horner serve` writes for several clients at once. "
            "`tools/load_serve.py` measures it and writes this page.\n\n"
            "Each client streams one text after the other from `/v1/completions`. Its prompts are new each time. The first token is timed "
            "from the request; \"between tokens\" is the time from one piece of a text to the next. \"Of turns\" are the slowest and "
            "the fastest turn of a server.\n")
    for words in dict.fromkeys(run["command"] for run in runs):
        group = [run for run in runs if run["command"] == words]
        one = group[0]
        text += (f"\n## {one['machine']}, {one['clients']} clients, {one['date']}\n\n"
                 + (f"{one['note']}\n\n" if one["note"] else "")
                 + f"Prompts of {one['tokens_of_a_prompt']:.0f} tokens, texts of {one['tokens_of_a_text']}, temperature {one['temperature']}, "
                 f"commit {one['commit']}, {one['turns']} turns each:\n\n```text\n{words}\n```\n\n" + table(group))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="+", metavar="[NAME=]URL", help="they take turns")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60, help="of a turn")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each server")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt_words", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--machine", help="as the page names it")
    parser.add_argument("--note", default="", help="sentences of the page about this run")
    parser.add_argument("--commit", default="", help="of the servers, where there is no git")
    parser.add_argument("--instead", action="append", default=[], metavar="MACHINE", help="whose runs leave the file of --into")
    parser.add_argument("--into", type=Path, help="JSON file of runs, to which this one is added")
    options = parser.parse_args()
    measured = measure(options)
    print(json.dumps(measured, indent=1))
    if options.into:
        runs = json.loads(options.into.read_text()) if options.into.exists() else []
        runs = [run for run in runs if run["machine"] not in options.instead]
        options.into.write_text(json.dumps(runs + measured, indent=1) + "\n")
        options.into.with_suffix(".md").write_text(page(runs + measured))


if __name__ == "__main__":
    main()
