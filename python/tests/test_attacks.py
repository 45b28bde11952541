"""Short forms of the attacks in tools/attacks, which say what is tried."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from attacks import (  # noqa: E402
    ctrl_c, faults, flipped_bits, kill, metrics_loss, one_writer, other_data, power_loss, shortened, streams, sync_order, target,
    torchrun, words)

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def holds(result: tuple[int, list[str]]) -> None:
    tries, failures = result
    assert tries and not failures


def test_killed() -> None:
    holds(kill.attack(series=1, kills=3))


def test_a_call_fails() -> None:
    holds(faults.attack(step=29))


def test_power_loss() -> None:
    holds(power_loss.attack([10, 40, 70, 97]))


def test_order_of_syncs() -> None:
    holds(sync_order.run())


def test_a_damaged_checkpoint_is_named_and_the_one_before_goes_on() -> None:
    holds(flipped_bits.attack(rounds=1))


def test_lost_metrics_cost_lines_only() -> None:
    holds(metrics_loss.attack(rounds=1))


def test_runs_from_before_versions_go_on(tmp_path: Path) -> None:
    whole, old = tmp_path / "whole", tmp_path / "old"
    target.run(target.command(whole))
    flipped_bits.old_run(whole, old)
    shutil.rmtree(sorted((old / "run/checkpoints").iterdir())[-1])
    done = target.run(target.command(old))
    assert done.returncode == 0, done.stderr
    assert target.outcome(old) == target.outcome(whole)


@pytest.mark.parametrize("file", ["env.json", "checkpoints/step_00000024/DONE"])
def test_a_newer_version_is_refused_by_its_number(file: str, tmp_path: Path) -> None:
    target.run(target.command(tmp_path))
    (tmp_path / "run/result.json").unlink()
    path = tmp_path / "run" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 7}))
    done = target.run(target.command(tmp_path))
    assert done.returncode == 3 and not target.one_line(done)
    assert f"{path}: has format_version 7, this program knows up to 1" in done.stderr


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    """As when a checkpoint is copied into the folder of another run."""
    one, two = tmp_path / "one", tmp_path / "two"
    target.run(target.command(one))
    target.run(target.command(two, "--optim.lr", "0.5"))
    (two / "run/result.json").unlink()
    shutil.rmtree(two / "run/checkpoints")
    shutil.copytree(one / "run/checkpoints", two / "run/checkpoints")
    done = target.run(target.command(two, "--optim.lr", "0.5"))
    assert done.returncode == 3 and not target.one_line(done)
    assert "belongs to another run: options.optim.lr = 0.001 then, 0.5 now" in done.stderr


@pytest.mark.parametrize("file", ["config.json", "env.json"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_without_its_description_is_refused(finished: bool, file: str, tmp_path: Path) -> None:
    target.run(target.command(tmp_path))
    if not finished:
        (tmp_path / "run/result.json").unlink()
    (tmp_path / "run" / file).unlink()
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock")
    done = target.run(target.command(tmp_path, *(["--optim.lr", "0.5"] if file == "config.json" else [])))
    assert done.returncode == 3 and not target.one_line(done)
    assert f"{tmp_path}/run/{file}: is missing" in done.stderr
    assert before == sorted(path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock")


@pytest.mark.parametrize("name, value, range_", [
    ("WORLD_SIZE", "99999999999999999999", "1 .. 65536"), ("WORLD_SIZE", "0", "1 .. 65536"), ("RANK", "-1", "0 .. 65535"),
    ("MASTER_PORT", "65536", "1 .. 65535"), ("MASTER_PORT", "x", "1 .. 65535")])
def test_numbers_of_torchrun_have_a_range(name: str, value: str, range_: str, tmp_path: Path) -> None:
    whole = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871"}
    done = target.run(target.command(tmp_path), env=whole | {name: value})
    assert done.returncode == 2 and not any(tmp_path.iterdir())
    assert done.stderr == f"horner train: {name} must be a whole number in {range_}, got '{value}'\n"


def test_a_file_that_becomes_shorter_is_named(tmp_path: Path) -> None:
    assert not shortened.cut(tmp_path / "run", 5000)


def test_one_writer(tmp_path: Path) -> None:
    assert not one_writer.second_writer(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_children_die_with_compare(number: int, tmp_path: Path) -> None:
    assert not one_writer.killed_parent(tmp_path, number)


@pytest.mark.parametrize("kinds", [("closed", "closed", "closed"), ("open", "full", "full"), ("open", "left", "left"),
                                   ("closed", "open", "closed")])
def test_streams(kinds: tuple[str, str, str]) -> None:
    holds(streams.attack([kinds]))


def test_processes_with_other_settings(tmp_path: Path) -> None:
    assert not torchrun.other_settings(tmp_path, "--optim.lr", "0.5")


@pytest.mark.parametrize("victim, number", [(1, signal.SIGKILL), (1, signal.SIGSTOP), (0, signal.SIGSTOP)])
def test_a_lost_process_is_reported(victim: int, number: int, tmp_path: Path) -> None:
    assert not torchrun.lost(tmp_path, victim, number, seconds=90)


def test_a_process_that_never_comes_is_reported(tmp_path: Path) -> None:
    assert not torchrun.absent(tmp_path, seconds=90)


@pytest.mark.parametrize("attack", [other_data.named, other_data.unnamed, other_data.compared,
                                    other_data.reproduced, other_data.begun])
def test_other_data(attack: "other_data.Attack", tmp_path: Path) -> None:
    assert not attack(tmp_path)


def test_interrupt_in_a_validation(tmp_path: Path) -> None:
    assert not ctrl_c.in_evaluation(tmp_path, "3", "validation")
    assert not ctrl_c.goes_on(tmp_path)


def test_interrupt_in_a_large_batch(tmp_path: Path) -> None:
    assert not ctrl_c.in_evaluation(tmp_path, "1", "batch", ctrl_c.LARGE)


@pytest.mark.parametrize("name", ctrl_c.MADE)
def test_interrupt_while_examples_are_made(name: str, tmp_path: Path) -> None:
    assert not ctrl_c.in_data(tmp_path, name)


def test_interrupt_in_the_test(tmp_path: Path) -> None:
    assert not ctrl_c.in_evaluation(tmp_path, "0", "test")


def test_interrupt_in_the_measurement_of_speed(tmp_path: Path) -> None:
    assert not ctrl_c.in_speed(tmp_path, False)


def test_a_second_interrupt(tmp_path: Path) -> None:
    assert not ctrl_c.second(tmp_path)


def test_files_with_other_contents(tmp_path: Path) -> None:
    failures = words.damaged(tmp_path, ("[]", '{"step": 24, "lines": -5}'))
    assert not [line for line in failures if line]


def test_values_of_another_kind(tmp_path: Path) -> None:
    assert not [line for line in words.mutated(tmp_path, 12) if line]


@pytest.mark.parametrize("attack", words.ALONE)
def test_words(attack: "other_data.Attack", tmp_path: Path) -> None:
    try:
        assert not attack(tmp_path)
    except target.Skipped as reason:
        pytest.skip(str(reason))
