"""tools/compile: a checkout at another path finds in ccache what the first one compiled."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("clang++") or shutil.which("g++")


@pytest.mark.skipif(not shutil.which("ccache") or not COMPILER, reason="no ccache or no compiler")
def test_second_checkout_hits(tmp_path: Path) -> None:
    env = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_STATSLOG": str(tmp_path / "log")}
    objects = []
    for name in ("first", "a_longer_name/second"):
        root = tmp_path / name
        (root / "src").mkdir(parents=True)
        (root / "src/a.h").write_text("#pragma once\ninline const char* where() { return __FILE__; }\n")
        (root / "src/a.cpp").write_text('#include "a.h"\nconst char* here() { return where(); }\n')
        build = root / "build/cpu"
        build.mkdir(parents=True)
        subprocess.run([ROOT / "tools/compile", "../..", root, str(COMPILER), f"-I{root}/src", "-MD", "-MF", "a.o.d", "-o",
                        "a.o", "-c", f"{root}/src/a.cpp"], cwd=build, env=env, check=True)
        objects.append((build / "a.o").read_bytes())
    assert objects[0] == objects[1]
    assert "direct_cache_hit" in (tmp_path / "log").read_text().split()
