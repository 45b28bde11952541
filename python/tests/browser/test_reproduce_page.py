"""The page of `horner reproduce` in a browser."""

import os
import shutil
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


def test_verdict_first_and_every_claim_last(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert "Holds: 1 (conditions)" in browser.run("document.querySelector('.verdict').innerText")
    tables = browser.run("[...document.querySelectorAll('table.sorts')].map(t => t.textContent)")
    assert len(tables) >= 3 and "conditions" in tables[-1] and "holds" in tables[-1]
    assert browser.run("[...document.querySelectorAll('h2')].at(-1).textContent") == "Claims"
    assert browser.run("[...document.querySelectorAll('details')].at(-1).open") is False


def test_arms_sort_by_number(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    buttons = browser.run("[...document.querySelectorAll('th button')].map(b => b.textContent)")
    browser.click("th button", buttons.index("value"))
    values = browser.run("[...document.querySelectorAll('table.sorts')[1].tBodies[0].rows]"
                         ".map(row => Number(row.cells[1].textContent))")
    assert values == sorted(values) and values[0] == 0 and values[-1] == 3


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of the findings in docs/results."""
    folder = tmp_path_factory.mktemp("committed")
    for paper in ("measure", "dsf"):  # mad has none yet
        shutil.copy(Path(__file__).resolve().parents[3] / f"docs/results/{paper}.json", folder)
    subprocess.run([PROGRAM, "reproduce", "measure", "dsf", "mad", "--pages", "--out", folder], check=True,
                   capture_output=True)
    return folder


def test_rows_stack_on_a_phone(browser: Browser, committed: Path) -> None:
    """Sentences get the whole width: no column of one-word lines."""
    browser.size(390, 800, True)
    for paper in ("measure", "dsf", "mad"):
        browser.open(committed / f"{paper}.html")
        widths = browser.run("""[...document.querySelectorAll('td.long')].filter(d => d.getClientRects().length)
            .map(d => d.getBoundingClientRect().width)""")
        assert widths and min(widths) > 300, paper
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1")
        assert browser.problems() == []


def test_numbers_in_bands_are_drawn(browser: Browser, committed: Path) -> None:
    browser.size(390, 800, True)
    browser.open(committed / "measure.html")
    assert browser.run("document.querySelectorAll('figure svg.narrow').length") >= 4
    assert browser.run("document.documentElement.scrollHeight") < 12000
    text = browser.run("document.querySelector('main').innerText")
    assert "`" not in text and "^-1" not in text
    assert browser.run("document.querySelectorAll('a[href^=\"https://arxiv.org/abs/\"]').length") >= 1


def test_arms_have_colours_equations_and_a_task(browser: Browser, committed: Path) -> None:
    browser.size(1100, 800)
    browser.open(committed / "dsf.html")
    assert browser.run("document.querySelectorAll('g.grey .bar').length") == 0
    assert browser.run("document.querySelectorAll('math').length") >= 4
    assert browser.run("document.querySelectorAll('.tokens .key').length") >= 8
    browser.open(committed / "mad.html")
    assert "Every mixer" not in browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
