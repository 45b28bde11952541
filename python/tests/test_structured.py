"""horner generate --schema and --regex: texts of a model that knows nothing satisfy what they must."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")
SMALL = ("--model.D", "16", "--model.layers", "1", "--schedule.steps", "2", "--eval.examples", "8")


def run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([PROGRAM, *map(str, words)], input="", capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    text = ROOT / "examples/text/shakespeare.txt"
    run("train", "--task", f"byte:data={text},T=32", *SMALL, "--out", out, "--name", "bytes")
    return out / "bytes"


def written(model: Path, *words: object) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(run("generate", model, "--prompt", "A", "--tokens", 600, "--json", *words).stdout)
    return made


SHORT = {"type": "string", "maxLength": 6}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                       "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}, "minItems": 1, "maxItems": 3}},
        "required": ["name", "tags"], "additionalProperties": False,
    },
    "more names": {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "z"],
                   "additionalProperties": {"type": "number", "exclusiveMinimum": -3, "maximum": 10}},
    "tree": {
        "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": ["integer", "null"]},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}, "required": ["value"]}},
        "$ref": "#/$defs/node",
    },
    "union": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "minimum": 0}},
         "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "text"}, "t": SHORT}, "required": ["kind", "t"]},
        {"type": "boolean"}]}},
    "strings": {"type": "object", "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+-\\d{2,}$", "maxLength": 12}, "day": {"type": "string", "format": "date"},
        "odd": {"type": "string", "pattern": "[\"\\\\\\n]", "minLength": 3, "maxLength": 9}}, "required": ["id", "day", "odd"]},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_texts_satisfy_their_schema(model: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMAS[name]))
    made = written(model, "--schema", file, "--temperature", 1)
    assert made["finish"] == "end", made["text"]
    jsonschema.Draft202012Validator(SCHEMAS[name], format_checker=jsonschema.FormatChecker()).validate(
        json.loads(made["text"]))


@pytest.mark.parametrize("pattern, temperature", [
    ("[0-9]{3}-[0-9]{4}", 0), ("\u00e9{2}[\u4e00-\u4e0f]\U0001f600", 2), ("(\\w{1,9} ){2,4}end|[^a-z]{5}", 1)])
def test_texts_match_their_pattern(model: Path, pattern: str, temperature: int) -> None:
    made = written(model, "--regex", pattern, "--temperature", temperature)
    assert made["finish"] == "end" and re.fullmatch(pattern, made["text"], re.ASCII), made["text"]


@pytest.mark.parametrize("words, code, line", [
    (["--regex", "(a)\\1"], 2, "the regular expression: character 4: back references are not supported"),
    (["--schema", '{"not": {}}'], 2, "the schema: 'not' is not supported"),
    (["--schema", "{"], 3, "--schema: "),
    (["--schema", "/nowhere"], 3, "/nowhere: "),
    (["--schema", "{}", "--regex", "a"], 2, "--schema and --regex exclude each other"),
])
def test_mistakes(model: Path, words: list[str], code: int, line: str) -> None:
    done = run("generate", model, *words, check=False)
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith("horner generate: ") and line in done.stderr
    assert done.stderr.count("\n") == 1
