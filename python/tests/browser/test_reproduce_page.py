"""The page of `horner reproduce` in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from chromium import Browser

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce")
    subprocess.run([PROGRAM, "reproduce", "metala", "--claim", "conditions", "--out", folder],
                   check=True, capture_output=True)
    return folder / "metala.html"


def test_no_problem_in_any_mode(browser: Browser, page: Path) -> None:
    for kind in browser.in_every_mode(page):
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1") or kind == "print"


def test_verdict_first_then_every_claim(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert "Of 1 claims 1 hold, 0 do not, 0 are not shown." in browser.run("document.body.innerText")
    tables = browser.run("[...document.querySelectorAll('table.sorts')].map(t => t.innerText)")
    assert len(tables) == 3 and "conditions" in tables[0] and "holds" in tables[0]


def test_arms_sort_by_number(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    buttons = browser.run("[...document.querySelectorAll('th button')].map(b => b.textContent)")
    browser.click("th button", buttons.index("value"))
    values = browser.run("[...document.querySelectorAll('table.sorts')[1].tBodies[0].rows]"
                         ".map(row => Number(row.cells[1].textContent))")
    assert values == sorted(values) and values[0] == 0 and values[-1] == 3
