"""Counts the tests of one ./test: reads RESULTS/ctest.xml and the JUnit file RESULTS/NAME.xml that
every CTest entry NAME leaves, prints failures and reasons for skips, and ends with the totals.

A CTest entry named fuzz_* is one test by itself. Any other entry without its file has crashed or
run out of time, and is one failure.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

MOST_REASONS = 10
Case = collections.namedtuple("Case", "name outcome text")  # outcome: passed, failed, skipped


def read_case(element, entry):
    """One <testcase> of gtest or pytest."""
    name = f"{entry}: {element.get('classname')}.{element.get('name')}"
    problem = element.find("failure")
    if problem is None:
        problem = element.find("error")
    if problem is not None:
        return Case(name, "failed", problem.text or problem.get("message") or "")
    skipped = element.find("skipped")
    if skipped is not None:
        # gtest puts FILE:LINE before the reason.
        lines = [line for line in (skipped.get("message") or "").splitlines() if line.strip()]
        lines = [line for line in lines if not re.fullmatch(r"\S+\.(cpp|h|cu):\d+", line)]
        return Case(name, "skipped", " ".join(lines) or "no reason given")
    if element.get("status") == "notrun":
        return Case(name, "skipped", "disabled")
    return Case(name, "passed", "")


def read_entry(element, results):
    """All cases of one CTest entry."""
    entry = element.get("name")
    failed = element.find("failure") is not None
    output = (element.findtext("system-out") or "").strip().splitlines()
    tail = "\n".join(output[-20:])
    if entry.startswith("fuzz_"):
        if element.find("skipped") is not None:
            return [Case(entry, "skipped", tail or "no reason given")]
        return [Case(entry, "failed" if failed else "passed", tail)]
    try:
        root = ElementTree.parse(results / f"{entry}.xml").getroot()
    except (OSError, ElementTree.ParseError):
        seconds = float(element.get("time", 0))
        return [Case(entry, "failed", f"ended without a result after {seconds:.0f} s\n{tail}")]
    cases = [read_case(case, entry) for case in root.iter("testcase")]
    if failed and not any(case.outcome == "failed" for case in cases):
        cases.append(Case(entry, "failed", f"no test of it failed, but the program did\n{tail}"))
    return cases


def read_results(results):
    try:
        root = ElementTree.parse(results / "ctest.xml").getroot()
    except (OSError, ElementTree.ParseError) as error:
        return [Case("ctest", "failed", f"no result file: {error}")]
    return [case for element in root.iter("testcase") for case in read_entry(element, results)]


def skip_lines(reasons):
    """How many tests each reason skipped, the most frequent first, in at most MOST_REASONS lines."""
    counts = collections.Counter(reasons).most_common()
    if len(counts) > MOST_REASONS:
        rest = counts[MOST_REASONS - 1:]
        counts[MOST_REASONS - 1:] = [(f"{len(rest)} other reasons", sum(n for _, n in rest))]
    return [f"skipped {n} test{'s' if n > 1 else ''}: {reason}" for reason, n in counts]


def summary(cases):
    """The text to print; its last line is the totals alone."""
    lines = []
    for case in cases:
        if case.outcome == "failed":
            text = case.text.strip().splitlines()
            text[30:] = ["..."] if len(text) > 30 else []
            lines += [f"failed: {case.name}"] + [f"    {line}" for line in text]
    lines += skip_lines(case.text for case in cases if case.outcome == "skipped")
    count = collections.Counter(case.outcome for case in cases)
    if not count["passed"] + count["failed"]:
        lines.append("no test ran")
    lines.append(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return "\n".join(lines)


def succeeded(cases):
    outcomes = {case.outcome for case in cases}
    return "passed" in outcomes and "failed" not in outcomes


if __name__ == "__main__":
    found = read_results(pathlib.Path(sys.argv[1]))
    print(summary(found))
    sys.exit(not succeeded(found))
