"""The page of `horner explain` in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from chromium import Browser

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    subprocess.run([PROGRAM, "explain", "taylor", "--T", "24", "--out", folder], check=True,
                   capture_output=True)
    return folder / "explain.html"


def column(browser: Browser, table: int, number: int) -> list[str]:
    return browser.run(  # type: ignore[no-any-return]
        f"[...document.querySelectorAll('table.sorts')[{table}].tBodies[0].rows]"
        f".map(row => row.cells[{number}].textContent)")


def test_no_problem_in_any_mode(browser: Browser, page: Path) -> None:
    for kind in browser.in_every_mode(page):
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1") or kind == "print"


def test_dark_is_dark_and_print_is_light(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    curve = "getComputedStyle(document.querySelector('.curve')).stroke"
    browser.media("light")
    light = browser.run(ground), browser.run(curve)
    browser.media("dark")
    dark = browser.run(ground), browser.run(curve)
    assert light[0] == "rgb(255, 255, 255)" and dark[0] == "rgb(20, 24, 28)"
    assert light[1] != dark[1]
    browser.media("dark", "print")
    assert (browser.run(ground), browser.run(curve)) == light
    browser.media("light")


def test_tables_sort_by_number(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    heads = browser.run("[...document.querySelectorAll('table.sorts')].map(t => t.tHead.textContent)")
    table = next(i for i, head in enumerate(heads) if "key/value cache" in head)
    rising = column(browser, table, 2)
    assert rising[0].split()[1] == "B" and rising[-1].split()[1] == "MiB"
    buttons = browser.run("[...document.querySelectorAll('th button')].map(b => b.textContent)")
    cache = buttons.index("key/value cache")
    browser.click("th button", cache)
    assert column(browser, table, 2) == rising
    browser.click("th button", cache)
    assert column(browser, table, 2) == rising[::-1]
    assert browser.run(f"document.querySelectorAll('th')[{cache}].getAttribute('aria-sort')") == "descending"


def test_pointer_shows_the_number(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    assert browser.run("document.getElementById('tip').hidden")
    browser.hover("path.mark")
    assert "at T = 1: " in browser.run("document.getElementById('tip').textContent")
    assert not browser.run("document.getElementById('tip').hidden")
    browser.hover("rect.row", 5)
    assert browser.run("document.getElementById('tip').textContent").startswith("t 6: most weight on s ")
    browser.hover("h1")
    assert browser.run("document.getElementById('tip').hidden")


def test_plots_stand_alone(browser: Browser, page: Path) -> None:
    plots = sorted((page.parent / "plots").glob("*.svg"))
    assert {plot.stem for plot in plots} == {"map", "state", "eigenvalues", "orders"}
    for plot in plots:
        browser.open(plot)
        assert browser.problems() == []
        assert browser.run("document.documentElement.nodeName") == "svg"


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every head of a small model."""
    folder = tmp_path_factory.mktemp("heads")
    for words in (["train", "--task", "byte:data=grammar,T=64", "--model.D", "16", "--schedule.steps", "2",
                   "--eval.examples", "8", "--name", "run", "--out", folder],
                  ["explain", "--model", folder / "run", "--T", "40", "--text", folder / "run/config.json", "--out", folder]):
        subprocess.run([PROGRAM, *words], check=True, capture_output=True)
    return folder / "explain.html"


def test_heads_in_any_mode(browser: Browser, heads: Path) -> None:
    for kind in browser.in_every_mode(heads):
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1") or kind == "print"


def test_a_cell_tells_its_head(browser: Browser, heads: Path) -> None:
    browser.size(1100, 800)
    browser.open(heads)
    assert browser.run("document.querySelectorAll('svg.map rect.cell').length") == 6 * 2 * 4
    browser.hover("rect.cell", 5)
    told = browser.run("document.getElementById('tip').textContent")
    assert told.startswith("layer 1, head 1: ") and told.endswith(" tokens")
