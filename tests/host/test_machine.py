"""Choosing the instruction set and the number of threads."""

import os

import pytest
from levels import LEVELS

from specrt._ext.host_ops import detect_level
from specrt.errors import OptionError, UnsupportedError
from specrt.host import HostOps, machine
from specrt.host.machine import choose_level, choose_threads


def test_the_best_level_is_that_of_the_cpu_flags(monkeypatch):
    monkeypatch.delenv("SPECRT_CPU", raising=False)
    assert detect_level() == max(LEVELS.values()) == choose_level(None)


def test_the_environment_forces_a_level_and_an_argument_wins(monkeypatch):
    monkeypatch.setenv("SPECRT_CPU", "portable")
    assert choose_level(None) == 0
    for name, level in LEVELS.items():
        assert choose_level(name) == level
    monkeypatch.setenv("SPECRT_CPU", "sse9")
    with pytest.raises(OptionError, match="sse9"):
        HostOps()


def test_a_level_that_the_machine_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "detect_level", lambda: 1)
    with pytest.raises(UnsupportedError, match="portable, avx2"):
        choose_level("avx512")


def test_threads_follow_affinity_cores_and_quota(monkeypatch):
    assert 1 <= choose_threads(None) <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr(machine, "_num_cores", lambda cpus: len(cpus) // 2)
    monkeypatch.setattr(machine, "_quota", lambda: 256)
    assert choose_threads(None) == 6
    monkeypatch.setattr(machine, "_quota", lambda: 3)
    assert choose_threads(None) == 3
    for wrong in (0, 257):
        with pytest.raises(OptionError, match="threads"):
            choose_threads(wrong)


def test_quotas_of_both_cgroup_versions(tmp_path):
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert machine._limit(tmp_path) == [3]
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine._limit(tmp_path) == []
    (tmp_path / "cpu.max").unlink()
    assert machine._limit(tmp_path) == []
    (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert machine._limit(tmp_path) == [1]
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine._limit(tmp_path) == []
