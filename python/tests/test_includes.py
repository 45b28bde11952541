"""The order of the folders is the order of includes: a file includes its own folder and those before it."""

import pathlib
import re

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"
ORDER = "core io cuda ops nn mixers model tasks train engine lab report serve cli".split()


def includes():
    for path in sorted(SRC.rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            for name in re.findall(r'#include "([^"]+)"', path.read_text()):
                yield path.relative_to(SRC), pathlib.Path(name)


def test_folders_include_only_those_before_them():
    wrong = [f"{path} includes {name}" for path, name in includes()
             if ORDER.index(name.parts[0]) > ORDER.index(path.parts[0]) and "_test." not in path.name]
    assert not wrong, "\n".join(wrong)


def test_ops_do_not_include_each_other():
    """What two ops share stands in ops/ or cuda/."""
    shared = {"lazy"}  # decoding that walks all ops
    wrong = [f"{path} includes {name}" for path, name in includes()
             if path.parts[0] == name.parts[0] == "ops" and len(path.parts) > 2 and len(name.parts) > 2
             and path.parts[1] != name.parts[1] and path.parts[1] not in shared]
    assert not wrong, "\n".join(wrong)
