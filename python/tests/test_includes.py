"""The order of the folders is the order of includes: a file includes its own folder and those before it."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
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


def test_the_map_of_hacking_is_the_tree():
    """Every folder of code is on the map, and every file that the map names is there."""
    text = (ROOT / "HACKING.md").read_text()
    places = re.findall(r"`([\w./]+)`", text)
    named = {name.rstrip("/").rsplit("/", 1)[-1] for name in places if name.endswith("/")}
    folders = {path.parent for path in SRC.rglob("*.[ch]*")}
    missing = [str(folder) for folder in sorted(folders) if folder.name not in named]
    files = {path.name for path in SRC.rglob("*") if path.is_file()}
    gone = [name for name in places if re.search(r"\w\.(h|cuh|cu|cpp)$", name) and not name.startswith(("NAME", "OP", "src/"))
            and name.rsplit("/", 1)[-1] not in files]
    assert not missing and not gone, f"not on the map: {missing}, not in the tree: {gone}"


def definitions():
    """Structs and classes of each file with their namespace; those of unnamed namespaces are the file's own."""
    for path in sorted(SRC.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        spaces = []
        for line in path.read_text().splitlines():
            if opened := re.match(r"(?:inline )?namespace ([\w:]*) ?\{$", line):
                spaces.append(opened[1])
            elif line.startswith("}  // namespace"):
                spaces.pop()
            elif (defined := re.match(r"(?:struct|class) (\w+)(?: final)?(?: :.*)? \{", line)) and "" not in spaces:
                yield "::".join([*spaces, defined[1]]), path.relative_to(SRC)


def test_a_name_is_one_thing():
    """Two structs of one name in one program are undefined behaviour, which no compiler tells."""
    places = {}
    for name, path in definitions():
        places.setdefault(name, set()).add(str(path))
    twice = [f"{name}: {', '.join(sorted(found))}" for name, found in places.items() if len(found) > 1]
    assert not twice, "\n".join(twice)
