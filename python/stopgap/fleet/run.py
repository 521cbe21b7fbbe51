"""Explain or replay every trace of a fleet: a task a trace, a result file a trace.

A task is a whole trace, because a trace is ordered. Ray schedules the tasks and starts those again whose process died. They are
plain tasks and not `ray.data`: of each task we know how much memory it takes, from the size of its trace, and `ray.data` asks for the
same memory for every block of an operator; and there is nothing to pass on, since a task writes its own result.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from .. import _words
from . import rows
from .manifest import MANIFEST, Index, encoded, save, scan
from .store import FleetError, Scratch, Store

#: Memory of a task: this many bytes, and so many times the size of its trace. checks/fleet/memory measures 140 MiB, 5.6 times the file, and
#: up to 53 MiB more. The rest is what a worker of Ray keeps between traces: it had up to 331 MiB.
BASE_BYTES = 400 << 20
BYTES_PER_BYTE = 8

#: A worker of Ray has some 23 threads, and glibc a heap for each: what a trace leaves in one of them grew to 800 MiB after 200 traces.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}

#: How often a trace is tried whose process dies.
TRIES = 6

#: Tasks for each worker that are handed to the engine at a time.
AHEAD = 8

#: More are refused: they are a mistake.
MOST_SEEDS = 10_000
MOST_WORKERS = 100_000

#: How long a cluster may take to accept a connection.
CONNECT_SECONDS = 10

#: Options of the results beside it. Readers of Parquet folders leave out names that begin so.
OPTIONS = "_options.json"

ENGINES = ("local", "ray")


@dataclass
class Run:
    """What a run did.

    Attributes:
        out: where the results lie.
        traces: how many traces the index has.
        done: how many this run did; the others were there.
        failed: how many of these have an error in their row.
        seconds: how long it took.
        cpu_seconds: CPU time of the tasks.
        bytes_read: size of the traces that were read.
        peak_bytes: the most memory that one worker had resident.
        bound_bytes: the most memory that a task asked for.
        past: tasks whose worker had more memory resident than they asked for.
    """

    out: str
    traces: int
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    bytes_read: int = 0
    peak_bytes: int = 0
    bound_bytes: int = 0
    past: int = 0

    def __str__(self) -> str:
        if not self.done:
            return f"nothing to do: all {self.traces:,} traces were there: {self.out}"
        past = f", which {self.past:,} of them went past" if self.past else ""
        return (
            f"{self.done:,} of {self.traces:,} traces done in {self.seconds:.1f} s ({self.traces - self.done:,} were there), "
            f"{self.failed:,} failed; {self.cpu_seconds:.1f} s of CPU time, {self.bytes_read / 1e6:,.1f} MB read, "
            f"at most {self.peak_bytes >> 20:,} MiB a worker (tasks asked for up to {self.bound_bytes >> 20:,} MiB{past}): {self.out}"
        )


@dataclass(frozen=True)
class Job:
    """One trace, and what to do with it."""

    trace: dict[str, Any]
    traces: str
    out: str
    question: str | None
    options: dict[str, Any] = field(default_factory=dict)

    def memory(self) -> int:
        """Bytes of memory that it asks for."""
        return BASE_BYTES + BYTES_PER_BYTE * int(self.trace["size"])

    def name(self) -> str:
        """Name of its result below `out`."""
        return result_name(self.trace["trace_id"])


@dataclass(frozen=True)
class Done:
    """What a task says of itself. It is in no result: the same trace gives the same file."""

    failed: bool
    cpu_seconds: float
    bytes_read: int
    peak_bytes: int = 0
    bound_bytes: int = 0


def result_name(trace_id: str) -> str:
    """Returns the name of a trace's result. The ids are hashes, so the first or last letters spread them evenly."""
    return f"part={trace_id[-2:]}/{trace_id}.parquet"


def explain(
    index: Index | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    top: int | None = None,
    frame_marker: str | None = None,
    request: str | None = None,
) -> Run:
    """Explains every trace and writes `explain/part=xx/ID.parquet` below `out`, a file with one row for each.

    Run it again after whatever ended it: only what is missing is done. A trace that cannot be read is a row with its `error`.

    Args:
        index: what `index()` returned, or the directory or prefix.
        out: directory or URL of the results; default is the folder of the manifest.
        engine: `local` (processes on this machine) or `ray`.
        workers: processes; of a Ray cluster that runs already, tasks at a time. Default: as many as there are CPUs and memory.
        address: of the Ray cluster, as `auto` or `ray://host:10001`; default is $RAY_ADDRESS, else Ray starts here.
        top, frame_marker, request: as of `stopgap.explain`.

    Costs: CPU time and bytes for each trace are in the returned `Run`; a task asks for 400 MiB and 8 times its trace's size.
    """
    import stopgap

    given = {"top": top, "frame_marker": frame_marker, "request": request}
    options = {name: value for name, value in given.items() if value is not None}
    _try(lambda: stopgap.explain(os.devnull, **options), options)
    return _run(index, "explain", None, options, out, engine, workers, address)


def replay(
    index: Index | str | os.PathLike[str],
    *,
    question: str,
    policies: Sequence[str] | None = None,
    seeds: Sequence[int] | int = (1,),
    out: str | os.PathLike[str] | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
) -> Run:
    """Replays every trace under other policies and writes `replay/question=Q/part=xx/ID.parquet` below `out`.

    Results have the figures that no clock has touched: the same trace, policy and seed give the same file. A trace with nothing to
    replay is a row with that as its `error`.

    Args:
        question: `placement` (of several processes the one with most calls), `chunks` or `roundtrip`.
        policies: names of policies; default is all. The first is what others are compared with in `report`.
        seeds: seeds, or how many (1, 2, ...).
    """
    import stopgap

    if _words.text("question", question) not in rows.FIGURES:
        raise ValueError(f"question must be {', '.join(rows.FIGURES)}, not {question!r}")
    if isinstance(policies, str):
        raise TypeError("policies must be a list of names, not str")
    if policies is not None:
        policies = _words.listed(_words.text, "policies", policies).split(",")
    if isinstance(seeds, (list, tuple, range)):
        seeds = [int(_words.integer(f"seeds[{at}]", seed)) for at, seed in enumerate(seeds)]
        if not seeds:
            raise ValueError("seeds: the list is empty")
    else:
        seeds = list(range(1, int(_words.integer("seeds", seeds, 1, MOST_SEEDS)) + 1))
    options = {"policies": policies, "seeds": seeds}
    smallest: dict[str, Callable[[], Any]] = {
        "placement": lambda: stopgap.replay_placement("frag", policies=policies, n=16, ops=16),
        "chunks": lambda: stopgap.replay_chunks("unfragmented", policies=policies, n=1, size=4096),
        "roundtrip": lambda: stopgap.replay_roundtrip(policies=policies, n=1, client="poll", server="poll", work=0),
    }
    if policies is not None:
        _try(smallest[question], options)
    return _run(index, f"replay/question={question}", question, options, out, engine, workers, address)


def _try(smallest: Callable[[], Any], options: dict[str, Any]) -> None:
    """Raises what every trace would raise: the error of an option. An error of the input that this one lacks says nothing."""
    import stopgap

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            smallest()
    except stopgap.Error as error:
        if any(str(error).startswith(f"{name}: ") for name in options):
            raise


def _run(
    index: Any,
    kind: str,
    question: str | None,
    options: dict[str, Any],
    out: str | os.PathLike[str] | None,
    engine: str,
    workers: int | None,
    address: str | None,
) -> Run:
    if _words.text("engine", engine) not in ENGINES:
        raise ValueError(f"engine must be {' or '.join(ENGINES)}, not {engine!r}")
    if workers is not None:
        workers = int(_words.integer("workers", workers, 1, MOST_WORKERS))
    if address is not None:
        _words.text("address", address)
        if engine != "ray":
            raise ValueError(f"address is of a Ray cluster, and engine is {engine!r}: give engine ray, or no address")
    if out is not None:
        out = _words.path("out", out)
    index, is_new = (index, False) if isinstance(index, Index) else scan("index", index, out)
    home = Store(out) if out is not None else Store(os.path.dirname(index.path))
    store = home.child(kind)
    begun = time.monotonic()
    try:
        there = store.files(".parquet")
    except FileNotFoundError:
        there = {}
    asked = _asked(options)
    _same_options(store, asked)
    traces = index.table.to_pylist()
    jobs = [Job(trace, index.url, store.url, question, options) for trace in traces]
    jobs = [job for job in jobs if job.name() not in there]
    # The largest first: none of them is left alone at the end.
    jobs.sort(key=lambda job: (-job.trace["size"], job.trace["path"]))
    run = Run(store.url, len(traces), bound_bytes=max((job.memory() for job in jobs), default=0))
    if not jobs and is_new:
        save(index)
    if jobs:
        start = _ray(jobs, workers, address) if engine == "ray" else _local(jobs, workers)
        first = next(start)  # the engine is there, or has said why not, before anything is written
        assert first is None
        store.clean()
        if is_new or home.name(MANIFEST) != index.path:
            home.write(MANIFEST, encoded(index.table))
        store.write(OPTIONS, asked)
        try:
            for done in start:
                run.done += 1
                run.failed += done.failed
                run.cpu_seconds += done.cpu_seconds
                run.bytes_read += done.bytes_read
                run.peak_bytes = max(run.peak_bytes, done.peak_bytes)
                run.past += done.peak_bytes > done.bound_bytes
        except FleetError as error:
            raise FleetError(f"{error}; {len(traces) - len(jobs) + run.done:,} of {len(traces):,} are done: run it again to go on") from error
        finally:
            start.close()
            store.clean()
    run.seconds = time.monotonic() - begun
    return run


def _asked(options: dict[str, Any]) -> bytes:
    from stopgap import _stopgap

    asked = {"stopgap": _stopgap.version(), "options": options}
    try:
        return json.dumps(asked, sort_keys=True, indent=1).encode() + b"\n"
    except TypeError as error:
        raise TypeError(f"options: {error}") from None


def _same_options(store: Store, asked: bytes) -> None:
    try:
        before = store.read(OPTIONS)
    except FileNotFoundError:
        return
    if before != asked:
        raise FleetError(f"{store.url} has results of another version or other options ({store.name(OPTIONS)}): give another out, or remove it")


def task(job: Job) -> Done:
    """Does one trace and writes its result. Raises `FleetError` where the store or the disk fails, which ends the run."""
    import pyarrow as pa

    from stopgap import _stopgap

    before = time.process_time()
    _forget_peak()
    # As many processes as CPUs: a second thread would only take another task's.
    _stopgap.keep_to_one_cpu()
    schema = rows.explain_schema() if job.question is None else rows.replay_schema()
    row = dict.fromkeys(schema.names)
    row.update(rows.head(job.trace))
    if job.question is not None:
        row["question"] = job.question
    read = 0
    if row["error"] is None:
        read = int(job.trace["size"])
        try:
            with warnings.catch_warnings():
                # Notes of the command; an answer that is doubtful says so itself.
                warnings.simplefilter("ignore")
                row.update(_answer(job))
        except FleetError:
            raise
        except Exception as error:
            row["error"] = " ".join(str(error).split()) or type(error).__name__
    table = pa.Table.from_pylist([row], schema=schema)
    Store(job.out).write(job.name(), encoded(table))
    _return_memory()
    return Done(row["error"] is not None, time.process_time() - before, read, peak_bytes(), job.memory())


def _answer(job: Job) -> dict[str, Any]:
    import stopgap

    store, path = Store(job.traces), job.trace["path"]
    # A trace of this machine is read where it lies.
    with contextlib.nullcontext("") if store.local else Scratch() as folder:
        try:
            local = store.copy(path, folder)
            if os.stat(local).st_size != job.trace["size"]:
                raise ValueError(f"{store.name(path)}: it has changed since it was indexed: index again")
        except FileNotFoundError:
            raise ValueError(f"{store.name(path)}: it was removed since it was indexed: index again") from None
        try:
            if job.question is None:
                found = stopgap.explain(local, **job.options)
                if found.damaged is not None:
                    raise ValueError(f"{store.name(path)}: {found.damaged}; a damaged trace is no evidence")
                return rows.explained(found.to_dict(), job.trace.get("devices"))
            return {"figures": _figures(job, local)}
        except FleetError:
            raise
        except Exception as error:
            raise ValueError(str(error).replace(local, store.name(path))) from None


def _figures(job: Job, local: str) -> list[dict[str, Any]]:
    import stopgap
    from stopgap import _stopgap

    assert job.question is not None
    replay = getattr(stopgap, f"replay_{job.question}")
    more = {}
    if job.question == "placement" and (pid := _stopgap.busiest(local)) is not None:
        more["pid"] = pid
    figures = []
    for seed in job.options["seeds"]:
        found = replay(local, policies=job.options["policies"], seed=seed, **more)
        figures += rows.replayed(job.question, seed, found.to_dict(), more.get("pid"))
    # The record has its own order of policies; here the first one that was asked for is what others are compared with.
    order = {policy: place for place, policy in enumerate(job.options["policies"] or ())}
    return sorted(figures, key=lambda one: order.get(one["policy"], len(order)))


def _return_memory() -> None:
    """Returns freed memory to the kernel. A trace is explained in a thread of its own, and glibc keeps what each thread's heap had."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _forget_peak() -> None:
    """Lets `peak_bytes` begin anew, where the kernel allows it (Linux 4.0); else it is that of all tasks of this process so far."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")


def peak_bytes() -> int:
    """Returns the most memory that this process had resident since its task began."""
    # Not getrusage(2), whose maximum a new process takes over from the one that made it.
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _gave_up(job: Job, why: str) -> Done:
    """Writes the row of a trace whose process died too often."""
    import pyarrow as pa

    schema = rows.explain_schema() if job.question is None else rows.replay_schema()
    row = {**dict.fromkeys(schema.names), **rows.head(job.trace), "error": why}
    if job.question is not None:
        row["question"] = job.question
    Store(job.out).write(job.name(), encoded(pa.Table.from_pylist([row], schema=schema)))
    return Done(True, 0.0, 0)


def _available() -> int:
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 30


def _workers(jobs: list[Job], workers: int | None) -> int:
    cpus = len(os.sched_getaffinity(0))
    fit = max(1, int(_available() * 0.8) // max(job.memory() for job in jobs))
    return min(workers or cpus, fit, len(jobs))


def _local(jobs: list[Job], workers: int | None) -> Iterator[Any]:
    """Does all jobs in a pool of processes. Yields `None` when the pool is there, then what each task says."""
    import multiprocessing

    n = _workers(jobs, workers)
    context = multiprocessing.get_context("spawn")
    waiting, tries = list(reversed(jobs)), dict[str, int]()
    yield None
    while waiting:
        # After a crash nobody knows whose process it was: those that were under way go on one at a time.
        alone = bool(tries.get(waiting[-1].name()))
        pool = ProcessPoolExecutor(1 if alone else n, mp_context=context, initializer=_end_with_parent)
        under_way: dict[Future[Done], Job] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < (1 if alone else 2 * n) and alone == bool(tries.get(waiting[-1].name())):
                    job = waiting.pop()
                    under_way[pool.submit(task, job)] = job
                if not under_way:
                    break
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    done = future.result()
                    del under_way[future]
                    yield done
        except BrokenProcessPool:
            for job in under_way.values():
                tries[job.name()] = tries.get(job.name(), 0) + 1
                if tries[job.name()] < TRIES:
                    waiting.append(job)
                else:
                    yield _gave_up(job, DIED)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends this process when the one that made it is gone; a pool's process would wait for ever."""
    import multiprocessing
    import multiprocessing.connection
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


DIED = f"the process that read it was killed {TRIES} times (too little memory?)"


def _ray(jobs: list[Job], workers: int | None, address: str | None) -> Iterator[Any]:
    """Does all jobs as tasks of Ray. Yields `None` when the cluster is there, then what each task says."""
    try:
        import ray
    except ImportError:
        raise FleetError("Ray is not installed: pip install 'stopgap[ray]', or take engine local") from None
    ours = not ray.is_initialized()
    if ours:
        _begin(ray, workers, address)
    try:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = int(max((node.get("memory", 0) for node in nodes), default=0))
        cpus = int(sum(node.get("CPU", 0) for node in nodes))
        if cpus < 1 or room < BASE_BYTES:
            raise FleetError(f"the Ray cluster has {cpus} CPUs and {room >> 20} MiB for a task: start a node with more")
        yield None
        remote = ray.remote(num_cpus=1, max_retries=TRIES - 1, runtime_env={"env_vars": ONE_HEAP})(task)
        most = AHEAD * min(workers or cpus, cpus) if ours else (workers or AHEAD * cpus)
        waiting: list[Job] = list(reversed(jobs))
        under_way: dict[Any, Job] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < most:
                    job = waiting.pop()
                    # What no node has would wait for ever.
                    under_way[remote.options(memory=min(job.memory(), room)).remote(job)] = job
                # Several at a time, since to wait takes time for each that is under way.
                ready, _ = ray.wait(list(under_way), num_returns=1 + len(under_way) // (2 * AHEAD), timeout=1)
                for one in ready:
                    job = under_way.pop(one)
                    try:
                        yield ray.get(one)
                    except ray.exceptions.RayTaskError as error:
                        cause = error.cause
                        raise cause if isinstance(cause, FleetError) else FleetError(f"{job.trace['path']}: {cause!r}") from None
                    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
                        yield _gave_up(job, DIED)
                    except ray.exceptions.RayError as error:
                        raise FleetError(f"Ray: {' '.join(str(error).split())}") from None
        finally:
            for one in under_way:
                ray.cancel(one)
    finally:
        if ours:
            ray.shutdown()


def _connect(address: str) -> None:
    """Fails where nobody listens: Ray itself asks such an address for ten minutes."""
    host, _, port = address.rsplit("//", 1)[-1].rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _begin(ray: Any, workers: int | None, address: str | None) -> None:
    address = address or os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    try:
        if address:
            _connect(address)
            ray.init(address=address, **quiet)
        else:
            cpus = workers or len(os.sched_getaffinity(0))
            # The tasks pass nothing on, so its store of objects may be the smallest.
            # "local": not a cluster that somebody started here.
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20, **quiet)
    except Exception as error:
        where = f"the Ray cluster at {address}" if address else "Ray on this machine"
        raise FleetError(f"{where} does not answer: {' '.join(str(error).split())[:200]}; look with: ray status") from None


