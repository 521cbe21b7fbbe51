"""Runs by processes: one file a trace, the same whatever happens meanwhile."""

import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from stopgap import fleet
from stopgap.fleet import run

from .conftest import break_some, made, results


@pytest.fixture(scope="module")
def explained(traces, tmp_path_factory):
    """An undisturbed run of two processes."""
    out = tmp_path_factory.mktemp("explained")
    done = fleet.explain(fleet.index(traces, out=out), workers=2)
    assert (done.traces, done.done, done.failed) == (24, 24, 0)
    assert 0 < done.peak_bytes < done.bound_bytes and done.cpu_seconds > 0
    assert done.bytes_read == sum(path.stat().st_size for path in traces.rglob("*.parquet"))
    return out / "explain"


def test_one_row_a_trace(traces, explained):
    import stopgap

    paths = glob.glob(f"{explained}/part=*/*.parquet")
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    assert len(rows) == 24 == len({row["trace_id"] for row in rows})
    for row in rows[:4]:
        found = stopgap.explain(str(traces / row["path"])).to_dict()
        assert row["verdict"] == found["verdict"]["word"] and row["events"] == found["trace"]["events"]
        assert row["lost_ns"] == sum(cause["lost_ns"] for cause in row["causes"])
        stalled = [one for one in found["chains"]["waiting"] if one["idleness"] == "stalled" and one["task"] != "stopgap"]
        assert row["lost_ns"] <= sum(one["total_ns"] for one in stalled) + sum(one["wall_ns"] for one in found["memory"]["reclaim"] or [])


def test_a_second_run_does_only_what_is_missing(traces, explained, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(explained, out / "explain")
    gone = sorted(out.rglob("part=*/*.parquet"))[::5]
    for path in gone:
        path.unlink()
    done = fleet.explain(traces, out=out, workers=1)
    assert done.done == len(gone)
    assert results(out / "explain") == results(explained)
    again = fleet.explain(traces, out=out)
    assert again.done == 0 and str(again) == f"nothing to do: all 24 traces were there: {out}/explain"


def test_other_options_are_refused(traces, explained, tmp_path):
    shutil.copytree(explained, tmp_path / "explain")
    before = results(tmp_path)
    with pytest.raises(fleet.FleetError, match="other options"):
        fleet.explain(traces, out=tmp_path, top=3)
    assert results(tmp_path) == before


def test_broken_traces_are_rows(tmp_path):
    folder = made(tmp_path / "traces", 12)
    broken = break_some(folder, 5)
    done = fleet.explain(folder, workers=2)
    assert (done.done, done.failed) == (12, 5)
    rows = [row for path in glob.glob(f"{folder}/_stopgap/explain/part=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    failed = {row["path"]: row for row in rows if row["error"]}
    assert sorted(failed) == broken and len(rows) == 12
    for path, row in failed.items():
        assert "\n" not in row["error"] and row["lost_ns"] is None and row["causes"] is None, path


def started(folder, out, *words):
    command = [sys.executable, "-m", "stopgap.fleet", "explain", str(folder), "-o", str(out), "--workers", "2", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(out, count, process):
    ends = time.monotonic() + 60
    while len(glob.glob(f"{out}/explain/part=*/*.parquet")) < count:
        assert process.poll() is None and time.monotonic() < ends, process.communicate()
        time.sleep(0.002)


def children(pid):
    """Processes of a pool: of the children those that were spawned to work."""
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            parent = int(pathlib.Path(stat).read_text().rsplit(")", 1)[1].split()[1])
            words = pathlib.Path(stat).with_name("cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == pid and b"spawn_main" in words:
            found.append(int(stat.split("/")[2]))
    return found


def test_killed_workers_and_a_killed_driver_change_nothing(traces, explained, tmp_path):
    # The driver dies with its workers in the middle; then, of the run that goes on, a worker.
    process = started(traces, tmp_path)
    wait_for(tmp_path, 5, process)
    process.kill()
    process.communicate()
    there = len(glob.glob(f"{tmp_path}/explain/part=*/*.parquet"))
    assert there < 24
    process = started(traces, tmp_path)
    wait_for(tmp_path, there + 3, process)
    for pid in children(process.pid)[:1]:
        os.kill(pid, signal.SIGKILL)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert results(tmp_path / "explain") == results(explained)


def test_a_trace_that_kills_its_process_is_a_row(traces, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "TRIES", 2)
    index = fleet.index(traces, out=tmp_path)
    bad = index.table.to_pylist()[0]["path"]
    monkeypatch.setenv("STOPGAP_TEST_DIES", bad)
    monkeypatch.setattr(run, "task", dies)
    done = fleet.explain(index, workers=2)
    assert (done.done, done.failed) == (24, 1)
    rows = [row for path in glob.glob(f"{tmp_path}/explain/part=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert [row["path"] for row in rows if row["error"]] == [bad]


TASK = run.task


def dies(job):
    if job.trace["path"] == os.environ["STOPGAP_TEST_DIES"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return TASK(job)


#: Runs in a mount namespace of its own, so that the file system is gone with it: a run on a full one, then again with space.
FULL = """
set -e
mount -t tmpfs -o size=2m tmpfs "$1"
mkdir "$1/out"
cp "$2/manifest.parquet" "$1/out"
head -c 2m /dev/zero >"$1/filler" 2>/dev/null || true
truncate -s -64k "$1/filler"
run() { "$3" -m stopgap.fleet explain "$4" -o "$1/out" --workers "$5"; }
status=0; run "$@" 2>"$2/errors" || status=$?
echo $status >"$2/status"
cp -a "$1/out" "$2/full"
rm "$1/filler"
run "$@" 2>>"$2/errors"
cp -a "$1/out" "$2/again"
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_run_and_leaves_nothing_half(traces, explained, tmp_path, workers):
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    (disk := tmp_path / "disk").mkdir()
    shutil.copy(explained.parent / "manifest.parquet", tmp_path)
    # The manifest is of this folder: only the traces are missing.
    words = ["unshare", "-m", "sh", "-c", FULL, "sh", disk, tmp_path, sys.executable, traces, str(workers)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "status").read_text() == "1\n"
    error = (tmp_path / "errors").read_text()
    assert error.count("\n") == 1 and "cannot write" in error and "No space left" in error and "run it again" in error, error
    whole = results(explained)
    full = results(tmp_path / "full/explain")
    assert 0 < len(full) < len(whole) and all(whole[name] == data for name, data in full.items())
    assert results(tmp_path / "again/explain") == whole
    assert list(disk.iterdir()) == []


def test_a_folder_that_nobody_may_write(traces, tmp_path):
    if os.getuid() != 0:
        pytest.skip("changing the user needs root")
    folder = tmp_path / "traces"
    folder.mkdir(mode=0o755)
    for path in sorted(traces.rglob("*.parquet"))[:2]:
        shutil.copy(path, folder)
    code = """
import multiprocessing, os, sys
from stopgap import fleet
from stopgap.fleet.__main__ import main
# What is imported while it works lies where others may not read.
fleet.index(sys.argv.pop(1), out=sys.argv.pop(1))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""
    # The folders above are of this user alone: what is opened is told by descriptor.
    here = os.open(folder, os.O_RDONLY)

    def told(*words):
        command = [sys.executable, "-c", code, traces, tmp_path / "imports", *(word.format(f"/proc/self/fd/{here}") for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, pass_fds=[here])
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        return done.stderr

    for words in (["explain", "{}"], ["replay", "--question", "placement", "{}"]):
        assert "Permission denied; give another place (-o), or run as a user who may write there" in told(*words)
    first = min(folder.iterdir())
    first.chmod(0)
    error = told("explain", "{}", "-o", "{}/out")
    assert f"{first.name}: Permission denied; run as a user who may, or move it away" in error
    assert len(list(folder.iterdir())) == 2
    os.close(here)


def test_results_are_of_their_user_alone(explained):
    assert {path.stat().st_mode & 0o777 for path in explained.rglob("*") if path.is_file()} == {0o600}


def test_a_replay_is_the_same_twice(tmp_path):
    folder = made(tmp_path / "traces", 7)
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        done = fleet.replay(folder, question="placement", policies=["linux-6.12", "best-fit"], seeds=2, out=out, workers=1)
        assert done.done == 7
    first, second = (results(out / "replay") for out in outs)
    assert first == second
    rows = [row for path in outs[0].rglob("part=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    replayed = [row for row in rows if row["error"] is None]
    assert replayed and all({one["policy"] for one in row["figures"]} == {"linux-6.12", "best-fit"} for row in replayed)
    assert all({one["seed"] for one in row["figures"]} == {1, 2} for row in replayed)


def test_without_ray_a_line_says_how_to_install_it(traces, tmp_path):
    code = "import sys; sys.modules['ray'] = None; sys.argv[0] = 'x'; from stopgap.fleet.__main__ import main; sys.exit(main(sys.argv[1:]))"
    words = ["explain", str(traces), "-o", str(tmp_path / "out"), "--engine", "ray"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1 and "pip install 'stopgap[ray]'" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_worker_that_takes_more_than_it_asked_for_is_told(traces, tmp_path, monkeypatch):
    index = fleet.index(traces, out=tmp_path)
    assert "went past" not in str(fleet.explain(index, workers=1))
    shutil.rmtree(tmp_path / "explain")
    # A thousandth of what Python itself takes.
    monkeypatch.setattr(run, "BASE_BYTES", 1 << 16)
    monkeypatch.setattr(run, "BYTES_PER_BYTE", 0)

    def here(jobs, workers):
        yield None
        yield from map(run.task, jobs[:3])

    monkeypatch.setattr(run, "_local", here)
    done = fleet.explain(index, workers=1)
    assert done.past == 3 and "3 of them went past" in str(done)


def test_the_peak_is_of_one_task():
    run._forget_peak()
    before = run.peak_bytes()
    hold = bytearray(os.urandom(1)) * (64 << 20)
    high = run.peak_bytes()
    assert high >= before + (60 << 20) and len(hold) == 64 << 20
    del hold
    run._forget_peak()
    assert run.peak_bytes() < high - (50 << 20)
