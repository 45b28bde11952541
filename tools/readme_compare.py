"""What README.md and docs/results show of the default comparison: its first table, its last sentence, its picture.

  ./horner compare                             # ten minutes on two cores
  python tools/readme_compare.py runs/compare  # writes README.md and docs/results/compare_default.{json,svg}
  python tools/readme_compare.py --check       # whether README.md is what docs/results/compare_default.json makes
"""

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
KEPT = ROOT / "docs/results/compare_default"
BLOCK = re.compile(r"took (\d+:\d\d) on two cores(.*?)^```text\n(mixer .*?)^```$", re.MULTILINE | re.DOTALL)


def on_a_terminal(columns: int, *words: str) -> str:
    """What a command shows on a terminal of that width."""
    inner, outer = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    started = subprocess.Popen(words, stdin=outer, stdout=outer, stderr=outer)
    os.close(outer)
    text = b""
    try:
        while more := os.read(inner, 1 << 16):
            text += more
    except OSError:  # the program has closed it
        pass
    os.close(inner)
    assert started.wait() == 0, text.decode()
    return text.decode().replace("\r\n", "\n")


def made_from(result: dict, program: str) -> tuple[str, str, str]:
    """Its time, the block of README.md, and the picture, as `horner report` makes them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "compare.json").write_text(json.dumps(result))
        table = on_a_terminal(80, program, "report", folder).split("\n\n")[0]
        picture = Path(folder, "plots/score_state.svg").read_text()
    last = result["verdict"][result["verdict"].rfind(" The smallest state") + 1:]
    block = "\n".join(line.rstrip() for line in table.splitlines()) + "\n\n" + textwrap.fill(last, 80) + "\n"
    seconds = round(result["seconds"])
    return f"{seconds // 60}:{seconds % 60:02}", block, picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="of a finished ./horner compare")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default=str(ROOT / "horner"))
    o = parser.parse_args()
    source = Path(o.folder, "compare.json") if o.folder else KEPT.with_suffix(".json")
    result = json.loads(source.read_text())
    result["maps"] = []  # two megabytes, which nothing here shows
    time, block, picture = made_from(result, o.program)
    readme = README.read_text()
    found = BLOCK.search(readme)
    assert found, "README.md has no block of the comparison"
    written = readme[:found.start()] + f"took {time} on two cores{found[2]}```text\n{block}```" + readme[found.end():]
    if o.check:
        if written != readme or KEPT.with_suffix(".svg").read_text() != picture:
            sys.exit("README.md: the comparison is not the one of docs/results/compare_default.json")
        return
    README.write_text(written)
    KEPT.with_suffix(".svg").write_text(picture)
    KEPT.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
