"""The page of `horner compare` in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from chromium import Browser

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare")
    subprocess.run(
        [PROGRAM, "compare", "softmax", "taylor", "rg_lru", "--task", "mqar:T=16,pairs=2,vocabulary=64", "--model.D",
         "16", "--schedule.steps", "6", "--eval.every", "2", "--eval.examples", "10", "--seeds", "2", "--lengths",
         "32", "--speed_lengths", "16,32", "--device", "cpu", "--out", out], check=True, capture_output=True)
    return out / "report.html"


def test_no_problem_in_any_mode(browser: Browser, page: Path) -> None:
    for kind in browser.in_every_mode(page):
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1") or kind == "print"


def test_verdict_comes_first(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    assert browser.run("document.querySelector('h1').nextElementSibling.className") == "verdict"
    assert browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)") == [
        "Score and state", "Differences", "Runs", "Where it is right", "Trained short, tested long", "Cost",
        "Who reads whom"]
    assert browser.run("document.querySelector('footer').textContent.includes('./horner compare softmax')")


def test_sorts_by_state(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    names = "[...document.querySelector('table.sorts').tBodies[0].rows].map(row => row.cells[0].textContent)"
    state = browser.run("[...document.querySelectorAll('th button')].map(b => b.textContent)").index("state")
    browser.click("th button", state)
    rising = browser.run(names)
    assert rising[0] == "rg_lru" and rising[3].startswith("chance")  # what has no state stays last
    browser.click("th button", state)
    assert browser.run(names)[2] == "rg_lru"


def test_marks_tell_their_numbers(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    browser.hover("path.mark", 1)
    assert browser.run("document.getElementById('tip').textContent").startswith("taylor: accuracy ")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    browser.run("document.querySelectorAll('path.mark')[0].focus()")  # by the keyboard too
    assert browser.run("document.getElementById('tip').textContent").startswith("softmax: accuracy ")


def test_details_open(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    browser.click("summary", 1)
    assert browser.run("document.querySelectorAll('details')[1].open")
