"""Make many traces of few: `python -m stopgap.fleet.synthetic RECORDED OUT --traces 400`.

Each made trace is a recorded one with these changes; its waits, stacks and calls are the recorded ones.

* Size: the recording is repeated, each time after the time before, until the file has about the size that is drawn (log-uniform from
  1 to 10 MB). Threads that began in the recording have other numbers each time.
* Clock: times begin at a boot of another length, and pass 0.8 to 1.25 times as fast.
* Labels: host, boot, kernel, machine, disks' models, date of recording, label `device`. Hosts have one machine each; half of them have the
  newer kernel.

The same seed and recordings give the same files. It takes some 0.2 s of CPU time and 300 MB of memory a trace.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from .store import FleetError, Store

#: Columns with a time on the trace's clock.
TIMES = ("time_ns", "left_ns", "woken_ns", "begin_ns", "issued_ns", "started_ns")

#: Columns with a length of time.
LENGTHS = ("duration_ns", "cpu_time_ns", "run_delay_ns")

#: Columns with the number of a process or thread.
NUMBERS = ("pid", "tid", "next_tid", "previous_tid", "waker_tid", "target_tid", "target_pid", "old_tid", "parent_pid", "holder_tid")

#: Numbers of threads are below this (`include/linux/threads.h`, PID_MAX_LIMIT).
LARGEST_PID = 4 << 20

KERNELS = ("6.6.30-fleet", "6.12.9-fleet")

DEVICES = (("laptop-a", "Fleet CPU 8", 8, 16), ("laptop-b", "Fleet CPU 16", 16, 32), ("board-c", "Fleet SoC 4", 4, 4))

#: A host's disk of whatever name.
DISKS = ("Fleet SSD 500", "Fleet SSD 1000", "Fleet eMMC")


def make(recorded: list[str], at: int, hosts: int, seed: int, smallest: float = 1e6, largest: float = 10e6) -> tuple[str, bytes]:
    """Returns name and bytes of the made trace of that number.

    Args:
        recorded: paths of recorded traces.
        at: its number: which recording, and which host.
        hosts: how many hosts there are.
        seed: of all draws.
        smallest, largest: bytes between which its size is drawn.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = random.Random(f"{seed} {at}")
    path = recorded[at % len(recorded)]
    table = pq.read_table(path)
    kept = dict(pq.read_metadata(path).metadata)
    metadata = json.loads(kept[b"stopgap.trace"])
    wanted = smallest * (largest / smallest) ** draw.random()
    scale = 0.8 * (1.25 / 0.8) ** draw.random()
    boot = draw.randrange(10**10, 10**15)
    host = at % hosts

    first, last = _span(table)
    length = int((last - first) * scale) + 1_000_000
    begun = _begun(table)
    def repeated(copies: int) -> Any:
        return pa.concat_tables([_changed(table, copy, first, scale, boot, copy * length, begun) for copy in range(copies)])

    # Names stand in a file once: the second copy tells how much one more takes.
    once, twice = (len(_written(repeated(copies), kept, metadata)) for copies in (1, 2))
    made = repeated(1 + max(0, round((wanted - once) / max(1, twice - once))))

    of_host = random.Random(f"{seed} host {host}")
    device, cpu, cpus, memory = of_host.choice(DEVICES)
    disk = of_host.choice(DISKS)
    start = datetime(2026, 3, 1, tzinfo=timezone.utc) + timedelta(seconds=draw.randrange(28 * 86400))
    metadata.update(
        host=f"host-{host:04}",
        boot_id=str(uuid.UUID(int=draw.getrandbits(128))),
        kernel=f"{KERNELS[host % 2]} #1 SMP",
        machine={"architecture": "x86_64", "cpu": cpu, "cpus": cpus, "memory": memory << 30, "hypervisor": "none"},
        devices={name: disk for name in metadata.get("disks", {}).values()},
        start=start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        labels={**metadata.get("labels", {}), "device": device},
    )
    return f"host-{host:04}/{start:%Y%m%d}-{at:05}.parquet", _written(made, kept, metadata)


def _span(table: Any) -> tuple[int, int]:
    import pyarrow.compute as pc

    ends = pc.min_max(table["time_ns"]).as_py()
    begins = [ends["min"]] + [pc.min(table[name]).as_py() for name in TIMES if name in table.schema.names and name != "started_ns"]
    return min(begin for begin in begins if begin is not None), ends["max"]


def _begun(table: Any) -> Any:
    """Returns the threads that began while the trace was recorded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    forks = table.filter(pc.is_in(table["kind"].cast(pa.string()), pa.array(["fork", "new"])))
    own = forks["target_tid" if "target_tid" in table.schema.names else "tid"]
    return pc.unique(pc.drop_null(own.combine_chunks()))


def _changed(table: Any, copy: int, first: int, scale: float, boot: int, later: int, begun: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(table.schema):
        column = table[field.name]
        if column.null_count == len(column):
            continue
        if field.name in TIMES:
            # Started before the recording: as long before it as it was.
            since = pc.subtract(column.cast(pa.int64()), first)
            since = pc.cast(pc.floor(pc.multiply(pc.cast(since, pa.float64()), scale)), pa.int64())
            column = pc.max_element_wise(pc.add(since, boot + later), 0, skip_nulls=False).cast(field.type)
        elif field.name in LENGTHS:
            column = pc.cast(pc.floor(pc.multiply(pc.cast(column, pa.float64()), scale)), field.type)
        elif field.name in NUMBERS and copy:
            # Beyond the kernel's largest number, and counted on from copy to copy: a short recording is repeated a thousand times.
            place = pc.index_in(column, value_set=begun)
            moved = pc.add(pc.cast(place, pa.int64()), LARGEST_PID + (copy - 1) * len(begun)).cast(field.type)
            column = pc.if_else(pc.is_valid(place), moved, column)
        else:
            continue
        table = table.set_column(at, field, column)
    return table


def _written(table: Any, kept: dict[bytes, bytes], metadata: dict[str, Any]) -> bytes:
    import io

    import pyarrow.parquet as pq

    words = {b"stopgap.schema": kept[b"stopgap.schema"], b"stopgap.trace": json.dumps(metadata).encode()}
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(words), out, compression="snappy", row_group_size=65_536)
    return out.getvalue()


def main(words: list[str] | None = None) -> int:
    """Makes traces as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m stopgap.fleet.synthetic", description="Make many traces of few recorded ones, with other labels, clocks and sizes.")
    parser.add_argument("recorded", metavar="DIR", help="recorded traces")
    parser.add_argument("out", metavar="DIR|URL", help="where the made ones go")
    parser.add_argument("--traces", type=int, default=400, help="how many [default: 400]")
    parser.add_argument("--hosts", type=int, default=40, help="of so many hosts [default: 40]")
    parser.add_argument("--seed", type=int, default=1, help="of all draws [default: 1]")
    parser.add_argument("--smallest", type=float, default=1.0, metavar="MB", help="[default: 1]")
    parser.add_argument("--largest", type=float, default=10.0, metavar="MB", help="[default: 10]")
    args = parser.parse_args(words)
    recorded = sorted(os.path.join(args.recorded, name) for name in os.listdir(args.recorded) if name.endswith(".parquet"))
    if not recorded:
        print(f"stopgap: {args.recorded}: no traces in it: checks/fleet/record makes some", file=sys.stderr)
        return 1
    try:
        store, size = Store(args.out), 0
        for at in range(args.traces):
            name, data = make(recorded, at, args.hosts, args.seed, args.smallest * 1e6, args.largest * 1e6)
            store.write(name, data)
            size += len(data)
    except FleetError as error:
        print(f"stopgap: {error}", file=sys.stderr)
        return 1
    print(f"{args.traces:,} traces of {args.hosts:,} hosts, {size / 1e6:,.0f} MB: {store.url}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
