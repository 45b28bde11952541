"""The C++ package: installed, found by CMake, and used by the programs of examples/ as docs/cpp.md says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import horner
import sanitizer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cpp.md").read_text()
README = (ROOT / "README.md").read_text()
BUILD = Path(os.environ.get("HORNER_LIBRARY", ""))
EXAMPLES = ("replace", "stream", "train", "gpu")
FROM_README = ("call_an_op", "write_text")

needs_build = pytest.mark.skipif(
    not (BUILD / "CMakeCache.txt").is_file() or bool(sanitizer.LIBRARIES),
    reason="HORNER_LIBRARY is no build folder, or one with sanitizers",
)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = dict(os.environ)
    if clang := shutil.which("clang++"):  # reads torch's headers in half the time of g++, which works too
        environment.setdefault("CXX", clang)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples, and the README's as two more, built against the package by the page's own commands."""
    folder = tmp_path_factory.mktemp("package")
    examples = folder / "examples"
    shutil.copytree(ROOT / "examples", examples, ignore=shutil.ignore_patterns("text"))
    own = (examples / "gpu/CMakeLists.txt").read_text()
    for name, example in zip(FROM_README, blocks(README, "cpp"), strict=True):
        lines = example.splitlines()
        head = [line for line in lines if line.startswith("#include")]
        body = [line for line in lines if line not in head]
        (examples / name).mkdir()
        (examples / name / f"{name}.cpp").write_text("\n".join([*head, "int main() {", *body, "}\n"]))
        (examples / name / "CMakeLists.txt").write_text(own.replace("gpu", name))
    all_of_them = (examples / "CMakeLists.txt").read_text()
    (examples / "CMakeLists.txt").write_text(all_of_them.replace("train gpu", f"train gpu {' '.join(FROM_README)}"))
    (commands,) = blocks(PAGE, "shell")
    commands = commands.replace("build/PRESET", str(BUILD)).replace("DIR", str(folder / "installed"))
    run("sh", "-e", "-c", commands, cwd=folder)
    return folder


@needs_build
@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, folder: Path) -> None:
    """It prints what the page shows."""
    printed = run(folder / f"build/examples/{name}/{name}", cwd=folder)
    expected = PAGE.split(f"`examples/{name}/{name}.cpp`")[1].split("```text\n")[1].split("```")[0]
    if name == "gpu" and not printed.startswith("runs on the CPU"):
        expected = r"form: .* kernel, state: 131072 bytes\nrelative error below 1e-2: yes\n"
        assert re.fullmatch(expected, printed)
    elif name == "gpu":  # another machine may have another reason
        assert printed.splitlines()[1:] == expected.splitlines()[1:]
    else:
        assert printed == expected


@needs_build
@pytest.mark.slow
def test_readme(folder: Path) -> None:
    printed = run(folder / "build/examples/call_an_op/call_an_op")
    assert printed == "chunked form, state of 8192 bytes\n"


@needs_build
@pytest.mark.slow
def test_readme_writes_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of bytes stands where `horner get` puts the README's. The text is the greedy one, computed in Python."""
    model = horner.nn.Model(pattern=["softmax:heads=2"], layers=2, D=32, vocabulary=257, seed=1)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(10 if p.dim() == 2 else 1)  # large weights: the text changes from token to token
        model.head_weight[128:] = 0  # ASCII
    horner.save(model, folder / "cache/horner/smollm2-135m")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    tokens = list(b"The capital of France is")
    begin = len(tokens)
    while len(tokens) < begin + 40:
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert max(tokens) < 128 and len(set(tokens[begin:])) > 3
    program = folder / "build/examples/write_text/write_text"
    assert run(program) == bytes(tokens[begin:]).decode()


@needs_build
@pytest.mark.slow
def test_error_is_caught(folder: Path) -> None:
    """An exception of the library reaches the program as horner::Error."""
    program = [folder / "build/examples/stream/stream", "no_such_folder"]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith("stream: no_such_folder") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short(name: str) -> None:
    assert len((ROOT / f"examples/{name}/{name}.cpp").read_text().splitlines()) < 60


@needs_build
@pytest.mark.slow
def test_symbols(folder: Path) -> None:
    """The library shows what its headers declare, and nothing of torch's or JSON's templates."""
    library = folder / "installed/lib/libhorner.so"
    version = re.search(r"project\(horner VERSION (\d+\.\d+)\.", (ROOT / "CMakeLists.txt").read_text())
    assert version and f"libhorner.so.{version[1]}" in run("readelf", "-d", library)
    shown = [line.split()[2] for line in run("nm", "-D", "--defined-only", library).splitlines()]
    public = {name.split("@")[0] for name in shown if name.endswith(f"@@HORNER_{version[1]}")}
    private = {name for name in shown if name.endswith("@@HORNER_PRIVATE")}
    assert all(re.match(r"_Z(N|NK|T[VIS]N)6horner", name) for name in public)
    assert "_ZN6horner7versionEv" in public and len(private) < 50
    assert len(shown) - len(public) - len(private) <= 2  # the names of the two versions themselves
    hidden = "_ZN6horner6xxh128"  # of core/hash.h, which is not public
    assert hidden in run("nm", "-D", "--defined-only", BUILD / "libhorner.so")
    assert not any(name.startswith(hidden) for name in shown)


@needs_build
@pytest.mark.slow
def test_no_folder_leaks(folder: Path) -> None:
    """The include path of a program gets one folder with one name."""
    include = folder / "installed/include"
    assert [path.name for path in include.iterdir()] == ["horner"]
    for header in include.rglob("*.h"):
        assert not re.search(r'#include "', header.read_text()), header


@needs_build
@pytest.mark.slow
def test_another_torch_is_refused(folder: Path) -> None:
    """The message names the version to install."""
    header = folder / "torch/include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text('#define TORCH_VERSION \\\n  "2.12.0"\n')
    configure = ["cmake", "-S", folder / "examples/gpu", "-B", folder / "other"]
    configure += [f"-DCMAKE_PREFIX_PATH={folder}/installed", f"-DHORNER_TORCH={folder}/torch"]
    done = subprocess.run(configure, capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1 and "built for torch 2.11" in said and "2.12.0" in said
    assert "pip install torch==2.11.0" in said


@needs_build
@pytest.mark.slow
def test_fetch_content(tmp_path: Path) -> None:
    """As a part of another build: configured, and a program compiled. The library itself is compiled by other tests."""
    app, fetch = (re.sub(r"# .*", "", block) for block in blocks(PAGE, "cmake"))
    (tmp_path / "CMakeLists.txt").write_text(
        app.replace("find_package(horner CONFIG REQUIRED)\n", fetch)
    )
    (tmp_path / "app.cpp").write_text(
        "#include <horner/core/version.h>\nint main() { return horner::version()[0] == 0; }\n"
    )
    cache = (BUILD / "CMakeCache.txt").read_text()
    torch = re.search(r"^HORNER_TORCH:PATH=(.*)$", cache, re.MULTILINE)
    assert torch
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DHORNER_SOURCE={ROOT}",
        f"-DHORNER_TORCH={torch[1]}", "-DHORNER_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Release")
    run("ninja", "-C", tmp_path / "build", "CMakeFiles/app.dir/app.cpp.o")
    targets = run("ninja", "-C", tmp_path / "build", "-t", "targets", "all")
    assert "horner_package" in targets and "horner_test" not in targets
