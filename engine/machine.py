"""What this process may use of the machine: CPUs by affinity and quota, memory."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
CPU_ROOT = Path("/sys/devices/system/cpu")
MAX_THREADS = 256


def usable_cpus() -> int:
    """Physical cores that this process may keep busy: its affinity mask, cut by its cgroup quotas."""
    try:
        allowed = physical_cores(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        allowed = os.cpu_count() or 1
    quota = cgroup_quota()
    if quota is not None:
        allowed = min(allowed, max(1, math.ceil(quota)))
    return max(1, min(allowed, MAX_THREADS))


def physical_cores(cpus: Iterable[int], root: Path = CPU_ROOT) -> int:
    """Cores behind some logical CPUs: hardware threads of one core count once."""
    cores: set[str] = set()
    for cpu in cpus:
        file = root / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        try:
            siblings = file.read_text(encoding="ascii").strip()
        except OSError:
            siblings = ""
        cores.add(siblings or str(cpu))
    return len(cores)


def cgroup_quota(root: Path = CGROUP_ROOT, membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs that the tightest cgroup quota grants, or None where there is no quota."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            quotas += _walk(root, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            quotas += _walk(root / controllers, path, _quota_v1) + _walk(root / "cpu", path, _quota_v1)
    return min(quotas, default=None)


def _walk(base: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """Quotas of a cgroup and of all those above it; inside a container the base itself is the group."""
    here = base / path.lstrip("/")
    folders = [here, *(folder for folder in here.parents if folder == base or base in folder.parents), base]
    return [value for folder in dict.fromkeys(folders) if (value := read(folder)) is not None]


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def available_bytes() -> int | None:
    """Memory that can be taken without swapping, or None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def last_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Size of the largest cache of the first CPU, or None where the system does not say."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for path in root.glob("index*/size"):
        try:
            text = path.read_text(encoding="ascii").strip()
            sizes.append(int(text[:-1]) * units[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return max(sizes, default=None)


def cpu_name() -> str | None:
    """The processor's marketing name, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip() or None
    except OSError:
        pass
    return platform.processor() or None
