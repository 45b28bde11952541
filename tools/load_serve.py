#!/usr/bin/env python3
"""Load for a server of OpenAI's API on this machine: N clients that stream texts one after the other.

    tools/load_serve.py http://127.0.0.1:8080 --clients 16 --seconds 600

Prints JSON: texts, tokens per second, and the 50th and 99th percentile of the time to the first token and between tokens.
Each client's prompts differ from those of the others, so that nothing is known beforehand; --same makes them equal.
"""

import argparse
import http.client
import json
import threading
import time
import urllib.parse

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
        self.texts = self.tokens = self.errors = 0

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
                "seed": turn, "temperature": 0.8, "ignore_eos": True, "stream_options": {"include_usage": True}}
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
            if chunk["choices"] and chunk["choices"][0].get("text"):
                now = time.monotonic()
                (self.between if seen else self.first).append(now - last)
                last, seen = now, True
        self.texts += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt_words", type=int, default=64)
    parser.add_argument("--same", action="store_true")
    options = parser.parse_args()
    address = urllib.parse.urlparse(options.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    connection.request("GET", "/v1/models")
    model = json.loads(connection.getresponse().read())["data"][0]["id"]
    begin = time.monotonic()
    clients = [Client(i, options, model, begin + options.seconds) for i in range(options.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    seconds = time.monotonic() - begin
    first = [x for client in clients for x in client.first]
    between = [x for client in clients for x in client.between]
    tokens = sum(client.tokens for client in clients)
    print(json.dumps({
        "model": model, "clients": options.clients, "seconds": round(seconds, 1), "tokens_of_a_text": options.tokens,
        "words_of_a_prompt": options.prompt_words, "texts": sum(client.texts for client in clients),
        "errors": sum(client.errors for client in clients), "tokens_per_second": round(tokens / seconds, 2),
        "first_token_seconds": {"p50": percentile(first, 0.5), "p99": percentile(first, 0.99)},
        "next_token_seconds": {"p50": percentile(between, 0.5), "p99": percentile(between, 0.99)}}, indent=1))


if __name__ == "__main__":
    main()
