"""Counts the tests of one ./test: reads RESULTS/ctest.xml and the JUnit file RESULTS/NAME.xml that every
CTest entry NAME leaves, prints failures and reasons for skips, and ends with the totals.

A CTest entry named fuzz_* is one test by itself. Any other entry without its file has crashed or run out
of time, and is one failure.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

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
    output = (element.findtext("system-out") or "").strip()
    problem = element.find("failure")
    ended = problem.get("message") or "Failed" if problem is not None else ""
    if entry.startswith("fuzz_"):
        if element.find("skipped") is not None:
            return [Case(entry, "skipped", output.splitlines()[-1] if output else "no reason given")]
        return [Case(entry, "failed" if problem is not None else "passed", output[-2000:])]
    try:
        root = ElementTree.parse(results / f"{entry}.xml").getroot()
    except (OSError, ElementTree.ParseError):
        tail = "\n".join(output.splitlines()[-20:])
        return [Case(entry, "failed", f"no result file ({ended or element.get('status')})\n{tail}")]
    cases = [read_case(case, entry) for case in root.iter("testcase")]
    if problem is not None and not any(case.outcome == "failed" for case in cases):
        tail = "\n".join(output.splitlines()[-20:])
        cases.append(Case(entry, "failed", f"its tests passed, but the program did not: {ended}\n{tail}"))
    return cases


def read_results(results):
    try:
        root = ElementTree.parse(results / "ctest.xml").getroot()
    except (OSError, ElementTree.ParseError) as error:
        return [Case("ctest", "failed", f"no result file: {error}")]
    return [case for element in root.iter("testcase") for case in read_entry(element, results)]


def summary(cases):
    """The text to print; its last line is the totals alone."""
    lines = []
    for case in cases:
        if case.outcome == "failed":
            text = case.text.strip().splitlines()
            text[30:] = ["..."] if len(text) > 30 else []
            lines += [f"failed: {case.name}"] + [f"    {line}" for line in text]
    reasons = collections.Counter(case.text for case in cases if case.outcome == "skipped")
    lines += [f"skipped: {count} x {reason}" for reason, count in sorted(reasons.items())]
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
