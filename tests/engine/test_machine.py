"""CPUs by affinity and by cgroup quota."""

from __future__ import annotations

import os
from pathlib import Path

from engine.machine import cgroup_quota, physical_cores, usable_cpus


def test_affinity_and_quota_bound_the_number() -> None:
    assert 1 <= usable_cpus() <= len(os.sched_getaffinity(0))


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 6: ""}.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores([0, 1, 4, 5], tmp_path) == 2
    assert physical_cores([0, 4], tmp_path) == 1
    assert physical_cores([1, 4], tmp_path) == 2
    assert physical_cores([6, 7, 8], tmp_path) == 3  # the system does not say: each counts


def test_the_tightest_quota_above_the_process_counts(tmp_path: Path) -> None:
    member = tmp_path / "membership"
    member.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert cgroup_quota(tmp_path, member) is None
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path, member) is None
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert cgroup_quota(tmp_path, member) == 1.5
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cgroup_quota(tmp_path, member) == 0.5


def test_version_one_quotas(tmp_path: Path) -> None:
    member = tmp_path / "membership"
    member.write_text("4:cpu,cpuacct:/job\n2:memory:/job\n")
    folder = tmp_path / "cpu,cpuacct" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(tmp_path, member) is None
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    assert cgroup_quota(tmp_path, member) == 2.0


def test_nothing_known_means_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path, tmp_path / "absent") is None
    (tmp_path / "odd").write_text("garbage\n0::\n")
    assert cgroup_quota(tmp_path, tmp_path / "odd") is None
