"""Every command and example in a document does what the document says."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
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
    a test of its own runs property by property, and the default comparison."""
    lines = [(page.stem, line) for page in sorted((ROOT / "docs").glob("*.md"))
             for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    return [line for line in lines if not re.match(r"./horner (verify|compare)( +#|$)", line[1])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The commands of a page share a folder: one may read what an earlier one wrote."""
    made = {page: tmp_path_factory.mktemp(page) for page in dict.fromkeys(page for page, _ in documented())}
    (made["text"] / "books").mkdir()  # what the user of docs/text.md has
    for name in ("notes.txt", "books/one.txt", "books/two.txt"):
        (made["text"] / name).write_text(README)
    return made


@needs_program
@pytest.mark.parametrize("page, command", documented())
def test_command(page: str, command: str, folders: dict[str, Path]) -> None:
    done = run(command, folders[page])
    assert done.returncode == 0, done.stderr
    assert done.stdout


@needs_program
def test_readme_links_the_results_of_every_paper() -> None:
    listed = run("./horner reproduce --list", ROOT).stdout.splitlines()
    names = [line.split("  ")[0] for line in listed if not line.startswith(" ")]
    assert len(names) == 9
    for name in names:
        assert f"(docs/results/{name}.md)" in README
        assert (ROOT / f"docs/results/{name}.md").is_file()


@needs_program
def test_readme_tables() -> None:
    tables = run("./horner list --markdown", ROOT).stdout.split("\n\n")
    assert len(tables) == 3 and all(table.strip() in README for table in tables)


@needs_program
def test_readme_verify_has_the_rows_of_today() -> None:
    shown = next(block for block in blocks(README, "text") if "The contract on" in block).splitlines()
    today = run("./horner verify --op linear --device cpu", ROOT).stdout.splitlines()

    def properties(lines: list[str]) -> list[str]:
        start = next(i for i, line in enumerate(lines) if line.startswith("---"))
        return [re.split(r"  +", line)[0] for line in lines[start + 1:] if "  " in line]

    assert properties(shown) == properties(today)
    assert re.fullmatch(r"All \d+ checks hold\.", shown[-1])


def test_readme_python() -> None:
    (example,) = blocks(README, "python")
    exec(compile(example, "README.md", "exec"), {})


def test_readme_cpp() -> None:
    (example,) = blocks(README, "cpp")

    def squeezed(text: str) -> str:
        return " ".join(text.split())

    source = (ROOT / "src/ops/readme_test.cpp").read_text()
    head = re.search(r"// begin\n(.*?)// middle\n", source, re.DOTALL)
    body = re.search(r"TEST\(.*?\{\n(.*?)  // end\n", source, re.DOTALL)
    assert head and body
    assert squeezed(example) == squeezed(head[1] + body[1])


def test_every_command_has_a_page() -> None:
    listed = re.findall(r'\{"(\w+)", "', (ROOT / "src/cli/command.h").read_text())
    assert listed and all((ROOT / f"docs/{name}.md").is_file() for name in listed)


def test_notation_covers_the_letters_of_the_headers() -> None:
    notation = (ROOT / "docs/notation.md").read_text()
    for letter in ("B", "T", "H", "G", "C", "N", "F", "S"):
        assert f"| {letter} |" in notation, letter
