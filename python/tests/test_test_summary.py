"""tools/test_summary.py counts what gtest, pytest and CTest wrote."""

import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"
spec = importlib.util.spec_from_file_location("summary", SCRIPT)
summary = importlib.util.module_from_spec(spec)
spec.loader.exec_module(summary)

GTEST = """<testsuites><testsuite name="A">
  <testcase name="good" status="run" result="completed" classname="A"/>
  <testcase name="gpu" status="run" result="skipped" classname="A">
    <skipped message="src/a_test.cpp:3&#x0A;no GPU"><![CDATA[src/a_test.cpp:3
no GPU]]></skipped></testcase>
  <testcase name="DISABLED_x" status="notrun" result="suppressed" classname="A"/>%s
</testsuite></testsuites>"""
GTEST_FAILURE = """<testcase name="bad" status="run" classname="A">
    <failure message="m">1 != 2</failure></testcase>"""
PYTEST = """<testsuites><testsuite name="pytest">
  <testcase classname="test_a" name="test_good"/>
  <testcase classname="test_a" name="test_gpu">
    <skipped type="pytest.skip" message="no GPU">x</skipped></testcase>
  <testcase classname="test_a" name="test_setup"><error message="e">fixture broke</error></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def totals(tmp_path):
    """Writes CTest entries {name: inner XML} and result files {name: XML}; sums them up."""

    def run(entries, files):
        inner = [f'<testcase name="{name}">{xml}</testcase>' for name, xml in entries.items()]
        (tmp_path / "ctest.xml").write_text(f"<testsuite>{''.join(inner)}</testsuite>")
        for name, xml in files.items():
            (tmp_path / f"{name}.xml").write_text(xml)
        cases = summary.read_results(tmp_path)
        text = summary.summary(cases)
        return text.splitlines()[-1], text, summary.succeeded(cases)

    return run


def test_counts_cases_of_all_programs(totals):
    files = {"cpu": GTEST % GTEST_FAILURE, "python": PYTEST}
    last, text, success = totals({"cpu": "", "python": ""}, files)
    assert last == "2 passed, 2 failed, 3 skipped"
    assert not success
    assert "failed: cpu: A.bad\n    1 != 2" in text
    assert "failed: python: test_a.test_setup" in text
    assert "skipped 2 tests: no GPU" in text
    assert "skipped 1 test: disabled" in text


def test_succeeds(totals):
    last, _, success = totals({"cpu": ""}, {"cpu": GTEST % ""})
    assert (last, success) == ("1 passed, 0 failed, 2 skipped", True)


@pytest.mark.parametrize("file", [{}, {"cpu": "<testsuites><cut"}])
def test_program_without_result_is_a_failure(totals, file):
    entry = '<failure message=""/><system-out>[ RUN      ] A.crash</system-out>'
    last, text, success = totals({"cpu": entry}, file)
    assert (last, success) == ("0 passed, 1 failed, 0 skipped", False)
    assert "failed: cpu\n    ended without a result after 0 s\n    [ RUN      ] A.crash" in text


def test_failure_after_the_tests_counts(totals):
    last, _, success = totals({"cpu": '<failure message=""/>'}, {"cpu": GTEST % ""})
    assert (last, success) == ("1 passed, 1 failed, 2 skipped", False)


def test_fuzzers(totals):
    last, text, success = totals({
        "fuzz_a": "",
        "fuzz_b": '<failure message=""/><system-out>heap-buffer-overflow</system-out>',
        "fuzz_c": '<skipped message="SKIP_RETURN_CODE=77"/><system-out>no libFuzzer</system-out>',
    }, {})
    assert (last, success) == ("1 passed, 1 failed, 1 skipped", False)
    assert "heap-buffer-overflow" in text and "skipped 1 test: no libFuzzer" in text


def test_reasons_take_ten_lines_at_most():
    reasons = ["no GPU"] * 70 + [f"reason {i}" for i in range(20) for _ in range(20 - i)]
    lines = summary.skip_lines(reasons)
    assert len(lines) == 10
    assert lines[:2] == ["skipped 70 tests: no GPU", "skipped 20 tests: reason 0"]
    assert lines[9] == "skipped 78 tests: 12 other reasons"


def test_nothing_ran(totals, tmp_path):
    last, text, success = totals({}, {})
    assert (last, success) == ("0 passed, 0 failed, 0 skipped", False)
    assert "no test ran" in text
    (tmp_path / "ctest.xml").unlink()
    assert not summary.succeeded(summary.read_results(tmp_path))
