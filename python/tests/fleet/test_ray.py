"""The engine Ray: the files of the local engine, also when its processes are killed."""

import glob
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from stopgap import fleet

from .conftest import break_some, made, results

pytestmark = pytest.mark.ray


def ray_processes():
    """All processes of Ray that live, by number."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = pathlib.Path(path).read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if words.startswith(b"ray::") or b"/ray/" in words.split(b" --")[0]:
            found[int(path.split("/")[2])] = words
    return found


@pytest.fixture(autouse=True)
def nothing_stays():
    pytest.importorskip("ray")
    before = set(ray_processes())
    yield
    ends = time.monotonic() + 20
    while left := {pid: words for pid, words in ray_processes().items() if pid not in before}:
        if time.monotonic() > ends:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"processes of Ray stay: {left}")
        time.sleep(0.1)


def started(folder, out):
    command = [sys.executable, "-m", "stopgap.fleet", "explain", str(folder), "-o", str(out), "--workers", "2", "--engine", "ray"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def end(begun):
    """Ends what a killed driver left. Ray's own processes end with it, but for its agents."""
    ends = time.monotonic() + 10
    while (left := begun & set(ray_processes())) and time.monotonic() < ends:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def wait_for(out, count, process):
    ends = time.monotonic() + 300
    while len(glob.glob(f"{out}/explain/part=*/*.parquet")) < count:
        assert process.poll() is None and time.monotonic() < ends
        time.sleep(0.002)


def kill_worker(before):
    """Kills a worker that does a task."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        for pid, words in ray_processes().items():
            if words.startswith(b"ray::task") and pid not in before:
                os.kill(pid, signal.SIGKILL)
                return pid
        time.sleep(0.001)
    raise AssertionError("no worker of Ray was at work")


def test_killed_workers_and_a_killed_driver_change_nothing(tmp_path):
    before = set(ray_processes())
    folder = made(tmp_path / "traces", 40, size=(600e3, 1200e3))
    break_some(folder, 20)
    local, out = tmp_path / "local", tmp_path / "out"
    done = fleet.explain(folder, out=local, workers=2)
    assert (done.done, done.failed) == (40, 20)
    process = started(folder, out)
    try:
        wait_for(out, 4, process)
        begun = set(ray_processes()) - before
    finally:
        process.kill()
        process.communicate(timeout=60)
    there = len(glob.glob(f"{out}/explain/part=*/*.parquet"))
    assert there < 40, "the driver was killed too late"
    # At once, beside what is left of the first.
    process = started(folder, out)
    try:
        killed = set()
        for at in range(3):
            wait_for(out, min(39, there + 1 + 2 * at), process)
            killed.add(kill_worker(killed | begun))
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
        end(begun)
    assert process.returncode == 0, errors
    assert len(killed) == 3
    assert results(out / "explain") == results(local / "explain")


def test_a_worker_has_one_heap(traces, tmp_path):
    # With glibc's heap for each thread a worker grew to 800 MiB.
    driver, one = started(traces, tmp_path / "out"), set()
    while driver.poll() is None:
        for pid, words in ray_processes().items():
            if words.startswith(b"ray::task"):
                try:
                    one.add(b"MALLOC_ARENA_MAX=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
                except OSError:
                    pass
        time.sleep(0.005)
    assert (driver.returncode, one) == (0, {True}), driver.stderr.read()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "auto"])
def test_a_cluster_that_refuses(traces, tmp_path, address):
    words = ["explain", str(traces), "-o", str(tmp_path / "out"), "--engine", "ray", "--address", address]
    done = subprocess.run([sys.executable, "-m", "stopgap.fleet", *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert f"the Ray cluster at {address} does not answer" in done.stderr and "look with: ray status" in done.stderr
    assert not (tmp_path / "out").exists()
