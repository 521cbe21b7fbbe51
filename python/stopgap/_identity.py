"""What a trace says of itself."""

import json

from . import _stopgap
from ._words import path, text

#: What a trace's description says of its machine, and the column of it.
_MACHINE = {"architecture": "architecture", "cpu": "cpu", "cpus": "cpus", "memory": "memory_bytes", "hypervisor": "hypervisor"}


def identity(trace, *, name=None):
    """Returns what a trace says of itself, and its id: a dictionary of columns. What it does not say is None.

    `trace`: a path, or a binary file object with `read`, `seek` and `tell`, of any file system. Of a Parquet file only the footer is
    read. `name`: what errors call a file object (its own name).

    ===================  =================================================================================================
    `trace_id`           32 hexadecimal digits, made from the content: the first 128 bits of the SHA-256 of the Parquet
                         footer, its length and magic included; of other forms of the whole file. A copy has the same
    `host`               name of the machine
    `kernel`             release and version, as ``uname -rv`` prints them
    `kernel_release`     the first word of it
    `architecture`, `cpu`, `cpus`, `memory_bytes`, `hypervisor`    the machine
    `device`             the label `device`, which the user gave (``stopgap record --label device=...``), else maker and model of
                         the machine, as its firmware says
    `devices`            models of disks and drivers of GPUs by the kernel's names, as JSON (keys in order)
    `disks`              names of its block devices, joined by commas
    `program`            the recorded program, without its folder
    `command`            its command line
    `date`               when the recording began: RFC 3339, UTC
    `boot_id`            the kernel's id of the boot
    `clock`              the clock of the trace's times
    `stopgap`            the version that recorded it
    `lost_events`        events that were lost; None where the trace does not say
    `labels`             labels that the user gave, as JSON (keys in order); None where there are none
    ===================  =================================================================================================
    """
    if name is not None:
        text("name", name)
    if hasattr(trace, "read") and hasattr(trace, "seek"):
        shown = str(name or getattr(trace, "name", None) or "the file")
        trace_id, described = _stopgap.identity_of(trace, shown)
    else:
        trace_id, described = _stopgap.identity(path("trace", trace))
    return {"trace_id": trace_id, **_columns(json.loads(described))}


def _columns(trace):
    machine = trace.get("machine") or {}
    labels = trace.get("labels") or {}
    kernel, program, losses = trace.get("kernel"), trace.get("program"), trace.get("losses")
    return {
        # "(none)": the kernel's word for a name that nobody gave.
        "host": host if (host := trace.get("host")) != "(none)" else None,
        "kernel": kernel,
        "kernel_release": kernel.split()[0] if kernel and kernel.strip() else None,
        **{column: machine.get(name) for name, column in _MACHINE.items()},
        "device": labels.get("device", machine.get("model")),
        "devices": json.dumps(devices, sort_keys=True) if (devices := trace.get("devices")) else None,
        "disks": ",".join(sorted(set(trace.get("disks", {}).values()))) or None,
        "program": program.rsplit("/", 1)[-1] if program else None,
        "command": trace.get("source"),
        "date": trace.get("start"),
        "boot_id": trace.get("boot_id"),
        "clock": trace.get("clock"),
        "stopgap": trace.get("stopgap"),
        "lost_events": None if losses is None else sum(loss["count"] for loss in losses),
        "labels": json.dumps(labels, sort_keys=True) if labels else None,
    }
