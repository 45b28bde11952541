"""The examples of docs/serve.md run as they stand, against a server on a free port."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import PROGRAM, ROOT, Server, train

PAGE = (ROOT / "docs/serve.md").read_text()
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(train(tmp_path_factory.mktemp("models"), "tiny")) as one:
        yield one


def run(command: list[str], text: str, server: Server) -> str:
    text = text.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(server: Server) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl")
    chat, states = blocks("bash")
    assert json.loads(run(["bash", "-e"], chat, server))["choices"][0]["message"]["role"] == "assistant"
    answers = run(["bash", "-e"], states.replace("\ncurl", "\necho; curl"), server).splitlines()
    made, text, listed = (json.loads(line) for line in answers)
    assert made["name"] == "story" and text["choices"] and {s["name"] for s in listed["states"]} == {"story", "later"}


def test_python(server: Server) -> None:
    pytest.importorskip("openai")
    (block,) = blocks("python")
    run([sys.executable, "-"], block, server)


def test_javascript(server: Server) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("no node")
    (block,) = blocks("js")
    assert run([node, "--input-type=module", "-"], block, server)


def test_unit_and_container() -> None:
    (unit,), (container,) = blocks("ini"), blocks("dockerfile")
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit)
    assert " serve " in parser["Service"]["ExecStart"] and container.startswith("FROM debian")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("no systemd-analyze")
    (block,) = blocks("ini")
    unit = tmp_path / "horner.service"
    unit.write_text(block.replace("ExecStart=/opt/horner/horner ", f"ExecStart={sys.executable} "))  # a file that is here
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and str(unit) not in done.stderr and unit.name not in done.stderr, done.stderr


def test_every_setting_of_the_page_is_one() -> None:
    help_text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for flag in set(re.findall(r"`(--[a-z_]+)", PAGE)):
        assert flag in help_text, flag
