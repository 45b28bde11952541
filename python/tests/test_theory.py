"""What `horner theory` writes: a page without a network, pictures that parse, JSON that agrees with the words."""

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")

SMALL = ["theory", "--d", "2", "--lengths", "64,256", "--repeats", "200", "--training", "8,32",
         "--runs", "2", "--horizon", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("theory")
    done = subprocess.run([PROGRAM, *SMALL, "--out", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_a_sentence_for_every_claim(folder: tuple[Path, str]) -> None:
    path, said = folder
    claims = json.loads((path / "theory.json").read_text())["claims"]
    assert len(claims) > 30
    for claim in claims:
        assert f'{claim["verdict"]}: {claim["statement"]}' in said


def test_curves(folder: tuple[Path, str]) -> None:
    report = json.loads((folder[0] / "theory.json").read_text())
    assert {c["part"] for c in report["curves"]} == {
        "concentration", "random query", "regression", "dynamics"}
    for curve in report["curves"]:
        lengths = [8, 32] if curve["part"] == "dynamics" else [64, 256]
        assert [p["L"] for p in curve["points"]] == lengths
    limit = [t for t in report["trajectories"] if t["L"] is None]
    assert len(limit) == 2 and all(t["risk"][-1] < t["risk"][0] for t in limit)


def test_page_and_pictures(folder: tuple[Path, str]) -> None:
    page = (folder[0] / "theory.html").read_text()
    assert not re.search(r"(src|href)=[\"']?https?:", page)
    pictures = sorted(folder[0].glob("*.svg"))
    assert len(pictures) == 7
    for picture in pictures:
        ElementTree.parse(picture)
