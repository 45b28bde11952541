"""horner serve: texts, chats, log-probabilities, forms, curl, the load generator."""

import concurrent.futures
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving import PROGRAM, ROOT, Server

sys.path.insert(0, str(ROOT / "tools"))
import load_serve  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def test_small_answers(server: Server) -> None:
    assert server.ask("GET", "/health") == {"status": "ok"}
    (model,) = server.ask("GET", "/v1/models")["data"]
    assert model["id"] == "tiny" and model["object"] == "model" and model["chat"] is True
    tokens = server.post("/tokenize", prompt="Héllo", add_special_tokens=False)["tokens"]
    assert tokens == list("Héllo".encode())
    assert server.post("/detokenize", tokens=tokens) == {"prompt": "Héllo", "content": "Héllo"}
    text = server.post("/apply-template", messages=[{"role": "user", "content": "Hi"}])["prompt"]
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    info = server.ask("GET", "/tokenizer_info")
    assert {"eos_token", "bos_token", "pad_token", "chat_template"} <= set(info)


def test_the_text_is_that_of_generate(server: Server, models: dict[str, Path]) -> None:
    name = "gla" if "gla" in server.process.args[2] else "softmax"  # type: ignore[index,operator]
    words = ["--prompt", "ROMEO:", "--tokens", "30", "--seed", "5", "--temperature", "0.7", "--json"]
    made = subprocess.run([PROGRAM, "generate", models[name], *words], capture_output=True, text=True, check=True)
    answer = server.post("/v1/completions", prompt="ROMEO:", max_tokens=30, seed=5, temperature=0.7)
    (choice,) = answer["choices"]
    assert choice["text"] == json.loads(made.stdout)["text"]
    assert answer["usage"]["completion_tokens"] == len(json.loads(made.stdout)["ids"])


def test_prompts_of_every_kind(server: Server) -> None:
    wanted = {"max_tokens": 6, "temperature": 0}
    one, two = server.text("ab", **wanted), server.text("cd", **wanted)
    for prompt in (["ab", "cd"], [[97, 98], [99, 100]]):
        choices = server.post("/v1/completions", prompt=prompt, **wanted)["choices"]
        assert [c["index"] for c in choices] == [0, 1] and [c["text"] for c in choices] == [one, two]
    assert server.text([97, 98], **wanted) == one
    echoed = server.post("/v1/completions", prompt="ab", echo=True, **wanted)["choices"][0]
    assert echoed["text"] == "ab" + one
    several = server.post("/v1/completions", prompt="ab", n=3, seed=7, max_tokens=12)["choices"]
    assert len({c["text"] for c in several}) > 1
    for j, choice in enumerate(several):  # text j is that of the seed 7 + j
        assert choice["text"] == server.text("ab", seed=7 + j, max_tokens=12)


def test_log_probabilities_are_as_lm_eval_wants_them(server: Server) -> None:
    ids = [[84, 111, 32, 98, 101], [72, 105]]
    answer = server.post("/v1/completions", prompt=ids, max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234)
    for choice, prompt in zip(answer["choices"], ids, strict=True):
        scores = choice["logprobs"]
        assert {len(scores[name]) for name in scores} == {len(prompt) + 1}
        assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
        assert scores["tokens"][:-1] == [chr(i) for i in prompt]
        assert scores["text_offset"][:-1] == list(range(len(prompt)))
        rows = list(zip(scores["tokens"], scores["token_logprobs"], scores["top_logprobs"], strict=True))
        for token, logprob, top in rows[1:]:
            assert top[token] == logprob <= max(top.values()) <= 0
        assert scores["token_logprobs"][-1] == max(scores["top_logprobs"][-1].values())  # the greedy token
        for end in range(1, len(prompt)):  # the same numbers as one token at a time
            step = server.post("/v1/completions", prompt=prompt[:end], max_tokens=1, logprobs=20, temperature=0)
            top = step["choices"][0]["logprobs"]["top_logprobs"][0]
            token = scores["tokens"][end]
            assert token not in top or math.isclose(top[token], scores["token_logprobs"][end], abs_tol=1e-4)


@pytest.mark.parametrize("name", ["gla", "softmax", "converted", "tinystories"])
def test_lm_eval_would_get_the_numbers_of_score(models: dict[str, Path], converted: Path, name: str, tmp_path: Path) -> None:
    """What its local-completions asks for: tokens of the question alone, then those of both behind as many."""
    data = os.environ.get("HORNER_DATA")
    if name == "tinystories" and not data:
        pytest.skip("HORNER_DATA is not set")
    model = {"converted": converted, "tinystories": Path(data or "") / "tinystories656k"}.get(name) or models[name]
    asked = [("My body cast a shadow because", [" the sun was rising.", " the grass was cut."]),  # some tokenizers join "e the"
             ("Lily saw a cat. She said", [" hello to it.", " goodbye."])]
    lines = [json.dumps({"context": q, "choices": [one[1:] for one in answers], "answer": 0}) for q, answers in asked]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines) + "\n")
    done = subprocess.run([PROGRAM, "score", model, "--choices", tmp_path / "questions.jsonl", "--device", "cpu", "--json"],
                          capture_output=True, text=True, check=True)
    with Server(model, "--weights", "fp32") as server:
        def tokens(text: str) -> list[int]:
            return server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]  # type: ignore[no-any-return]

        for (question, answers), wanted in zip(asked, json.loads(done.stdout)["questions"][0]["nats"], strict=True):
            first = tokens(question)
            prompts = [first + tokens(question + answer)[len(first):] for answer in answers]
            choices = server.post("/v1/completions", prompt=prompts, max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1234)["choices"]
            nats = [-sum(choice["logprobs"]["token_logprobs"][len(first):-1]) for choice in choices]
            assert nats == pytest.approx(wanted, rel=1e-4)


def test_streams(server: Server) -> None:
    body = {"prompt": "ROMEO:", "max_tokens": 12, "seed": 3, "ignore_eos": True}
    whole = server.text(**body)
    chunks = server.events("/v1/completions", **body)
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == "length" and "usage" not in chunks[-1]
    said = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "seed": 3, "ignore_eos": True}
    message = server.post("/v1/chat/completions", **said)["choices"][0]["message"]
    chunks = server.events("/v1/chat/completions", stream_options={"include_usage": True}, **said)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]) == message["content"]
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 8
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert chunks[-2]["choices"][0] == last


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_chunks_differ_in_their_text_alone(server: Server, path: str) -> None:
    """Those with log-probabilities are made in another way."""
    body = {"max_tokens": 40, "seed": 3, "ignore_eos": True, "stream_options": {"include_usage": True}, "n": 2}
    body |= {"prompt": "\"\\"} if path == "completions" else {"messages": [{"role": "user", "content": "\"\\"}]}

    def parts(logprobs: object) -> tuple[list[str], set[str]]:
        """The text of each choice, and all else of the chunks that have some."""
        texts, rest = ["", ""], set()
        for chunk in server.events(f"/v1/{path}", logprobs=logprobs, **body)[:-1]:
            (choice,) = chunk["choices"]
            text = choice.pop("text", None) or choice.get("delta", {}).pop("content", "")
            index = choice.pop("index")
            texts[index] += text
            choice["logprobs"] = None
            if text:
                rest.add(json.dumps(chunk | {"id": "", "created": 0}))
        return texts, rest

    plain, detailed = parts(None), parts(1 if path == "completions" else True)
    assert plain == detailed and len(plain[1]) == 1 and all(len(text) > 20 for text in plain[0])


def test_stop_strings(server: Server) -> None:
    body: dict[str, Any] = {"seed": 2, "max_tokens": 40, "ignore_eos": True}
    text = server.text("A", **body)
    stop = text[10]
    answer = server.post("/v1/completions", prompt="A", stop=[stop], **body)["choices"][0]
    if stop != "\ufffd":
        assert answer["text"] == text[:text.index(stop)] and answer["finish_reason"] == "stop"


@pytest.mark.parametrize("path, body, status, words", [
    ("completions", {"prompt": "a", "temperature": -1}, 400, "temperature must be a number in 0 .. 100, got -1"),
    ("completions", {"prompt": "a", "temperature": "x"}, 400, "temperature must be"),
    ("completions", {}, 400, "prompt is missing"),
    ("completions", {"prompt": []}, 400, "prompt must be"),
    ("completions", {"prompt": ["a", 1]}, 400, "prompt must be"),
    ("completions", {"prompt": [[]]}, 400, "empty"),
    ("completions", {"prompt": [257]}, 400, "token ids in 0 .. 256, got 257"),
    ("completions", {"prompt": [1.5]}, 400, "token ids"),
    ("completions", {"prompt": "a", "suffix": "b"}, 400, "suffix is not supported"),
    ("completions", {"prompt": "a", "max_tokens": 10**30}, 400, "max_tokens must be a whole number"),
    ("completions", {"prompt": "a", "logit_bias": {"x": 1}}, 400, "logit_bias must be"),
    ("completions", {"prompt": "a", "model": "gpt-5"}, 404, "there is no model 'gpt-5'; this server has 'tiny'"),
    ("completions", {"prompt": "a" * 40000}, 400, "the prompt has 40000 tokens; this server takes at most"),
    ("completions", {"prompt": "a", "state": "none"}, 404, "there is no state 'none'"),
    ("chat/completions", {"messages": []}, 400, "at least one message"),
    ("chat/completions", {"messages": [{"content": "x"}]}, 400, "a role"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "reads text"),
    ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, 400, "logprobs: true"),
    ("embeddings", {"input": "a"}, 400, "only encoders give vectors"),
])
def test_mistakes_are_said(server: Server, path: str, body: dict[str, Any], status: int, words: str) -> None:
    assert words in server.post(f"/v1/{path}", status, **body)["error"]["message"]


def test_answers_of_a_form(server: Server) -> None:
    said = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, "seed": 1}
    text = server.text("A", regex="(yes|no), [0-9]{2}", max_tokens=20)
    assert re.fullmatch("(yes|no), [0-9]{2}", text)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    answer = server.post("/v1/chat/completions", response_format=form, **said)["choices"][0]["message"]["content"]
    assert set(json.loads(answer)) == {"n"} and 0 <= json.loads(answer)["n"] <= 99
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    choice = server.post("/v1/chat/completions", tools=tools, tool_choice="required", **said)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and call["function"]["name"] == "look"
    assert set(json.loads(call["function"]["arguments"])) == {"n"}
    chunks = server.events("/v1/chat/completions", tools=tools, tool_choice="required", **said)
    assert chunks[-2]["choices"][0]["delta"]["tool_calls"][0]["function"] == call["function"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    server.post("/v1/chat/completions", 400, response_format={"type": "poem"}, **said)


def test_a_text_is_the_same_alone_and_among_64_others(server: Server) -> None:
    """Beside each other at most 16 write and the others wait; the bits of the log-probabilities are compared."""
    def body(i: int) -> dict[str, Any]:
        return {"prompt": "O " * (1 + i * 5 % 17), "max_tokens": 8 + i % 7, "seed": i, "logprobs": 2, "ignore_eos": True}

    alone = server.post("/v1/completions", **body(0))["choices"]
    with concurrent.futures.ThreadPoolExecutor(65) as pool:
        texts = list(pool.map(lambda i: server.post("/v1/completions", **body(i)), range(65)))
    assert texts[0]["choices"] == alone
    assert server.metric("streams") == 0


@pytest.mark.parametrize("name", ["softmax", "converted"])
def test_long_prompts_have_the_same_bits_in_any_pieces(models: dict[str, Path], converted: Path, name: str) -> None:
    """Alone; after a prefix that ends inside a piece; and among 64 others, some of which begin alike."""
    model = converted if name == "converted" else models[name]
    prompt = [(i * i * 31 + i // 7) % 256 for i in range(700)]  # a piece has 256 tokens

    def body(i: int, tokens: list[int]) -> dict[str, Any]:
        return {"prompt": tokens, "max_tokens": 6, "seed": i, "logprobs": 1, "ignore_eos": True}

    with Server(model) as server:
        alone = server.post("/v1/completions", **body(0, prompt))["choices"]
    with Server(model) as server:
        server.post("/v1/completions", **body(1, prompt[:100]))
        answer = server.post("/v1/completions", **body(0, prompt))
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 99 and answer["choices"] == alone
    with Server(model) as server, concurrent.futures.ThreadPoolExecutor(65) as pool:
        prompts = [prompt[: 9 * i] if i % 2 else [i] + prompt[: 300 - 4 * i] for i in range(1, 65)]
        prompts.insert(20, prompt)
        texts = list(pool.map(lambda i: server.post("/v1/completions", **body(0 if i == 20 else i, prompts[i])), range(65)))
        assert texts[20]["choices"] == alone


def test_an_encoder() -> None:
    folder = ROOT / "src/model/formats/goldens/bert"
    if not (folder / "tokenizer.json").is_file() and not (folder / "vocab.txt").is_file():
        pytest.skip("the small encoder has no tokenizer")
    with Server(folder) as server:
        answer = server.post("/v1/embeddings", input=[[1, 2, 3], [4, 5]])
        for one in answer["data"]:
            assert math.isclose(sum(x * x for x in one["embedding"]), 1, rel_tol=1e-5)
        server.post("/v1/completions", 400, prompt="a")


def test_the_load_generator(server: Server, tmp_path: Path) -> None:
    into = tmp_path / "serve.json"
    words = [f"one={server.url}", f"two={server.url}", "--clients", "2", "--seconds", "0.5", "--rounds", "2", "--tokens", "4", "--into", into]
    for _ in range(2):
        subprocess.run([sys.executable, ROOT / "tools/load_serve.py", *words], check=True, capture_output=True)
    runs = json.loads(into.read_text())
    assert [run["program"] for run in runs] == ["one", "two"] * 2
    for run in runs:
        assert run["errors"] == 0 and run["turns"] == len(run["tokens_per_second_of_turns"]) == 2
        assert run["tokens_per_second"] > 0 and 0 < run["clients_busy"] <= 1 and run["first_token_seconds"]["p99"] >= run["first_token_seconds"]["p50"] > 0
    written = into.with_suffix(".md").read_text()
    assert written.count("\n## ") == 1 and written.count("| one |") == 2  # the same command, twice
    instead = ["--machine", "another", "--instead", runs[0]["machine"], "--commit", "abc"]
    subprocess.run([sys.executable, ROOT / "tools/load_serve.py", *words, *instead], check=True, capture_output=True)
    assert [(run["machine"], run["commit"]) for run in json.loads(into.read_text())] == [("another", "abc")] * 2


def test_the_page_of_the_load_is_that_of_its_runs() -> None:
    runs = ROOT / "docs/results/serve.json"
    assert load_serve.page(json.loads(runs.read_text())) == runs.with_suffix(".md").read_text()


def test_curl(server: Server) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl")
    body = json.dumps({"prompt": "ROMEO:", "max_tokens": 5, "seed": 1, "stream": True})
    done = subprocess.run(["curl", "-sSN", "--max-time", "300", f"{server.url}/v1/completions", "-H", "Content-Type: application/json",
                           "-d", body], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("data: {") and done.stdout.endswith("data: [DONE]\n\n")


def test_mistakes_of_the_command(models: dict[str, Path], server: Server) -> None:
    for words, line in ((["--port", "70000"], "port must lie in 0 .. 65535, got 70000"),
                        (["--streams", "0"], "streams must lie in 1 .. 65536, got 0"),
                        (["--port", str(server.port)], f"cannot listen on 127.0.0.1:{server.port}")):
        done = subprocess.run([PROGRAM, "serve", models["gla"], *words], capture_output=True, text=True)
        assert done.returncode in (1, 2) and line in done.stderr and done.stderr.count("\n") == 1
    assert subprocess.run([PROGRAM, "serve", "/nowhere", "--port", "0"], capture_output=True).returncode == 3
