"""Every command and example in a document does what the document says."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs/results/README.md").read_text()
PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"

needs_program = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of a document; ./horner is the built program, since the launcher is tested by ./test."""
    words = shlex.split(command, comments=True)
    assert words[0] == "./horner"
    return subprocess.run([PROGRAM, *words[1:]], cwd=cwd, capture_output=True, text=True)


def documented() -> list[tuple[str, str]]:
    """The commands of docs/ with their page, less those that take minutes: the contract on all ops, which
    a test of its own runs property by property, the default comparison and the whole demo."""
    lines = [(page.stem, line) for page in sorted((ROOT / "docs").glob("*.md"))
             for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    return [line for line in lines if not re.match(r"./horner (verify|compare|demo)( +#|$)", line[1])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The commands of a page share a folder: one may read what an earlier one wrote."""
    made = {page: tmp_path_factory.mktemp(page) for page in dict.fromkeys(page for page, _ in documented())}
    (made["text"] / "books").mkdir()  # what the user of docs/text.md has
    for name in ("notes.txt", "books/one.txt", "books/two.txt"):
        (made["text"] / name).write_text(README)
    (made["data"] / "notes.txt").write_text(README)
    return made


@needs_program
@pytest.mark.parametrize("page, command", documented())
def test_command(page: str, command: str, folders: dict[str, Path]) -> None:
    done = run(command, folders[page])
    assert done.returncode == 0, done.stderr
    assert done.stdout


@needs_program
def test_the_results_have_a_page_of_every_paper() -> None:
    listed = run("./horner reproduce --list", ROOT).stdout.splitlines()
    names = [line.split("  ")[0] for line in listed if not line.startswith(" ")]
    assert len(names) == 12
    for name in names:
        assert f"({name}.md)" in RESULTS
        assert (ROOT / f"docs/results/{name}.md").is_file()


@needs_program
def test_readme_tables() -> None:
    tables = run("./horner list --markdown", ROOT).stdout.split("\n\n")
    tasks = (ROOT / "docs/tasks.md").read_text()
    assert len(tables) == 3 and all(table.strip() in README for table in tables[:2]) and tables[2].strip() in tasks


@needs_program
def test_the_results_have_every_claim_with_its_verdict() -> None:
    """The table of all claims and its summary in the README are what the findings in docs/results make."""
    count, table = run("./horner reproduce --table", ROOT).stdout.strip().split("\n\n")
    assert len(table.splitlines()) >= 33 and table in RESULTS
    assert count in README and count in RESULTS


@needs_program
def test_results_are_the_pages_of_their_findings(tmp_path: Path) -> None:
    """No page under docs/results was typed: each follows from its JSON file."""
    for source in sorted((ROOT / "docs/results").glob("*.json")):
        if '"findings"' in source.read_text():
            (tmp_path / source.name).write_text(source.read_text())
    done = run(f"./horner reproduce --pages --out {tmp_path}", ROOT)
    assert done.returncode == 0, done.stderr
    for page in sorted(tmp_path.glob("*.md")):
        assert page.read_text() == (ROOT / "docs/results" / page.name).read_text(), page.name
        assert not re.search(r"(?<!--)scale [cg]pu", page.read_text()), page.name  # small scale, full scale


@needs_program
def test_readme_cost_is_what_the_program_measures() -> None:
    def state(mixer: str, T: int) -> float:
        told = json.loads(run(f"./horner explain {mixer} --D 1024 --T 2 --json", ROOT).stdout)
        (bytes_,) = [row["state_bytes"] for row in told["state"] if row["T"] == T]
        return bytes_ / 2**20

    text = " ".join(README[README.index("**The honest cost.**"):].split())
    assert f"softmax {state('softmax:heads=16', 256) * 2:.0f} MiB, gla {state('gla', 256):.1f} MiB" in text
    assert f"0.64 MiB, of order 4 already {state('taylor:order=4,heads=64', 256):.1f} MiB" in text
    assert f"{state('taylor:order=2,heads=64', 256):.2f}" == "0.64"


def test_readme_results_are_those_of_their_page() -> None:
    """Numbers and verdicts that README tells of the first paper stand on its page."""
    page = (ROOT / "docs/results/taylor.md").read_text()
    told = README[README.index("Results of the first paper"):README.index("[Its page](docs/results/taylor.md)")]
    for claim, verdict in (("norm", "holds"), ("kernel", "holds"), ("probe", "holds"), ("orders", "untested")):
        assert f"*{verdict}*" in told and f"| {claim} | full | {verdict} |" in page, claim
    for claim, arm, loss in (("norm", "norm l2", "1.347"), ("norm", "softmax", "1.378"), ("kernel", "relu, l2", "1.743"),
                             ("orders", "order 0", "2.22"), ("orders", "order 2", "1.42"), ("orders", "order 4", "1.28"),
                             ("orders", "order 8", "1.25"), ("orders", "softmax", "1.24")):
        section = page[page.index(f"## {claim}, full scale"):]
        found = re.search(rf"^\| {arm} \| ([\d.]+) ±", section, re.MULTILINE)
        assert found and loss in told and abs(float(found[1]) - float(loss)) <= 0.5 * 10 ** -(len(loss) - 2), (claim, arm)


@needs_program
def test_readme_comparison_is_one_run() -> None:
    """The table, the sentence and the picture are what the program makes of one kept result."""
    if not (ROOT / "docs/results/compare_default.json").is_file():
        pytest.skip("no result is kept: ./horner compare && python tools/readme_compare.py runs/compare")
    done = subprocess.run([sys.executable, ROOT / "tools/readme_compare.py", "--check", "--program", PROGRAM],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_program
def test_page_of_verify_has_the_rows_of_today() -> None:
    page = (ROOT / "docs/verify.md").read_text()
    shown = next(block for block in blocks(page, "text") if "The contract on" in block).splitlines()
    today = run("./horner verify --op linear --device cpu", ROOT).stdout.splitlines()

    def properties(lines: list[str]) -> list[str]:
        start = next(i for i, line in enumerate(lines) if line.startswith("---"))
        return [re.split(r"  +", line)[0] for line in lines[start + 1:] if "  " in line]

    assert properties(shown) == properties(today)
    assert re.fullmatch(r"All \d+ checks hold\.", shown[-1])


def test_readme_python() -> None:
    (example,) = blocks(README, "python")
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(example, "README.md", "exec"), {})
    errors = [float(line.split("(")[1].split(",")[0].rstrip(")")) for line in out.getvalue().splitlines()]
    assert len(errors) == 3 and errors[0] < 0.1 and errors[1] < 0.01 and errors[2] < 1e-4, errors


def test_every_command_has_a_page() -> None:
    listed = re.findall(r'\{"(\w+)", "', (ROOT / "src/cli/command.h").read_text())
    assert listed and all((ROOT / f"docs/{name}.md").is_file() for name in listed)


@needs_program
def test_pages_of_the_mixers_are_current(tmp_path: Path) -> None:
    done = run(f"./horner list --pages {tmp_path}", ROOT)
    assert done.returncode == 0, done.stderr
    kept = ROOT / "docs/mixers"
    assert {path.name for path in kept.iterdir()} == {path.name for path in tmp_path.iterdir()}
    for page in tmp_path.glob("*.md"):
        assert page.read_text() == (kept / page.name).read_text(), f"{page.name}: ./horner list --pages docs/mixers"
    for picture in tmp_path.glob("*.svg"):  # the shades of a random layer may differ between machines
        assert (kept / picture.name).read_text().startswith(picture.read_text().split(">")[0])


MIXERS = sorted(page.stem for page in (ROOT / "docs/mixers").glob("*.md") if page.stem != "README")


@needs_program
@pytest.mark.parametrize("mixer", MIXERS)
def test_examples_of_a_mixer(mixer: str) -> None:
    page = (ROOT / f"docs/mixers/{mixer}.md").read_text()
    (command,), (example,) = blocks(page, "sh"), blocks(page, "python")
    done = run(command.strip(), ROOT)
    assert done.returncode == 0 and done.stdout.startswith(f"{mixer}  (arXiv:"), done.stderr
    made: dict[str, torch.Tensor] = {}
    exec(compile(example, f"{mixer}.md", "exec"), made)
    assert made["y"].shape == (2, 32, 64)


@needs_program
def test_pictures_of_the_concepts(tmp_path: Path) -> None:
    """Those that do not depend on random numbers are the ones of the document."""
    done = run(f"./horner explain --concepts {tmp_path}", ROOT)
    assert done.returncode == 0, done.stderr
    for name in ("series", "forms"):
        assert (tmp_path / f"{name}.svg").read_text() == (ROOT / f"docs/concepts/{name}.svg").read_text()
    assert (tmp_path / "capacity.svg").is_file() and (ROOT / "docs/concepts/capacity.svg").is_file()


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "HACKING.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target


def test_notation_covers_the_letters_of_the_headers() -> None:
    notation = (ROOT / "docs/notation.md").read_text()
    for letter in ("B", "T", "H", "G", "C", "N", "F", "S"):
        assert f"| {letter} |" in notation, letter
