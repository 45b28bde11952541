"""The page of `horner serve` in a browser: it types, streams, stops, forks and rolls back."""

import time
from collections.abc import Iterator
from pathlib import Path
import sys

import pytest

from chromium import Browser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from serving import PROGRAM, Server, train  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(train(tmp_path_factory.mktemp("models"), "tiny")) as one:
        yield one


def until(browser: Browser, script: str) -> None:
    deadline = time.monotonic() + 20
    while not browser.run(script):
        assert time.monotonic() < deadline, f"never true: {script}"
        time.sleep(0.05)


def problems(browser: Browser, server: Server) -> list[str]:
    """Those of the page, less its own requests to the server."""
    return [text for text in browser.problems() if server.url not in text or "requestWillBeSent" not in text
            and '"request"' not in text]


def say(browser: Browser, text: str) -> None:
    browser.run("document.getElementById('text').focus()")
    browser.call("Input.insertText", text=text)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)


READY = "!document.getElementById('send').disabled"
COUNT = "document.querySelectorAll('article').length"


def test_a_chat(browser: Browser, server: Server) -> None:
    browser.size(1100, 800)
    browser.media("light")
    browser.open(server.url)
    until(browser, READY)
    assert browser.run("document.getElementById('model').textContent") == "tiny"
    say(browser, "Who is there?")
    until(browser, f"{COUNT} == 2 && document.querySelectorAll('article')[1].textContent.length > 3")
    browser.click("#stop")  # the answer of an untrained model may be long
    until(browser, READY)
    assert browser.run("document.querySelector('article.user').textContent") == "Who is there?"
    assert problems(browser, server) == []

    browser.click("#fork")
    assert browser.run("document.querySelectorAll('nav button').length") == 2
    say(browser, "And now?")
    until(browser, f"{COUNT} == 4")
    browser.click("#stop")
    until(browser, READY)
    browser.click("nav button", 0)
    assert browser.run(COUNT) == 2
    browser.click("nav button", 1)
    assert browser.run(COUNT) == 4
    browser.click("#back")
    assert browser.run(COUNT) == 2 and browser.run("document.getElementById('text').value") == "And now?"
    server.wait_until_idle()  # what was stopped is freed
    assert problems(browser, server) == []


# The server's next answers are this text, without the server.
ANSWER = """window.fetch = async () => new Response([%s].map(text => 'data: ' + JSON.stringify(
    {choices: [{delta: {content: text}}]}) + '\\n\\n').join('') + 'data: [DONE]\\n\\n')"""


def test_an_answer_is_shown_as_it_is_meant(browser: Browser, server: Server) -> None:
    browser.size(1100, 800)
    browser.open(server.url)
    until(browser, READY)
    browser.run(ANSWER % "'**bold** <i>x</i> ', '`a_b` and\\n```py\\nprint(**1**)', '\\n```\\nend'")
    assert browser.run("document.querySelectorAll('#examples button').length") == 3
    browser.click("#examples button", 1)
    until(browser, f"{READY} && {COUNT} == 2")
    assert browser.run("document.querySelector('article.user').textContent") == "Name three rivers of Europe."
    shown = {name: browser.run(f"document.querySelector('article.assistant {name}').textContent") for name in ("b", "code", "pre")}
    assert shown == {"b": "bold", "code": "a_b", "pre": "print(**1**)"}
    assert browser.run("document.querySelector('article.assistant i')") is None
    assert "<i>x</i>" in browser.run("document.querySelector('article.assistant').textContent")

    say(browser, "second")
    until(browser, f"{READY} && {COUNT} == 4")
    browser.click("button.edit", 1)
    assert browser.run(COUNT) == 2 and browser.run("document.getElementById('text').value") == "second"
    browser.click("button.edit", 0)
    assert browser.run(COUNT) == 0 and not browser.run("document.getElementById('welcome').hidden")
    assert problems(browser, server) == []


def test_the_temperature_is_sent(browser: Browser, server: Server) -> None:
    browser.open(server.url)
    until(browser, READY)
    for value, wanted in (("0.7", 0.7), ("", None)):
        browser.run(f"document.getElementById('temperature').value = '{value}'")
        browser.run("window.asked = null; window.fetch = async (_, options) => { window.asked = JSON.parse(options.body); throw new Error('enough'); }")
        say(browser, "Hi")
        until(browser, f"{READY} && window.asked")
        assert browser.run("window.asked.temperature ?? null") == wanted
        assert browser.run("document.querySelector('article.error:last-child').textContent") == "enough"


def test_numbers_are_shown(browser: Browser, server: Server) -> None:
    browser.open(server.url)
    until(browser, READY)
    browser.run("""(() => { const plain = fetch; window.fetch = (url, options) => plain(url, options?.body ?
        {...options, body: JSON.stringify({...JSON.parse(options.body), max_tokens: 12, ignore_eos: true})} : options); })()""")
    say(browser, "Hi")
    until(browser, f"{READY} && {COUNT} == 2")
    shown = browser.run("document.getElementById('numbers').textContent")
    assert "state " in shown and "tokens/s" in shown and "tokens known" in shown


def test_no_problem_wide_or_on_a_phone_light_or_dark(browser: Browser, server: Server) -> None:
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 28)")):
        for width, phone in ((1100, False), (390, True)):
            browser.size(width, 800, phone)
            browser.media(scheme)
            browser.open(server.url)
            until(browser, READY)
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
            assert browser.run("getComputedStyle(document.body).backgroundColor") == ground
            assert problems(browser, server) == []
    browser.media("light")


def test_nothing_inline_runs(server: Server) -> None:
    page = server.ask("GET", "/").decode()
    assert "<script src=" in page and "<style" not in page and "http://" not in page and "https://" not in page
