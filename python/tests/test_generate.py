"""horner generate: texts, chats on a terminal, and one line for each mistake."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
SMALL = ("--model.D", "16", "--model.layers", "1", "--schedule.steps", "2", "--eval.examples", "8")


def run(*words: object, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([PROGRAM, *map(str, words)], input=stdin, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    text = ROOT / "examples/text/shakespeare.txt"
    run("train", "--task", f"byte:data={text},T=32", *SMALL, "--out", out, "--name", "bytes")
    return out / "bytes"


def text_of(model: Path, *words: object, stdin: str = "") -> str:
    return run("generate", model, "--tokens", 30, *words, stdin=stdin).stdout


def test_the_same_seed_writes_the_same_text(model: Path) -> None:
    text = text_of(model, "--prompt", "ROMEO:")
    assert text == text_of(model, "--prompt", "ROMEO:")
    assert text != text_of(model, "--prompt", "ROMEO:", "--seed", 1)
    assert text_of(model, "--prompt", "ROMEO:", "--temperature", 0) == text_of(
        model, "--prompt", "ROMEO:", "--top_k", 1, "--seed", 5)


def test_a_prompt_from_anywhere(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("JULIET:")
    text = text_of(model, "--prompt", "JULIET:")
    assert text == text_of(model, "--prompt-file", file) == text_of(model, stdin="JULIET:")
    assert text_of(model, "--prompt", "JULIET:", "--echo") == "JULIET:" + text
    assert text_of(model, "--prompt", "")  # from the beginning of a document


def test_json(model: Path) -> None:
    done = run("generate", model, "--prompt", "A", "--tokens", 5, "--logprobs", 2, "--ignored", check=False)
    assert done.returncode == 2
    made = json.loads(run("generate", model, "--prompt", "A", "--tokens", 5, "--logprobs", 2, "--json").stdout)
    assert made["tokens"] == {"prompt": 1, "text": 5} and made["finish"] == "tokens"
    assert len(made["ids"]) == 5 and made["state_bytes"] > 0
    for token in made["logprobs"]:
        assert token["logprob"] <= token["top"][0]["logprob"] <= 0 and len(token["top"]) == 2
    plain = run("generate", model, "--prompt", "A", "--tokens", 5).stdout
    assert plain.rstrip("\n") == made["text"].rstrip("\n")


def test_stop_strings_end_before_themselves(model: Path) -> None:
    text = text_of(model, "--prompt", "A", "--logit_bias", "256:-inf").rstrip("\n")
    stop = text[10:12]
    if "\ufffd" not in stop:
        words = ("--prompt", "A", "--logit_bias", "256:-inf", "--stop", stop.replace("\n", "\\n"))
        assert text_of(model, *words).rstrip("\n") == text[:text.index(stop)].rstrip("\n")


@pytest.mark.parametrize("words, code, line", [
    (["--temperature", "-1"], 2, "temperature must be at least 0, got -1"),
    (["--prompt", "a", "--prompt-file", "b"], 2, "--prompt and --prompt-file exclude each other"),
    (["--prompt-file", "/nowhere"], 3, "/nowhere: "),
    (["--stop", ""], 2, "a stop string is empty"),
    (["--logit_bias", "x"], 2, "logit_bias must be token id:number, as 17:-2.5, got 'x'"),
    (["--chat"], 2, "has no chat template; `--template chatml` uses the ChatML format"),
    (["--chat", "--json"], 2, "--chat takes no --prompt, --prompt-file or --json"),
])
def test_mistakes(model: Path, words: list[str], code: int, line: str) -> None:
    done = run("generate", model, *words, check=False)
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith("horner generate: ") and line in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    done = run("generate", tmp_path / "nothing", check=False)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    run("train", "--task", "mqar:T=16,pairs=2,vocabulary=32", *SMALL, "--out", tmp_path, "--name", "recall")
    done = run("generate", tmp_path / "recall", check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("it is no language model: it was trained on mqar\n")


def test_ctrl_c_ends_the_text_and_says_how_fast_it_was(model: Path) -> None:
    words = [PROGRAM, "generate", model, "--prompt", "A", "--tokens", "1000000", "--logit_bias", "256:-inf"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout and program.stderr
        program.stdout.read(20)
        program.send_signal(signal.SIGINT)
        rest = program.stderr.read().decode()
        program.stdout.read()
        assert program.wait() == 130
    assert "ended by cancelled" in rest and "tok/s" in rest


def test_ctrl_c_ends_a_prompt_that_takes_long(model: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("To be, or not to be. " * 400_000)
    words = [PROGRAM, "generate", model, "--prompt-file", tmp_path / "long.txt"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        time.sleep(5)
        assert program.poll() is None
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=60)
        assert program.returncode == 130
    assert b"ended by cancelled" in rest


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *words: object) -> None:
        self.unread = b""
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.execv(PROGRAM, [str(PROGRAM), *map(str, words)])

    def until(self, text: str) -> str:
        """What it shows up to `text`."""
        deadline = time.monotonic() + 60
        while text.encode() not in self.unread:
            assert time.monotonic() < deadline, self.unread
            if select.select([self.master], [], [], 1)[0]:
                self.unread += os.read(self.master, 4096)
        shown, _, self.unread = self.unread.partition(text.encode())
        return shown.decode(errors="replace")

    def say(self, line: str) -> None:
        os.write(self.master, line.encode() + b"\n")

    def end(self) -> int:
        try:
            while os.read(self.master, 4096):
                pass
        except OSError:  # the terminal is gone with the program
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def test_a_chat_on_a_terminal(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "chat.json"
    chat = Terminal("generate", model, "--chat", "--template", "chatml", "--tokens", 8,
                    "--logit_bias", "256:-inf")
    chat.until("> ")
    chat.say("Hello")
    chat.until("tok/s")
    chat.until("> ")
    chat.say("/fork")
    chat.until("this is copy 2")
    chat.until("[2] > ")
    chat.say("More")
    chat.until("tok/s")
    chat.until("[2] > ")
    chat.say(f"/save {saved}")
    chat.until("4 messages")
    chat.until("[2] > ")
    chat.say("/undo")
    chat.until("2 messages are left")
    chat.until("[2] > ")
    chat.say("/fork 1")
    chat.until("this is copy 1, with 2 messages")
    chat.until("[1] > ")
    chat.say("/undo")
    chat.until("0 messages are left")
    chat.until("[1] > ")
    chat.say("/undo")
    chat.until("there is nothing to take back")
    chat.until("[1] > ")
    chat.say("/what")
    chat.until("/save FILE")
    chat.until("[1] > ")
    chat.say("/quit")
    assert chat.end() == 0
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert messages[2]["content"] == "More"


def test_undo_gives_the_answer_of_a_chat_without_the_message(model: Path, tmp_path: Path) -> None:
    """The same words after /undo, in a pipe: each line is a message, the answers are on stdout."""
    words = ("generate", model, "--chat", "--template", "chatml", "--tokens", 12, "--logit_bias", "256:-inf")
    saved = tmp_path / "chat.json"
    run(*words, stdin=f"One\nTwo\n/undo\nThree\n/save {saved}\n")
    first = json.loads(saved.read_text())
    run(*words, stdin=f"One\nThree\n/save {saved}\n")
    assert json.loads(saved.read_text()) == first
    done = run(*words, "--history", saved, "--system", "Be short.", stdin=f"Four\n/save {saved}\n")
    assert done.stdout
    messages = json.loads(saved.read_text())
    assert messages[0] == {"role": "system", "content": "Be short."} and len(messages) == 7


def test_a_template_that_is_not_understood_is_one_line(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "format.jinja"
    file.write_text("{% for m in messages %}\n{{ m.content | frobnicate }}\n{% endfor %}")
    done = run("generate", model, "--chat", "--template", file, stdin="Hi\n")
    assert done.stderr == ("the chat template, line 2: the filter 'frobnicate' is not known; "
                           "`--template chatml` uses the ChatML format instead\n")


def test_demo(tmp_path: Path) -> None:
    words = ("demo", "--steps", 4, "--samples", 2, "--out", tmp_path / "demo")
    done = run(*words)
    intention = "softmax and gated_deltanet learn Shakespeare (examples/text/shakespeare.txt), byte by byte: 4 steps each."
    assert done.stdout.splitlines()[0] == intention  # no time: 4 steps are not the usual ones
    for mixer in ("softmax", "gated_deltanet"):
        assert f"--- {mixer}, step 4 of 4\nROMEO:" in done.stdout
    page = (tmp_path / "demo/demo.html").read_text()
    for piece in ("What this page shows", "What they write", "ROMEO:", "State of one stream", "Speed of writing",
                  "./horner generate", "<math", "<ol class=\"tokens\">", " nats per byte (less is better). After 8192 tokens it keeps"):
        assert piece in page
    assert " gated_deltanet: fp32, CPU" in page and "the CPU decoder does not know mixer gated_deltanet" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)  # one file, no network
    again = run(*words, "--json")  # the finished runs are read
    made = json.loads(again.stdout)
    softmax, recurrent = made["mixers"]
    assert softmax["result"]["steps"] == 4 and softmax["samples"]
    shown = re.search(r"softmax has a loss of ([\d.]+) ", done.stdout)
    assert shown and f"4, nats per byte {shown[1]}" in page  # the chart's unit is the verdict's
    assert recurrent["speeds"][0]["state_bytes"] == recurrent["speeds"][-1]["state_bytes"]
    assert softmax["speeds"][0]["state_bytes"] < softmax["speeds"][-1]["state_bytes"]


@pytest.mark.parametrize("words, code, line", [
    (("--steps", -1), 2, "steps must be at least 1, got -1"),
    (("--samples", 0), 2, "samples must be at least 1, got 0"),
    (("--text", "/none.txt"), 3, "/none.txt: cannot be opened: No such file or directory"),
    (("--mixers", "sofmax"), 2, "unknown mixer 'sofmax'; did you mean 'softmax'?"),
])
def test_a_demo_that_cannot_run_is_refused_at_once(words: tuple[object, ...], code: int, line: str, tmp_path: Path) -> None:
    done = run("demo", *words, "--out", tmp_path / "demo", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"horner demo: {line}\n")
    assert not (tmp_path / "demo").exists()


def test_a_full_stdout_is_one_line(model: Path) -> None:
    for words in (("generate", model, "--prompt", "A", "--tokens", "5"), ("list", "--json")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "No space left on device" in done.stderr and done.stderr.count("\n") == 1
