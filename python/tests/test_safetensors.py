"""Files go both ways between Horner and PyPI's safetensors, through the C++ test program."""

import json
import os
import pathlib
import struct
import subprocess

import pytest

np = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import save_file  # noqa: E402

DTYPES = "bool uint8 int8 int16 uint16 float16 int32 uint32 float32 complex64 float64 int64 uint64".split()


@pytest.fixture
def exchange(tmp_path):
    """Reads a file in C++ and writes it again; returns the new path, or the process when it failed."""
    build = os.environ.get("HORNER_BUILD") or os.environ.get("HORNER_LIBRARY")
    if not build:
        pytest.skip("HORNER_BUILD is not set")
    program = pathlib.Path(build) / "horner_test"
    if not program.exists():
        pytest.skip(f"{program} is not built")

    def run(path):
        out = tmp_path / "out.safetensors"
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GTEST_")},
            "HORNER_SAFETENSORS_IN": str(path),
            "HORNER_SAFETENSORS_OUT": str(out),
        }
        command = [str(program), "--gtest_filter=SafetensorsExchange.CopiesAFile"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            assert "[       OK ]" in done.stdout, done.stdout
            return out
        return done

    return run


def random_tensor(rng, dtype, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=int))
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)


@pytest.mark.parametrize("seed", range(3))
def test_same_bytes_as_the_reference(exchange, tmp_path, seed):
    rng = np.random.default_rng(seed)
    shapes = [(), (0,), (3,), (2, 0, 5), (4, 3, 2)]
    tensors = {
        f"layer.{rng.integers(1000)}.{dtype} ž\n{i}": random_tensor(rng, dtype, shape)
        for dtype in DTYPES
        for i, shape in enumerate(shapes)
    }
    path = tmp_path / "in.safetensors"
    save_file(tensors, path, {"format": "pt"})
    out = exchange(path)
    with safetensors.safe_open(out, "np") as file:
        assert set(file.keys()) == set(tensors)
        for name, tensor in tensors.items():
            read = file.get_tensor(name)
            assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
            assert read.tobytes() == tensor.tobytes()
    assert out.read_bytes() == path.read_bytes()


def test_metadata(exchange, tmp_path):
    metadata = {"format": "np", "note": 'a "quoted" \t žluť \x01', "": ""}
    path = tmp_path / "in.safetensors"
    save_file({"a": np.zeros(1)}, path, metadata)
    with safetensors.safe_open(exchange(path), "np") as file:
        assert file.metadata() == metadata


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks(exchange, tmp_path, dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file
    bits = torch.arange(4, dtype=torch.uint8)
    path = tmp_path / "in.safetensors"
    save_file({"a": bits.view(getattr(torch, dtype))}, path, {"format": "pt"})
    assert exchange(path).read_bytes() == path.read_bytes()


GOOD = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
CASES = {
    "good": ({"a": GOOD}, 4),
    "hole": ({"a": {**GOOD, "data_offsets": [4, 8]}}, 8),
    "overlap": ({"a": GOOD, "b": GOOD}, 4),
    "outside": ({"a": GOOD}, 3),
    "rest": ({"a": GOOD}, 5),
    "shape": ({"a": {**GOOD, "shape": [2]}}, 4),
    "negative": ({"a": {**GOOD, "shape": [-1]}}, 4),
    "overflow": ({"a": {**GOOD, "shape": [2**32, 2**32]}}, 4),
    "dtype": ({"a": {**GOOD, "dtype": "F33"}}, 4),
    "metadata": ({"__metadata__": {"k": 1}}, 0),
    "no metadata": ({"__metadata__": None, "a": GOOD}, 4),
    "empty": ({}, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_accepts_what_the_reference_accepts(exchange, tmp_path, case):
    header, data = CASES[case]
    text = json.dumps(header).encode()
    file = struct.pack("<Q", len(text)) + text + bytes(data)
    try:
        safetensors.deserialize(file)
        accepted = True
    except safetensors.SafetensorError:
        accepted = False
    path = tmp_path / "in.safetensors"
    path.write_bytes(file)
    result = exchange(path)
    assert isinstance(result, pathlib.Path) == accepted, result
    if not accepted:
        assert f"{path}: " in result.stdout  # the error names the file
