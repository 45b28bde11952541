"""The page of `horner compare` in a browser."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from chromium import Browser

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
ROOT = Path(__file__).resolve().parents[3]
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
    assert browser.run("document.querySelector('h1').nextElementSibling.classList.contains('verdict')")
    assert browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)") == [
        "The task", "Score and state", "Differences", "Runs", "Where it is right", "Trained short, tested long", "Cost",
        "Who reads whom"]
    assert browser.run("document.querySelector('footer').textContent.includes('./horner compare softmax')")


def test_the_task_is_drawn(browser: Browser, page: Path) -> None:
    """Every token of a test example, and below the two questions their answers."""
    browser.size(390, 800, True)
    browser.open(page)
    assert browser.run("document.querySelectorAll('.tokens li').length") == 16
    assert browser.run("document.querySelectorAll('.tokens li i').length") == 2
    assert browser.run("document.querySelector('.tokens').getBoundingClientRect().right <= innerWidth")


def test_keys_and_values_are_told_apart(browser: Browser, page: Path) -> None:
    browser.size(390, 800, True)
    browser.open(page)
    roles = browser.run("[...document.querySelectorAll('.tokens li')].map(l => l.className)")
    assert roles[:4] == ["key", "value", "key", "value"] and roles.count("key") == 4
    heads = browser.run("[...document.querySelectorAll('th button')].map(b => b.textContent)")
    assert "right answers before the first error" in heads and not any("/accuracy" in head for head in heads)
    assert browser.run("document.querySelectorAll('details math').length") >= 3


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


def test_a_row_lights_its_lines(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    lit = "[...new Set([...document.querySelectorAll('.lit')].map(e => e.dataset.key))]"
    faint = "getComputedStyle(document.querySelector('svg [data-key=softmax]')).opacity"
    assert browser.run(lit) == [] and browser.run(faint) == "1"
    browser.hover("tr[data-key=taylor]")
    assert browser.run(lit) == ["taylor"] and browser.run(faint) == "0.2"
    browser.hover("path.mark", 0)
    assert browser.run(lit) == ["softmax"] and browser.run(faint) == "1"
    assert browser.run("document.querySelector('tr[data-key=softmax]').classList.contains('lit')")
    browser.hover("h1")
    assert browser.run(lit) == []


def test_one_colour_per_mixer(browser: Browser, page: Path) -> None:
    browser.size(1100, 800)
    browser.open(page)
    for mixer in ("softmax", "taylor", "rg_lru"):
        colours = browser.run(
            f"[...new Set([...document.querySelectorAll('svg [data-key={mixer}] .mark')].map(m => getComputedStyle(m).fill)"
            f".concat([...document.querySelectorAll('tr[data-key={mixer}] .swatch')]"
            ".map(s => getComputedStyle(s).backgroundColor)))]")
        assert len(colours) == 1, (mixer, colours)


def test_tints_differ(browser: Browser, tmp_path: Path) -> None:
    """The second and third setting of a mixer can be told from the first and from the ground, light and dark."""
    def linear(colour: list[float]) -> torch.Tensor:
        return torch.tensor([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour])

    def contrast(a: list[float], b: list[float]) -> float:
        low, high = sorted(float(linear(c) @ torch.tensor([0.2126, 0.7152, 0.0722])) for c in (a, b))
        return (high + 0.05) / (low + 0.05)

    def distance(a: list[float], b: list[float]) -> float:  # in Oklab
        to_cones = torch.tensor([[.4122215, .5363325, .0514460], [.2119035, .6806996, .1073970], [.0883025, .2817188, .6299787]])
        to_lab = torch.tensor([[.2104543, .7936178, -.0040720], [1.9779985, -2.4285922, .4505937], [.0259040, .7827718, -.8086758]])
        first, second = (to_lab @ (to_cones @ linear(c)) ** (1 / 3) for c in (a, b))
        return float((first - second).norm())

    style = "".join((ROOT / f"src/report/{name}.css").read_text() for name in ("picture", "page"))
    dots = "".join(f"<i class='swatch s{slot}{tint}'></i>" for slot in range(24) for tint in ("", " t1", " t2"))
    (tmp_path / "tints.html").write_text(f"<style>{style}</style>{dots}")
    read = """[...document.querySelectorAll('i')].concat([document.body]).map(e => {
        const c = document.createElement('canvas').getContext('2d'); c.fillStyle = getComputedStyle(e).backgroundColor;
        c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3).map(x => x / 255); })"""
    for scheme in ("light", "dark"):
        browser.media(scheme)
        browser.open(tmp_path / "tints.html")
        *colours, ground = browser.run(read)
        nearest = min((distance(colours[3 * a], colours[3 * b]), a, b) for a in range(24) for b in range(a))
        assert nearest[0] >= 0.06, (scheme, nearest)  # of two mixers
        for slot in range(24):
            plain, first, second = colours[3 * slot:3 * slot + 3]
            assert all(contrast(one, ground) >= 3 for one in (plain, first, second)), (scheme, slot)
            assert min(distance(plain, first), distance(first, second)) >= 0.055, (scheme, slot)
    browser.media("light")


def test_long_names_leave_room_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    """A name with settings is broken after its colon and commas, so that the score beside it is seen."""
    subprocess.run(
        [PROGRAM, "compare", "softmax:position.kind=none", "taylor:order=2,position.kind=none", "--task",
         "mqar:T=16,pairs=2,vocabulary=64", "--model.D", "16", "--schedule.steps", "2", "--eval.examples", "8", "--seeds", "2",
         "--speed_lengths", "16", "--device", "cpu", "--out", tmp_path], check=True, capture_output=True)
    browser.size(390, 800, True)
    browser.open(tmp_path / "report.html")
    assert browser.run("""[...document.querySelectorAll('table.sorts')].filter(t => t.querySelector('td.mixer')).every(
        t => t.rows[1].cells[1].getBoundingClientRect().right <= innerWidth)""")
    browser.size(1100, 800)


def test_charts_fit_the_screen(browser: Browser, page: Path) -> None:
    """Full width on a wide screen; on a phone the narrow drawing, with its legend, in letters of at least 10 px."""
    shown = """[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length)
        .map(s => [s.classList[1], s.getBoundingClientRect().width / s.parentNode.clientWidth,
                   12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width])"""
    for width, kind in ((1280, "wide"), (390, "narrow")):
        browser.size(width, 800, width < 600)
        browser.open(page)
        charts = [row for row in browser.run(shown) if row[0] != "map"]
        assert charts and all(row[0] == kind and row[1] > 0.98 and row[2] >= 10 for row in charts), charts
    browser.size(1100, 800)


def test_a_foreign_script_does_not_run(browser: Browser, page: Path, tmp_path: Path) -> None:
    text = page.read_text().replace("</main>", "<script>window.foreign = 1</script><p onclick='1'></p></main>")
    (tmp_path / "page.html").write_text(text)
    browser.open(tmp_path / "page.html")
    assert browser.run("window.foreign === undefined")
    assert any("Content Security Policy" in problem for problem in browser.problems())
