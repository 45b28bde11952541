"""horner serve: what was read is not read again; states with names, on the disk, and as a tree."""

import concurrent.futures
import http.client
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from serving import PROGRAM, Server

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


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


def test_a_second_server_on_one_folder_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    with Server(models["gla"], "--states", tmp_path) as first:
        done = subprocess.run([PROGRAM, "serve", models["gla"], "--port", "0", "--states", tmp_path],
                              capture_output=True, text=True, timeout=100)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert f"{tmp_path}: is in use by process {first.process.pid} on " in done.stderr
        first.post("/states", name="kept", prompt="abc")
        first.process.kill()  # no lock is left behind
        first.process.wait()
    with Server(models["gla"], "--states", tmp_path) as again:
        assert [state["name"] for state in again.ask("GET", "/states")["states"]] == ["kept"]


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
    (tmp_path / f"n0.safetensors.{server.process.pid}.tmp").write_text("half of a state")
    with Server(models["gla"], "--states", tmp_path):
        assert not list(tmp_path.glob("*.tmp"))


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
