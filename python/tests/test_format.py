"""C++ and CUDA files are formatted by clang-format, shell scripts pass shellcheck."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*patterns):
    found = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def check(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


def test_clang_format():
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not program:
        pytest.skip("no clang-format")
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if not re.search(r"version 14\.", version):
        pytest.skip("no clang-format 14; other versions format differently")
    sources = files("src/**/*.h", "src/**/*.cpp", "src/**/*.cu", "src/**/*.cuh", "examples/**/*.cpp")
    check(program, "--dry-run", "-Werror", *sources)


def test_shellcheck():
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck")
    check("shellcheck", "--external-sources", "--source-path=SCRIPTDIR",
          *files("horner", "test", ".ci/run", "tools/*.sh", "tools/run_gtest", "tools/sanitize_kernels"))


@pytest.mark.parametrize("name", files("src/**/*.js"))
def test_script(name):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node")
    check(node, "--check", name)


@pytest.mark.parametrize("name", files("src/**/*.css"))
def test_style(name):
    """Braces balance, every declaration is `name: value;`, every variable that is used is declared somewhere."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / name).read_text(), flags=re.S)
    depth = 0
    for brace in re.findall(r"[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth in (0, 1, 2), f"{name}: braces do not balance"
    assert depth == 0, f"{name}: braces do not balance"
    for block in re.findall(r"\{([^{}]*)\}", text):
        for line in filter(None, map(str.strip, block.split(";"))):
            assert re.fullmatch(r"[a-z-]+[a-z0-9]*\s*:\s*[^:]+", line), f"{name}: {line}"
        assert not block.strip() or block.rstrip().endswith(";"), f"{name}: no ; at the end of {block}"
    declared = set()
    for other in files("src/**/*.css"):
        declared |= set(re.findall(r"(--[a-z0-9]+)\s*:", (ROOT / other).read_text()))
    assert set(re.findall(r"var\((--[a-z0-9]+)", text)) <= declared
