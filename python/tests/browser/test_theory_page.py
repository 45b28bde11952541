"""The page of `horner theory` in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from chromium import Browser

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theory")
    subprocess.run([PROGRAM, "theory", "--lengths", "16,64", "--training", "16,32", "--repeats", "16", "--queries", "2",
                    "--runs", "2", "--horizon", "1", "--device", "cpu", "--out", folder], capture_output=True)
    return folder / "theory.html"


def test_no_problem_in_any_mode(browser: Browser, page: Path) -> None:
    for kind in browser.in_every_mode(page):
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth + 1") or kind == "print"


def test_no_chart_is_squeezed(browser: Browser, page: Path) -> None:
    browser.size(1280, 800)
    browser.open(page)
    widths = browser.run("""[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length)
        .map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)""")
    assert len(widths) == 7 and min(widths) >= 1


def test_claims_are_folded_after_the_charts(browser: Browser, page: Path) -> None:
    browser.size(1280, 800)
    browser.open(page)
    assert browser.run("""[...document.querySelectorAll('section')].pop().innerText.startsWith('Claims')
        && !document.querySelector('section:last-of-type details').open""")


def test_letters_are_defined_and_typeset(browser: Browser, page: Path) -> None:
    browser.size(390, 800, True)
    browser.open(page)
    defined = browser.run("[...document.querySelectorAll('section dt')].map(d => d.textContent).join(' ')")
    for letter in ("m", "Γ", "a", "U", "t", "c"):
        assert letter in defined.replace(",", "").split(), letter
    assert browser.run("document.querySelectorAll('math').length") >= 4
    assert "become linear attention?" in browser.run("document.querySelector('.verdict').innerText")
    captions = browser.run("[...document.querySelectorAll('figcaption')].map(c => c.innerText)")
    assert sum("Dashed: the closed form" in caption for caption in captions) >= 4
