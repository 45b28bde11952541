"""horner score: answers follow from texts, every token counts once, bad files are one line."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}  # several tests run at once
TEXT = "The quick brown fox jumps over the lazy dog, and žluť is a word of two odd letters. " * 9


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, mixer in (("one", "gla:heads=2"), ("two", "softmax:heads=2")):
        subprocess.run(
            [PROGRAM, "train", "--task", "byte:data=grammar,T=64", "--device", "cpu", "--model.pattern", mixer,
             "--model.D", "16", "--schedule.steps", "20", "--train.batch", "8", "--eval.examples", "8", "--name", name,
             "--out", folder], check=True, capture_output=True, env=ENV)
    return folder


def run(models: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [PROGRAM, "score", models / "one", "--device", "cpu", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=ENV)


def scored(models: Path, *arguments: str | Path) -> Any:
    done = run(models, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def total(models: Path, folder: Path, text: str) -> float:
    """-log p of a text that begins a document."""
    (folder / "part.txt").write_text(text)
    score = scored(models, "--text", folder / "part.txt")["texts"][0]
    return float(score["nats"]["mean"] * score["tokens"])


@pytest.mark.parametrize("context, stride", [(2048, 0), (50, 0), (50, 7), (10, 1), (1, 1)])
def test_every_token_is_scored_once(models: Path, tmp_path: Path, context: int, stride: int) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    score = scored(models, "--text", tmp_path / "a.txt", "--context", str(context), "--stride", str(stride))
    text = score["texts"][0]
    assert text["tokens"] == text["bytes"] == len(TEXT.encode())
    assert sum(row["tokens"] for row in text["by_position"]) == text["tokens"]
    mean = sum(row["tokens"] * row["nats"] for row in text["by_position"]) / text["tokens"]
    assert mean == pytest.approx(text["nats"]["mean"])
    assert text["bits_per_byte"] == pytest.approx(text["nats"]["mean"] / 0.6931471805599453)


def last_byte(models: Path, folder: Path, text: str) -> float:
    """-log p of the last byte, when the others are read without a token before them: the second of two windows."""
    (folder / "part.txt").write_text(text)
    context = str(len(text) - 1)
    arguments = ["--text", folder / "part.txt", "--context", context, "--stride", "1"]
    both, first = scored(models, *arguments)["texts"][0], scored(models, *arguments, "--limit", "1")["texts"][0]
    assert (both["windows"], first["windows"], both["tokens"]) == (2, 1, len(text))
    return float(both["nats"]["mean"] * both["tokens"] - first["nats"]["mean"] * first["tokens"])


def nats_after(models: Path, folder: Path, question: str, answer: str) -> float:
    """The sum over bytes, each from all before it."""
    whole = question + answer
    return sum(last_byte(models, folder, whole[:n]) for n in range(len(question) + 1, len(whole) + 1))


def test_answers_are_the_bytes_after_the_question(models: Path, tmp_path: Path) -> None:
    """Spaces at the end of a question belong to the answer; one more stands before each choice."""
    lines = [{"context": "I saw ", "choices": ["a", "it"], "answer": 0}]
    nats = [nats_after(models, tmp_path, "I saw", "  " + choice) for choice in ("a", "it")]
    (tmp_path / "q.jsonl").write_text(json.dumps({**lines[0], "answer": nats.index(min(nats))}))
    score = scored(models, "--choices", tmp_path / "q.jsonl")["questions"][0]
    assert score["nats"][0] == pytest.approx(nats, abs=1e-3)
    assert score["right"]["value"] == 1 and score["chance"] == 0.5
    (tmp_path / "q.jsonl").write_text(json.dumps({**lines[0], "answer": nats.index(max(nats))}))
    assert scored(models, "--choices", tmp_path / "q.jsonl")["questions"][0]["right"]["value"] == 0


def test_a_shared_end_is_scored_after_each_choice(models: Path, tmp_path: Path) -> None:
    line = {"context": "A met B so", "choices": ["A ran.", "B ran."], "suffix": " ran.", "answer": 0}
    (tmp_path / "q.jsonl").write_text(json.dumps(line))
    score = scored(models, "--choices", tmp_path / "q.jsonl")["questions"][0]
    for who, nats in zip("AB", score["nats"][0], strict=True):
        assert nats == pytest.approx(nats_after(models, tmp_path, f"A met B so {who}", " ran."), abs=1e-3)


def test_pairs(models: Path, tmp_path: Path) -> None:
    pairs = [("The dog runs.", "The dog run."), ("She sees him.", "She see him."), ("Same.", "Same.")]
    expected = [total(models, tmp_path, " " + good) <= total(models, tmp_path, " " + bad) for good, bad in pairs]
    rows = ["linguistics_term\tsentence_good\tsentence_bad", *(f"verbs\t{a}\t{b}" for a, b in pairs)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    score = scored(models, "--pairs", tmp_path / "pairs.tsv")["questions"][0]
    assert score["right"]["value"] == pytest.approx(sum(expected) / 3)
    assert score["by_term"]["verbs"] == score["right"]


def test_last_word(models: Path, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text(json.dumps({"text": "He saw it"}) + "\n")
    score = scored(models, "--last_word", tmp_path / "l.jsonl")["questions"][0]
    nats = nats_after(models, tmp_path, "He saw", " it")
    assert score["nats"] == [[pytest.approx(nats, abs=1e-3)]]
    assert score["perplexity"] == pytest.approx(2.718281828459045 ** nats, rel=1e-2)


def test_against(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    same = scored(models, "--text", tmp_path / "a.txt", "--context", "64", "--against", models / "one")["texts"][0]
    assert abs(same["against"]["kl"]["mean"]) < 1e-6 and same["against"]["same_top"] == 1
    assert same["against"]["difference"]["mean"] == 0
    other = scored(models, "--text", tmp_path / "a.txt", "--context", "64", "--against", models / "two")["texts"][0]
    alone = json.loads(subprocess.run(
        [PROGRAM, "score", models / "two", "--json", "--device", "cpu", "--context", "64", "--text", tmp_path / "a.txt"],
        capture_output=True, text=True, env=ENV, check=True).stdout)["texts"][0]
    assert other["against"]["kl"]["mean"] > 0
    assert other["against"]["nats"] == pytest.approx(alone["nats"]["mean"])
    assert other["against"]["difference"]["mean"] == pytest.approx(other["nats"]["mean"] - alone["nats"]["mean"])


@pytest.mark.parametrize("flag, text, code, said", [
    ("--choices", '{"context": "a"}', 3, "bad:1: has no list 'choices'"),
    ("--choices", '{"context": "a", "choices": ["b", "c"], "answer": 2}', 3, "'answer' must be the place of a choice"),
    ("--choices", '{"context": "a", "choices": ["b", "c"], "answer": 0}\n{', 3, "bad:2: is not JSON"),
    ("--choices", '{"context": "a", "choices": ["b", ""], "suffix": "b", "answer": 0}', 3, "ends with the suffix"),
    ("--pairs", "good\tbad\na\tb\n", 3, "has no columns sentence_good and sentence_bad"),
    ("--pairs", "sentence_good\tsentence_bad\na\n", 3, "bad:2: has 1 cells, the head 2"),
    ("--last_word", '{"text": "one"}', 3, "bad:1: has one word only"),
    ("--text", "", 3, "has no text to score"),
    ("--choices", "\n\n", 3, "is empty"),
])
def test_bad_files_are_one_line(models: Path, tmp_path: Path, flag: str, text: str, code: int, said: str) -> None:
    (tmp_path / "bad").write_text(text)
    done = run(models, flag, tmp_path / "bad")
    assert done.returncode == code and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def test_bad_arguments_are_one_line(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    for words, said in (([], "nothing to score"), (["--text", tmp_path / "a.txt", "--context", "-1"], "context"),
                        (["--text", tmp_path / "a.txt", "--context", "8", "--stride", "9"], "stride"),
                        (["--text", tmp_path / "none.txt"], "none.txt"),
                        (["--text", tmp_path / "a.txt", "--against", tmp_path], "config.json")):
        done = run(models, *words)
        assert done.returncode in (2, 3) and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
