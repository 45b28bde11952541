"""The program's manners: exit codes, one clear line per mistake, results on stdout, JSON that parses."""

import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = (ROOT / "src/cli/examples.h").read_text()
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True)


@pytest.mark.parametrize("words, code, line", [
    (["lst"], 2, "horner: unknown command 'lst'; did you mean 'list'?"),
    (["list", "--mixer", "gal"], 2, "horner list: unknown mixer 'gal'; did you mean 'gla'?"),
    (["list", "--mixer", "gla:head=2"], 2, "horner list: unknown key 'head'; did you mean 'heads'?"),
    (["explain", "gla:heads"], 2, "horner explain: a setting must be name=value, got 'heads'"),
    (["train", "--expect", "tset/accuracy >= 1"], 2, "horner train: 'tset/accuracy' names no score: "),
    (["list", "--task", "mqr"], 2, "horner list: unknown task 'mqr'; did you mean 'mqar'?"),
    (["train", "--steps", "3"], 2, "horner train: unknown flag '--steps'; did you mean '--schedule.steps'?"),
    (["train", "--batch", "3"], 2,
     "horner train: unknown flag '--batch'; did you mean '--train.batch' or '--eval.batch'?"),
    (["bench", "train", "--mixr", "gla"], 2, "horner bench train: unknown flag '--mixr'; did you mean '--mixer'?"),
    (["bench", "train", "--T", "many"], 2, 'horner bench train: T must be an integer, got "many"'),
    (["bench", "runs", "--count", "none"], 2, "horner bench runs: "),
    (["bench", "generate"], 2, "horner bench generate: MODEL is required"),
    (["verify", "--devise", "cpu"], 2,
     "horner verify: unknown flag '--devise'; did you mean '--device'?"),
    (["verify", "--op", "lineer"], 2, "horner verify: unknown op 'lineer'; did you mean 'linear'?"),
    (["verify", "--T", "many"], 2, 'horner verify: T must be an integer, got "many"'),
    (["verify", "--T", "0"], 2, "horner verify: T must be at least 1, got 0"),
    (["verify", "--H", "3", "--G", "2"], 2,
     "horner verify: H must be a multiple of G, got H = 3 and G = 2"),
    (["verify", "--device", "tpu"], 2,
     "horner verify: device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
    (["verify", "--device", "cuda:9"], 5, "horner verify: device cuda:9: "),
    (["theory", "--lengths", "64,32"], 2,
     "horner theory: lengths must increase, got 32 after 64"),
    (["theory", "--repeats", "1"], 2, "horner theory: repeats must be 16 .. 1000000, got 1"),
    (["bench"], 2, "horner bench: say what to time: ops"),
    (["bench", "ops", "--device", "cpu", "--shape", "S9"], 2,
     "horner bench ops: unknown shape 'S9'; did you mean 'S1'?"),
    (["bench", "ops", "--device", "cpu", "--peers", "/nowhere"], 2,
     "horner bench ops: peers run on a GPU, not on cpu"),
    (["verify", "--op", "scan", "--out", "/proc/none"], 1,
     "horner verify: /proc/none: the folder cannot be made: "),
])
def test_a_mistake_is_one_line(words: list[str], code: int, line: str) -> None:
    done = run(*words)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(line)
    assert done.stderr.count("horner") == 1


def test_a_long_mistake_is_a_short_line() -> None:
    done = run("list", "--mixer", "x" * 100_000)
    assert done.returncode == 2 and done.stderr.startswith("horner list: ") and len(done.stderr) < 2100


def test_a_library_of_another_build_is_refused(tmp_path: Path) -> None:
    """As when the program is started while it is being built: a struct may have changed between the two files."""
    library = (PROGRAM.parent / "libhorner.so").read_bytes()
    whole = PROGRAM.read_bytes()
    (headers,) = {text for text in re.findall(rb"(?<![0-9a-f])[0-9a-f]{40}(?=\0)", whole) if text + b"\0" in library}
    (tmp_path / "libhorner.so").symlink_to(PROGRAM.parent / "libhorner.so")
    program = tmp_path / "horner"
    for content, code in ((whole, 0), (whole.replace(headers, headers[::-1]), 1)):
        program.write_bytes(content)
        program.chmod(0o755)
        done = subprocess.run([program, "list", "--mixer", "gla"], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    assert done.stderr == (
        "horner: the program and its library are of different builds; let the build end, then start again\n")


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["verify", "--help"], []])
def test_help(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 0 and "Usage: horner" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("command", re.findall(r'^      \{"([\w ]+)",', EXAMPLES, re.MULTILINE))
def test_help_ends_with_examples_of_its_page(command: str) -> None:
    text = run(*command.split(), "--help").stdout
    page = (ROOT / f"docs/{command.split()[0]}.md").read_text()
    examples = text[text.index("Examples:"):].splitlines()[1:]
    lines = [line.strip() for line in examples if line.strip()]
    assert lines and all(line.startswith("./horner " + command) and line in page for line in lines), lines


def test_a_flag_may_be_spelt_with_either_line() -> None:
    for words in (["--speed_lengths", "16", "--dry-run"], ["--speed-lengths", "16", "--dry_run"],
                  ["--speed-lengths=16", "--dry_run"]):
        done = run("compare", "linear", "--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", *words)
        assert done.returncode == 0, done.stderr
    assert run("list", "--mixer", "gla", "--mark-down").returncode == 2


def on_a_terminal(columns: int, *words: str) -> list[str]:
    """The lines that a command shows on a terminal of that width."""
    inner, outer = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    started = subprocess.Popen([PROGRAM, *words], stdin=outer, stdout=outer, stderr=outer)
    os.close(outer)
    text = b""
    try:
        while more := os.read(inner, 1 << 16):
            text += more
    except OSError:  # the program has closed it
        pass
    os.close(inner)
    assert started.wait() == 0
    return re.split(r"\r\x1b\[K|\r?\n", text.decode())


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_wider_than_the_terminal(columns: int, tmp_path: Path) -> None:
    for words in (["list"], ["list", "--mixer", "gla"], ["--help"], ["train", "--help"], ["compare", "--help"],
                  ["reproduce", "--list"], ["reproduce", "--plan"], ["explain", "taylor:order=4", "--T", "8"],
                  ["explain", "hybrid", "--T", "8"]):
        lines = on_a_terminal(columns, *words)
        assert len(lines) > 10 and max(map(len, lines)) <= columns, max(lines, key=len)
    lines = on_a_terminal(columns, "train", "--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps",
                          "6", "--eval.examples", "16", "--out", str(tmp_path / ("a" * 40)), "--name", "r", "--device", "cpu")
    shown = [line for line in lines if "step " in line]
    assert shown and max(map(len, shown)) < columns, shown
    assert all(re.search(r"step \d/6  .* left  loss .* [KMG]iB  .* tok/s", line) for line in shown), shown


def test_the_table_of_a_comparison_on_a_terminal(tmp_path: Path) -> None:
    """Ten columns do not fit beside each other: they stand in two tables, and no word is broken."""
    words = ["compare", "softmax:position.kind=none", "taylor:order=2,position.kind=none", "--task",
             "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "6", "--seeds", "2", "--speed_lengths",
             "16", "--device", "cpu", "--out", str(tmp_path / "c")]
    for lines in (on_a_terminal(80, *words), on_a_terminal(80, "report", str(tmp_path / "c"))):
        start = next(i for i, line in enumerate(lines) if line.startswith("mixer"))
        shown = "\n".join(lines[start:])
        wide = [line for line in lines[start:] if len(line) > 80 and str(tmp_path) not in line]  # paths stay whole
        assert not wide, shown
        assert shown.count("\nmixer ") == 1 and "Without learning: chance " in shown
        piped = run("report", str(tmp_path / "c")).stdout
        whole = {part for word in piped.split() for part in re.split(r"(?<=[,:])", word)} | {"---"}
        parts = {part for word in shown[:shown.index("Without")].split() for part in re.split(r"(?<=[,:])", word)}
        assert {part for part in parts if not set(part) <= {"-"}} <= whole, parts - whole


def test_help_on_a_terminal_loses_no_word() -> None:
    wide, narrow = run("train", "--help").stdout, on_a_terminal(80, "train", "--help")
    example = [line for line in narrow[narrow.index("Examples:"):] if line.endswith(" \\")]
    assert example  # a long example goes on after a backslash
    text = "".join(line.removesuffix(" \\") for line in narrow)
    assert "".join(text.split()) == "".join(wide.split())


def test_progress_says_of_what() -> None:
    assert re.search(r"scan: 0 of \d+ checks done, 0 s", run("verify", "--op", "scan", "--device", "cpu", "--T", "9").stderr)


def test_dry_runs_as_json() -> None:
    tiny = ["--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "50"]
    plan = json.loads(run("compare", "gla", "linear", *tiny, "--seeds", "2", "--dry-run", "--json").stdout)
    assert [row["mixer"] for row in plan["rows"]] == ["gla", "linear"] and len(plan["runs"]) == 4
    assert plan["seconds"] > 0 and all(row["seconds_per_run"] > 0 for row in plan["rows"])
    cost = json.loads(run("train", *tiny, "--dry-run", "--json").stdout)
    assert cost["parameters"] > 0 and cost["seconds"] > 50 * cost["seconds_per_step"] > 0


def test_a_dry_run_says_how_long() -> None:
    tiny = ["--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "50"]
    assert re.search(r"time of the run +about \d+ s", run("train", *tiny, "--dry-run").stdout)
    assert re.search(r"6 runs of at most 50 steps, \d+ at once: about \d+ s", run(
        "compare", "gla", "linear", *tiny, "--dry-run").stdout)
    large = run("train", "--task", "mqar", "--model.D", "4096", "--model.layers", "48", "--dry-run")
    assert large.returncode == 0 and "not measured: too large to be tried here" in large.stdout


def test_list_of_papers_as_json() -> None:
    papers = json.loads(run("reproduce", "--list", "--json").stdout)
    assert len(papers) >= 9 and papers[0]["name"] == "taylor"
    assert all(paper["arxiv"] and paper["title"] and paper["claims"][0]["says"] for paper in papers)


@pytest.mark.parametrize("mixer, part", [
    ("taylor:order=4,norm=l2", "o_t = y_t / |y_t|, y_t = sum_s p(x_ts) v_s, p(x) = sum_{n<=4} x^n/n!"),
    ("taylor", "o_t = sum_s p(x_ts) v_s / sum_s p(x_ts), p(x) = sum_{n<=2} x^n/n!"),
    ("softmax:norm=none", "o_t = y_t, y_t = sum_s e^{x_ts} v_s"),
    ("softmax:decay=softplus", "sum_s d_ts e^{x_ts} v_s / sum_s d_ts e^{x_ts}"),
    ("linear:norm=none", "o_t = sum_s phi(q_t).phi(k_s) v_s\n"),
    ("gla:norm=none,gate=false", "y_t = o_t\n"),
    ("gla", "y_t = silu(x_t W_r) * rms(o_t)"),
    ("gla:temperature=8", "a = sigmoid(x W1 W2 + b)^{1/8}"),
    ("linear:norm=l2,feature=relu", "o_t = y_t / |y_t|, y_t = sum_s phi(q_t).phi(k_s) v_s"),
    ("linear:norm=gate,feature=relu", "o_t = sigmoid(x_t W_g) y_t / t"),
    ("metala:key=own,augment=false", "+ k_t^T v_t, o_t = q_t S_t/sqrt K, y_t = silu(x_t W_g) * layer(o_t)"),
    ("two_mamba:kernel=exp", "o_t = sum_s d_ts e^{x_ts} v_s / sum_s d_ts e^{x_ts}"),
    ("mamba2:skip=false,head=16", "y_t = C_t S_t\n"),
])
def test_the_equation_is_that_of_the_settings(mixer: str, part: str) -> None:
    shown = run("explain", mixer, "--T", "8").stdout
    assert part in shown and shown.startswith(mixer + "  (arXiv:")


def test_success_names_its_file(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert f"{out}/explain.html" in run("explain", "linear", "--T", "8", "--out", out).stdout
    assert f"{out}/verify.json" in run("verify", "--op", "scan", "--device", "cpu", "--T", "9", "--out", out).stdout
    said = run("bench", "ops", "--op", "scan", "--device", "cpu", "--repeats", "3", "--out", out).stdout.splitlines()[-1]
    assert f"{out}/bench_cpu.md" in said
    assert all((suffix in said) == (tmp_path / f"out/bench_cpu{suffix}").is_file() for suffix in (".md", ".json", ".svg")), said
    written = (tmp_path / "out/bench_cpu.md").read_text()
    assert "`./horner bench ops --op scan --device cpu --repeats 3 --out" in written  # with its flags
    train = ["train", "--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "4",
             "--eval.examples", "16", "--out", out, "--name", "r"]
    first, second = run(*train), run(*train)
    assert f"{out}/r holds the run.\n" in first.stdout and "finished before" not in first.stderr
    assert "Note: this run had finished before; nothing is trained" in second.stderr


@pytest.mark.parametrize("mixer", ["softmax", "linear", "taylor"])
def test_bench_train_has_a_peer_of_the_same_size(mixer: str) -> None:
    words = ["--mixer", mixer, "--D", "16", "--T", "16", "--B", "2", "--steps", "1", "--rounds", "1", "--device", "cpu"]
    done = run("bench", "train", *words, "--peer", sys.executable, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["milliseconds"] > 0 and row["peer_milliseconds"] > 0
    peer = subprocess.run([sys.executable, Path(__file__).resolve().parents[2] / "tools/bench_train_peer.py",
                           *words[:8], "--steps", "1"], capture_output=True, text=True, check=True)
    assert json.loads(peer.stdout)["parameters"] == row["parameters"]


def test_list_takes_little_more_than_a_start() -> None:
    def processor_seconds(*words: str) -> float:
        taken = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert run(*words).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(taken)

    assert processor_seconds("list") < 2 * processor_seconds("list", "--help")


def test_list_json() -> None:
    ops = {op["name"]: op for op in json.loads(run("list", "--json").stdout)["ops"]}
    assert set(ops) == {"attention", "power", "linear", "delta", "scan"}
    assert ops["linear"]["state_bytes"] == 64 * 64 * 4
    assert ops["power"]["state_bytes"] == (1 + 64 + 64 * 65 // 2) * 65 * 4
    assert ops["power"]["options"]["order"]["default"] == 2


def test_list_of_a_mixer() -> None:
    mixers = {mixer["name"]: mixer for mixer in json.loads(run("list", "--json").stdout)["mixers"]}
    assert json.loads(run("list", "--mixer", "gla", "--json").stdout) == mixers["gla"]
    assert set(mixers["gla"]["options"]) <= set(run("list", "--mixer", "gla").stdout.split())


# The same text is the same mixer in every command.
def test_a_mixer_with_settings() -> None:
    line = next(line for line in run("list", "--mixer", "gla:heads=2,conv=4").stdout.splitlines()
                if line.startswith("heads "))
    assert line.split()[1] == "2"
    told = json.loads(run("explain", "gla:heads=2,conv=4", "--T", "8", "--json").stdout)["settings"]
    assert (told["heads"], told["conv"]) == (2, 4)
    plan = run("compare", "gla:heads=2,conv=4", "--dry-run")
    assert plan.returncode == 0 and "gla:heads=2,conv=4" in plan.stdout
    row, = json.loads(run("bench", "train", "--mixer", "gla:heads=2,conv=4", "--D", "16", "--T", "8", "--B", "2",
                          "--steps", "1", "--rounds", "1", "--device", "cpu", "--json").stdout)["rows"]
    assert row["mixer"] == "gla:heads=2,conv=4"


def test_list_of_tasks_json() -> None:
    tasks = {task["name"]: task for task in json.loads(run("list", "--json").stdout)["tasks"]}
    assert {"mqar", "group", "listops", "pathfinder", "icl_linear"} <= set(tasks)
    assert json.loads(run("list", "--task", "group", "--json").stdout) == tasks["group"]
    assert tasks["group"]["options"]["group"]["default"] == "S5"


def test_verify_json(tmp_path: Path) -> None:
    done = run("verify", "--op", "scan,delta", "--device", "cpu", "--T", "9", "--json",
               "--out", str(tmp_path))
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["failed"] == 0
    assert {row["op"] for row in report["rows"]} == {"scan", "delta"}
    assert all(row["error"] <= row["bound"] for row in report["rows"])
    assert json.loads((tmp_path / "verify.json").read_text()) == report
