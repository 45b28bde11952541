"""horner serve: texts, chats, log-probabilities, errors, states, many clients and hostile ones."""

import concurrent.futures
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import PROGRAM, ROOT, Server, train

sys.path.insert(0, str(ROOT / "tools"))
import load_serve  # noqa: E402
from attacks import shim  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
LONG = {"max_tokens": 10**6, "ignore_eos": True}  # minutes: such a text ends only when it is cut off


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("models")
    return {name: train(out, name, "--model.pattern", name) for name in ("gla", "softmax")}


@pytest.fixture(scope="module")
def converted(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The softmax model with other mixers, as `horner convert` makes it without training."""
    out = tmp_path_factory.mktemp("converted") / "model"
    subprocess.run([PROGRAM, "convert", models["softmax"], "--to", "hybrid:window=16,sinks=2,far=centres,count=16", "--context", "128",
                    "--windows", "1", "--calibration", "1", "--texts", "0", "--out", out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module", params=["gla", "softmax"])
def server(models: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(models[request.param], "--name", "tiny", "--request_seconds", 3) as one:
        yield one


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


def test_a_chat_reads_its_history_once(server: Server) -> None:
    messages: list[dict[str, str]] = []
    read = 0
    for turn in range(30):
        messages.append({"role": "user", "content": f"turn {turn} of ours"})
        # ASCII alone, so that the answer has the same tokens when it comes back
        bias = {str(i): -100 for i in (*range(32), *range(127, 257))}
        answer = server.post("/v1/chat/completions", messages=messages, max_tokens=4, seed=turn, logit_bias=bias)
        messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        if turn:
            assert new <= len(f"\n<|im_end|>\n<|im_start|>user\nturn {turn} of ours<|im_end|>\n<|im_start|>assistant\n") + 1
        read += new
    assert read + 30 * 4 <= usage["total_tokens"] + 30  # each token once, the last one of an answer with the next prompt
    edited = messages[:40] + [{"role": "user", "content": "something else"}]
    usage = server.post("/v1/chat/completions", messages=edited, max_tokens=2)["usage"]
    before = len(server.post("/apply-template", messages=messages[:40], add_generation_prompt=False)["prompt"])
    assert usage["prompt_tokens_details"]["cached_tokens"] >= before


def test_the_states_of_a_chat_share_their_pages(models: dict[str, Path]) -> None:
    """Some 90 states of one text hold its pages once, not a half-filled page each."""
    with Server(models["softmax"], "--cache", "1024") as server:
        server.text("xy", max_tokens=0)
        page = server.metric("cache_bytes")
        messages: list[dict[str, str]] = []
        bias = {str(i): -100 for i in (*range(32), *range(127, 257))}
        for turn in range(30):
            messages.append({"role": "user", "content": f"turn {turn} of ours"})
            answer = server.post("/v1/chat/completions", messages=messages, max_tokens=4, seed=turn, logit_bias=bias)
            messages.append(answer["choices"][0]["message"])
        server.wait_until_idle()
        tokens, states = answer["usage"]["total_tokens"], server.metric("cache_states")
        assert states >= 60
        assert server.metric("cache_bytes") <= page * (tokens // 256 + 3) + 4 * tokens * states  # and the tokens' ids


def test_states(server: Server, tmp_path: Path) -> None:
    made = server.post("/states", name="start", prompt="To be, or not")
    assert made["tokens"] == 13 and made["bytes"] > 0
    wanted = {"max_tokens": 10, "temperature": 0, "ignore_eos": True}
    text = server.text("To be, or not to be", **wanted)
    assert server.text(" to be", state="start", **wanted) == text
    server.ask("POST", "/states/start/fork", {"name": "other"})
    server.text(" to be", state="other", save_state="after", **wanted)
    names = {s["name"]: s["tokens"] for s in server.ask("GET", "/states")["states"]}
    assert names["start"] == names["other"] == 13 and names["after"] == 13 + 6 + 10
    server.ask("POST", "/states/after/roll_back", {"tokens": 19})
    assert server.text("", state="after", **wanted) == text
    server.ask("POST", "/states/after/roll_back", {"tokens": 20}, 400)
    file = tmp_path / "state.safetensors"
    file.write_bytes(server.ask("GET", "/states/other/export"))
    from safetensors import safe_open
    with safe_open(str(file), "pt") as tensors:
        assert tensors.get_tensor("tokens").tolist() == list(b"To be, or not") and len(list(tensors.keys())) > 1
    for name in ("start", "other", "after"):
        server.ask("DELETE", f"/states/{name}")
    server.ask("DELETE", "/states/start", status=404)
    for name in ("../x", "", ".x", "a b", "x" * 101):
        server.post("/states", 400, name=name, prompt="x")


def test_a_state_without_tokens_needs_a_prompt(server: Server) -> None:
    server.post("/states", name="bare", prompt="abc")
    server.ask("POST", "/states/bare/roll_back", {"tokens": 0})
    for body in ({"prompt": ""}, {}, {"prompt": "", "max_tokens": 0, "save_state": "other"}):
        message = server.post("/v1/completions", 400, state="bare", **body)["error"]["message"]
        assert message == "state 'bare' has no tokens and the prompt is empty"
    wanted = {"max_tokens": 5, "temperature": 0, "ignore_eos": True}
    assert server.text("abc", state="bare", **wanted) == server.text("abc", **wanted)
    server.ask("DELETE", "/states/bare")


def test_a_fork_outlives_its_parent(server: Server) -> None:
    wanted = {"max_tokens": 10, "seed": 3, "ignore_eos": True}
    server.post("/states", name="parent", prompt="To be, or not" * 30)
    text = server.text(" to be", state="parent", **wanted)
    server.ask("POST", "/states/parent/fork", {"name": "child"})
    server.ask("DELETE", "/states/parent")
    for i in range(20):  # others may take the memory
        server.text(f"{i} others write here", max_tokens=5, ignore_eos=True)
    assert server.text(" to be", state="child", **wanted) == text
    server.ask("DELETE", "/states/child")


def test_states_with_names_have_the_memory_of_texts(models: dict[str, Path]) -> None:
    with Server(models["softmax"], "--memory", 4, "--cache", 0) as server:  # 640 bytes a token, in pages of 256 tokens
        kept = 0
        for i in range(20):
            answer = server.post("/states", 200 if i < 3 else 503, name=f"s{i}", prompt=f"{i:02d}" + "x" * 2000)
            kept += "name" in answer
        assert kept == 3 and "states with names hold" in answer["error"]["message"]
        long = {"max_tokens": 4000, "ignore_eos": True}
        message = server.post("/v1/completions", 503, prompt="x", **long)["error"]["message"]
        assert "states with names hold" in message
        for i in range(kept):
            server.ask("DELETE", f"/states/s{i}")
        assert server.post("/v1/completions", prompt="x", **long)["usage"]["completion_tokens"] == 4000


def test_a_state_that_cannot_be_written_leaves_the_old_one(models: dict[str, Path], tmp_path: Path) -> None:
    with Server(models["gla"], "--states", tmp_path) as server:
        server.post("/states", name="kept", prompt="Now is the winter")
        file = tmp_path / "kept.safetensors"
        file.rename(tmp_path / "aside")
        (file / "in_the_way").mkdir(parents=True)
        server.post("/states", 500, name="kept", prompt="of our discontent, made glorious")
        assert server.ask("GET", "/states/kept")["tokens"] == 17
        server.ask("DELETE", "/states/kept", status=500)
        assert server.ask("GET", "/states/kept")["tokens"] == 17


def test_states_are_whole_whenever_the_program_is_killed(models: dict[str, Path], tmp_path: Path) -> None:
    wanted = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    prompts = [f"{'abc' * length} {length}" for length in range(1, 60, 7)]
    with Server(models["gla"]) as server:
        texts = {len(p): server.text(p + "!", **wanted) for p in prompts}
    for round_number in range(3):
        server = Server(models["gla"], "--states", tmp_path)
        for state in server.ask("GET", "/states")["states"]:
            assert server.text("!", state=state["name"], **wanted) == texts[state["tokens"]]
        assert round_number == 0 or server.ask("GET", "/states")["states"]

        def save(number: int) -> None:
            try:
                for turn in range(10**6):
                    server.post("/states", name=f"n{number}", prompt=prompts[(turn + number) % len(prompts)])
            except (OSError, http.client.HTTPException):
                pass  # the program is gone

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            saving = [pool.submit(save, number) for number in range(3)]
            server.wait_until(lambda one: one.metric("prompt_tokens_total") > 3000 + 500 * round_number)
            server.stop(signal.SIGKILL)
            for one in saving:
                one.result()


def test_a_state_survives_the_program(models: dict[str, Path], tmp_path: Path) -> None:
    wanted = {"max_tokens": 12, "seed": 4, "ignore_eos": True}
    for name, model in models.items():
        folder = tmp_path / name
        server = Server(model, "--states", folder)
        server.post("/states", name="kept", prompt="Now is the winter of our discontent")
        text = server.text(" made", state="kept", **wanted)
        server.stop(signal.SIGKILL)
        with Server(model, "--states", folder) as again:
            (kept,) = again.ask("GET", "/states")["states"]
            assert kept["name"] == "kept" and kept["on_disk"]
            assert again.text(" made", state="kept", **wanted) == text
            assert again.metric("cached_tokens_total") == 34  # nothing of it was read again but the last token
    with Server(models["gla"], "--states", tmp_path / "softmax") as other:  # states of another model
        assert other.ask("GET", "/states")["states"] == []


def test_a_state_takes_the_place_of_no_other_file(models: dict[str, Path], tmp_path: Path) -> None:
    """A folder of states may hold other files: a model, or the states of another one."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(sorted(models["gla"].glob("checkpoints/*/model.safetensors"))[-1].read_bytes())
    before = weights.read_bytes()
    with Server(models["softmax"], "--states", tmp_path) as server:
        server.post("/states", name="kept", prompt="Now is the winter")
    with Server(models["gla"], "--states", tmp_path) as server:
        for name in ("model", "kept"):
            refused = server.post("/states", 409, name=name, prompt="Now")
            assert f"{name}.safetensors: is not of this model" in refused["error"]["message"]
            assert "is not of this model" in server.ask("GET", f"/states/{name}", status=404)["error"]["message"]
            server.ask("DELETE", f"/states/{name}", status=404)
    assert weights.read_bytes() == before
    with Server(models["softmax"], "--states", tmp_path) as server:
        (kept,) = server.ask("GET", "/states")["states"]
        assert kept["name"] == "kept"


def test_states_belong_to_a_config(models: dict[str, Path], tmp_path: Path) -> None:
    """The same weights with another config.json, or another tokenizer, are another model."""
    model, states = tmp_path / "model", tmp_path / "states"
    shutil.copytree(sorted((models["softmax"] / "checkpoints").iterdir())[-1], model)
    (model / "DONE").unlink()
    with Server(model, "--states", states) as server:
        server.post("/states", name="kept", prompt="Now is the winter")
    for count, more in ((1, ""), (0, " ")):
        (model / "config.json").write_text((model / "config.json").read_text() + more)
        with Server(model, "--states", states) as server:
            assert len(server.ask("GET", "/states")["states"]) == count


def test_a_damaged_state_is_refused_by_its_name(models: dict[str, Path], tmp_path: Path) -> None:
    with Server(models["gla"], "--states", tmp_path) as server:
        server.post("/states", name="kept", prompt="Now is the winter")
    file = tmp_path / "kept.safetensors"
    whole = file.read_bytes()
    for damaged, words in ((whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged: its checksum"),
                           (whole.replace(b'"read":"16"', b'"read":"1x"'), "is damaged: its checksum"),
                           (whole[:100], "kept.safetensors")):
        assert damaged != whole
        file.write_bytes(damaged)
        done = subprocess.run([PROGRAM, "serve", models["gla"], "--port", "0", "--states", tmp_path],
                              capture_output=True, text=True, timeout=100)  # with another number of threads, too
        assert done.returncode == 3 and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["gla", "softmax"])
def test_a_tree_of_1000_branches_holds_its_distinct_states(models: dict[str, Path], name: str) -> None:
    root = "root " * 120  # 600 tokens: 3 pages of 256
    with Server(models[name], "--cache", "1024") as server:
        server.text("x", max_tokens=0)
        server.text("xy", max_tokens=0)
        one = server.metric("cache_bytes")  # a state of constant size, or a page
        server.text(root, max_tokens=0)  # else the first texts, which are read beside each other, would all read it
        for begin in range(0, 1000, 100):
            prompts = [f"{root}{i:03d}." for i in range(begin, begin + 100)]
            server.post("/v1/completions", prompt=prompts, max_tokens=0)
        server.wait_until_idle()
        states, held = server.metric("cache_states"), server.metric("cache_bytes")
        assert 1002 <= states <= 1006  # also after 256 and 512 tokens
        # Of a softmax model the root's 2 full pages once, and the page of each branch; the ids of tokens are counted, too.
        assert held <= one * (states + 2) + 4 * 610 * states
        for begin in range(0, 1000, 100):  # all of them are known
            prompts = [f"{root}{i:03d}." for i in range(begin, begin + 100)]
            server.post("/v1/completions", prompt=prompts, max_tokens=0)
        assert server.metric("cache_states") == states
    with Server(models[name], "--cache", "1") as small:  # the least recently used go
        small.post("/v1/completions", prompt=[f"{i:04d} " * 3 for i in range(250)], max_tokens=0)
        small.wait_until_idle()
        assert small.metric("cache_bytes") <= 1 << 20


def test_clients_that_leave_free_their_stream(server: Server) -> None:
    for stream in (True, False):
        body = json.dumps({"prompt": "x", "stream": stream} | LONG).encode()
        head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        clients = []
        for _ in range(4):
            client = socket.create_connection((server.host, server.port))
            client.sendall(head.encode() + body)
            clients.append(client)
        server.wait_for_streams(4)
        for client in clients:
            client.close()
        server.wait_until_idle()


def send(server: Server, data: bytes, wait: float = 20) -> bytes:
    """What comes back before the server closes the connection."""
    with socket.create_connection((server.host, server.port), timeout=wait) as client:
        client.sendall(data)
        found = b""
        try:
            while more := client.recv(65536):
                found += more
        except (TimeoutError, ConnectionResetError):
            pass
        return found


def post_bytes(body: bytes, *headers: str, length: int | None = None, kind: str = "application/json") -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Connection: close",
             f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("data, status", [
    (post_bytes(b'{"prompt": "\xff\xfe"}'), 400),
    (post_bytes(b"[" * 100000), 400),
    (post_bytes(b'{"prompt": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001), 400),
    (post_bytes(b'{"prompt": "a", "prompt": "b"}'), 400),
    (post_bytes(b"{}", *(f"X-{i}: {i}" for i in range(10000))), 400),
    (post_bytes(b"prompt=a", kind="application/x-www-form-urlencoded"), 400),
    (post_bytes(b'{"prompt": "a"}', kind="multipart/form-data; boundary=x"), 400),
    (post_bytes(b"x" * 100, "Content-Encoding: gzip"), 400),
    (post_bytes(b'{"prompt": "' + b"a" * 10_000_000 + b'"}'), 413),
    (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 400),
    (b"BREW / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
], ids=range(13))
def test_hostile_requests(server: Server, data: bytes, status: int) -> None:
    answer = send(server, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    assert b'"error"' in answer
    assert server.ask("GET", "/health") == {"status": "ok"}


SMALL_BODY = b'{"prompt": "a", "max_tokens": 1}'
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def framed(*headers: str, method: str = "POST", body: bytes = SMALL_BODY) -> bytes:
    lines = [f"{method} /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMALL_BODY), SMALL_BODY)
LENGTH = f"Content-Length: {len(SMALL_BODY)}"


@pytest.mark.parametrize("data", [
    framed(LENGTH, "Content-Length: 5"),
    framed("Content-Length: 5", LENGTH),
    framed("Content-Length: 5", "Transfer-Encoding: chunked", body=CHUNKS),
    framed(LENGTH, "Transfer-Encoding: xchunked"),
    framed("Transfer-Encoding: gzip, chunked", body=CHUNKS),
    framed("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=CHUNKS),
    framed(LENGTH + "abc"),
    framed("Content-Length: +5"),
    framed("Content-Length: -5"),
    framed("Content-Length:"),
    framed("Content-Length : 5"),
    framed(LENGTH, " X-Folded: a"),
    framed(),
    framed(f"Content-Length: {len(NEXT)}", method="GET", body=NEXT),
    framed(f"Content-Length: {len(NEXT)}", method="OPTIONS", body=NEXT),
    framed(f"Content-Length: {len(NEXT)}", method="DELETE", body=NEXT),
    framed("Transfer-Encoding: chunked", method="HEAD", body=CHUNKS),
    framed(LENGTH, "Host: evil.example"),
    framed("Transfer-Encoding: chunked", body=b"zz\r\n" + SMALL_BODY),
    framed("Transfer-Encoding: chunked", body=b"ffffffffffffffff\r\n" + SMALL_BODY + b"\r\n0\r\n\r\n"),
    bytes.fromhex("1603010200010001fc0303") + bytes(range(1, 256)),  # a greeting of TLS
], ids=range(21))
def test_where_a_request_ends_is_said_plainly(server: Server, data: bytes) -> None:
    answer = send(server, data + NEXT)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, answer[:400]
    assert server.ask("GET", "/health") == {"status": "ok"}


def test_requests_one_after_the_other_in_chunks_and_with_a_question_before(server: Server) -> None:
    data = (NEXT + framed("Transfer-Encoding: chunked", body=CHUNKS) + framed(LENGTH) + framed(LENGTH, "Expect: 100-continue")
            + b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answers = send(server, data).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"100", b"200", b"200", b"200"]
    for answer in answers[1:3]:
        assert json.loads(answer.split(b"\r\n\r\n")[1])["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("host, status", [
    *((host, 200) for host in ("localhost", "LocalHost:80", "localhost.", "127.0.0.1:1", "127.1.2.3", "[::1]:80", "10.0.0.1")),
    *((host, 400) for host in ("evil.example", "127.evil.example", "127.0.0.1.evil.example", "localhost.evil.example",
                               "evil.example@localhost", "[::1.evil.example]", "127.0.0.1@evil.example", "..")),
])
def test_names_of_other_machines_are_refused(server: Server, host: str, status: int) -> None:
    """A page of another site can make a name of its own mean this machine."""
    assert server.ask("GET", "/health", status=status, Host=host)


def test_a_page_of_another_site_gets_no_leave(server: Server) -> None:
    answer = send(server, b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nConnection: close\r\n"
                  b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404") and b"access-control" not in answer.lower()


def test_large_bodies_are_read_few_at_a_time(models: dict[str, Path]) -> None:
    with Server(models["gla"], "--body", 8) as server:
        def most_memory() -> float:  # MiB
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

        body = json.dumps({"prompt": ["a"] * 1_000_000}).encode()
        server.ask("POST", "/v1/completions", body, 400)
        one = most_memory()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: server.ask("POST", "/v1/completions", body, 400), range(12)))
        assert all("a request takes at most 256" in answer["error"]["message"] for answer in answers)
        assert most_memory() < one + 400  # each alone takes some 150


def test_answers_are_whole(server: Server) -> None:
    page = server.ask("GET", "/chat.js")
    for ranges in ("0-4", ",".join(["0-"] * 1000)):
        assert server.ask("GET", "/chat.js", Range=f"bytes={ranges}") == page
    assert server.ask("POST", "/tokenize", {"prompt": "abc"}, Range="bytes=5-9")["count"] == 3


def test_slow_and_half_requests(server: Server) -> None:
    assert send(server, post_bytes(b'{"prompt"', length=500)).startswith(b"HTTP/1.1 400")  # half a request
    with socket.create_connection((server.host, server.port), timeout=20) as client:  # a byte now and then
        with pytest.raises(OSError):
            for _ in range(600):  # each request has 3 seconds
                client.sendall(b"G")
                time.sleep(0.2)
    assert server.ask("GET", "/health") == {"status": "ok"}


def test_limits(models: dict[str, Path]) -> None:
    with Server(models["gla"], "--streams", 1, "--queue", 2, "--connections", 6) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool, socket.create_connection((server.host, server.port)) as client:
            client.sendall(post_bytes(json.dumps({"prompt": "x", "stream": True} | LONG).encode()))
            server.wait_for_streams(1)
            answer = server.post("/v1/completions", 400, prompt=["a", "b", "c"], max_tokens=1)
            assert "a request takes at most 2" in answer["error"]["message"]
            wait = pool.submit(server.post, "/v1/completions", prompt=["a", "b"], max_tokens=1)
            server.wait_until(lambda one: one.metric("queue") == 2)
            answer = server.post("/v1/completions", 429, prompt="c", max_tokens=1)
            assert "the limit is 2" in answer["error"]["message"]
            assert server.metric("streams") == 1 and b"data: {" in client.recv(65536)
            client.close()
            assert len(wait.result()["choices"]) == 2
        idle = [socket.create_connection((server.host, server.port)) for _ in range(6)]
        server.wait_until(lambda one: b"too many connections" in send(one, b"", wait=1))
        for client in idle:
            client.close()
        server.wait_until(lambda one: b'"ok"' in send(one, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"))


def test_without_memory_new_texts_are_refused_and_old_ones_go_on(models: dict[str, Path]) -> None:
    with Server(models["softmax"], "--memory", 500) as server:  # 640 bytes a token
        message = server.post("/v1/completions", 400, prompt="x", n=2, **LONG)["error"]["message"]
        assert "ask for fewer tokens" in message
        body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 600_000, "ignore_eos": True}).encode()
        with socket.create_connection((server.host, server.port), timeout=60) as client:
            client.sendall(post_bytes(body))
            server.wait_for_streams(1)
            message = server.post("/v1/completions", 503, prompt="y", **LONG | {"max_tokens": 600_000})["error"]["message"]
            assert "try again later" in message
            assert server.text("y", max_tokens=3, ignore_eos=True)  # a short one fits
            assert server.metric("streams") == 1 and b"data: {" in client.recv(65536)
        server.wait_until_idle()
        server.text("y", max_tokens=1)


def test_a_key(models: dict[str, Path]) -> None:
    with Server(models["gla"], HORNER_API_KEY="secret") as server:
        assert server.ask("GET", "/health") == {"status": "ok"}
        assert server.ask("GET", "/v1/models", status=401)["error"]["type"] == "authentication_error"
        for wrong in ("secret", "Bearer secre", "Bearer secrets", "Bearer "):
            server.ask("GET", "/v1/models", status=401, Authorization=wrong)
        assert server.ask("GET", "/v1/models", Authorization="Bearer secret")["data"]
    with Server(models["gla"], "--host", "0.0.0.0") as server:
        assert any(line.startswith("warning: everybody") for line in server.lines)
    with Server(models["gla"]) as server:
        assert server.host == "127.0.0.1" and not any("warning" in line for line in server.lines)


def test_sigterm_drains(models: dict[str, Path]) -> None:
    server = Server(models["gla"], "--drain_seconds", 500)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(server.events, "/v1/completions", prompt="x", max_tokens=1500, ignore_eos=True)
        server.wait_until(lambda one: one.metric("prompt_tokens_total") > 0)
        assert server.stop() == 0
        assert long.result()[-1]["choices"][0]["finish_reason"] == "length"
    cut = Server(models["gla"], "--drain_seconds", 0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = pool.submit(cut.events, "/v1/completions", prompt="x", **LONG)
        cut.wait_for_streams(1)
        assert cut.stop() == 0
        assert "shutting down" in long.result()[-1]["error"]["message"]


def test_a_text_whose_prompt_is_still_read_is_finished_after_sigterm(models: dict[str, Path]) -> None:
    server = Server(models["gla"], "--drain_seconds", 500)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": "x" * 30000, "max_tokens": 3, "ignore_eos": True}
        slow = pool.submit(server.events, "/v1/completions", **body)
        server.wait_until(lambda one: one.metric("prompt_tokens_total") > 0)
        assert server.stop() == 0
        assert slow.result()[-1]["choices"][0]["finish_reason"] == "length"


def test_clients_that_cannot_be_taken_do_not_end_the_server(models: dict[str, Path], tmp_path: Path) -> None:
    full = tmp_path / "no_threads"
    with Server(models["gla"], **shim.environment(tmp_path, accept=3, threads=full)) as server:
        for _ in range(3):  # the connection is aborted before it is taken
            with pytest.raises(OSError):
                server.ask("GET", "/health")
        assert server.ask("GET", "/health") == {"status": "ok"}
        full.touch()
        head, body = send(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n\r\n")
        assert b"503" in head and f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
        assert json.loads(body)["error"]["code"] == "too_many_connections"
        full.unlink()
        assert server.text("x", max_tokens=3, ignore_eos=True)


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
        assert run["tokens_per_second"] > 0 and run["first_token_seconds"]["p99"] >= run["first_token_seconds"]["p50"] > 0
    written = into.with_suffix(".md").read_text()
    assert written.count("\n## ") == 1 and written.count("| one |") == 2  # the same command, twice


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
