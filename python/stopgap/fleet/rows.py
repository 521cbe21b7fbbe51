"""Rows of results: one row, in a file of its own, for each trace."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .manifest import identity_fields

if TYPE_CHECKING:
    import pyarrow as pa

#: Causes that a thread both waits and works for. Where the trace has begin and end of reclaim and compaction, these count.
MEMORY = {"direct": "direct-reclaim", "memcg": "memcg-reclaim", "compaction": "compaction", "throttled": "throttled"}

#: Threads whose reclaim and compaction nobody waits for.
BACKGROUND = ("kswapd", "kcompactd")

#: What the recorder itself loses, and what waits behind it, is no news of the machine.
RECORDER = "stopgap"

#: Slowest operations that a row keeps.
STALLS = 10

#: Figures of a replay that depend on nothing but trace, policy and seed: no clock. Less is better in all.
FIGURES = {
    "placement": ("work_per_map", "span_over_live", "failures"),
    "chunks": ("time_ms", "tries_per_buffer", "tlb_misses_per_access", "failures"),
    "roundtrip": ("switches_per_request",),
}


def _head() -> list[pa.Field]:
    import pyarrow as pa

    return [*identity_fields(), pa.field("path", pa.string()), pa.field("size", pa.int64()), pa.field("error", pa.string())]


def explain_schema() -> pa.Schema:
    """Returns the columns of an explained trace. Null means unknown; a row with an `error` has nothing else but identity."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    cause = pa.struct([("cause", text), ("task", text), ("call", text), ("by", text), ("device", text), ("lost_ns", number)])
    stall = pa.struct([("task", text), ("call", text), ("begin_ns", number), ("length_ns", number), ("excess_ns", number), ("cause", text)])
    return pa.schema(
        [
            *_head(),
            pa.field("verdict", text),
            pa.field("verdict_text", text),
            pa.field("events", number),
            pa.field("duration_ns", number),
            pa.field("lost_events_share", pa.float64()),
            pa.field("lost_ns", number),
            pa.field("causes", pa.list_(cause)),
            pa.field("stalls", pa.list_(stall)),
        ]
    )


def replay_schema() -> pa.Schema:
    """Returns the columns of a replayed trace."""
    import pyarrow as pa

    text = pa.string()
    figure = pa.struct([("policy", text), ("seed", pa.int64()), ("row", text), ("figure", text), ("value", pa.float64())])
    return pa.schema([*_head(), pa.field("question", text), pa.field("figures", pa.list_(figure))])


def head(trace: dict[str, Any]) -> dict[str, Any]:
    """Returns what a result's row takes from the manifest's."""
    return {field.name: trace.get(field.name) for field in _head()}


def explained(found: dict[str, Any], devices: str | None = None) -> dict[str, Any]:
    """Returns the columns of an explained trace from the record `stopgap.explain/2`; `devices` are those of its identity."""
    trace, verdict, chains = found["trace"], found["verdict"], found["chains"]
    causes = _causes(found, json.loads(devices or "{}")) if chains is not None else None
    return {
        "verdict": verdict["word"],
        "verdict_text": verdict["text"],
        "events": trace["events"],
        "duration_ns": trace["duration_ns"],
        "lost_events_share": found["losses"]["share"],
        "lost_ns": sum(cause["lost_ns"] for cause in causes) if causes is not None else None,
        "causes": causes,
        "stalls": [_stall(slow) for slow in found["slow"][:STALLS]],
    }


def _stall(slow: dict[str, Any]) -> dict[str, Any]:
    kept = {key: slow[key] for key in ("task", "call", "begin_ns", "length_ns", "excess_ns")}
    parts = [part for part in slow["parts"] if part["cause"] not in ("on-cpu", "idle", "may-be-idle")]
    return {**kept, "task": stem(slow["task"]), "cause": parts[0]["cause"] if parts else None}


def _causes(found: dict[str, Any], devices: dict[str, str]) -> list[dict[str, Any]]:
    """Adds up the lost time of threads by their name, their call, the cause at the end of the chain of waits, and the disk's model (its name
    where the trace does not say the model)."""
    sums: dict[tuple[str, str, str, str, str], int] = {}

    def add(cause: str, task: str, call: str | None, by: str | None, device: str | None, ns: int) -> None:
        if ns > 0 and RECORDER not in (task, by):
            key = (cause, stem(task), call or "", stem(by or ""), devices.get(device or "", device or ""))
            sums[key] = sums.get(key, 0) + ns

    reclaim = found["memory"]["reclaim"]
    spans = {MEMORY[row["by"]] for row in reclaim or () if row["by"] in MEMORY}
    for waiting in found["chains"]["waiting"]:
        # Waits within reclaim and compaction are part of their spans.
        if waiting["idleness"] != "stalled" or waiting["cause"] in spans:
            continue
        left = waiting["total_ns"]
        for end in _ends(waiting["links"]):
            # `other`: what a chain leaves out, as what is left below.
            cause = "smaller-causes" if end["cause"] == "other" else end["cause"]
            add(cause, waiting["task"], waiting["call"], end["task"], end.get("device"), end["ns"])
            left -= end["ns"]
        # A chain keeps its largest links.
        add("smaller-causes" if waiting["links"] else waiting["cause"], waiting["task"], waiting["call"], None, None, left)
    for row in reclaim or ():
        if row["by"] in MEMORY and not row["task"].startswith(BACKGROUND):
            add(MEMORY[row["by"]], row["task"], None, None, None, row["wall_ns"])
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"cause": cause, "task": task, "call": call or None, "by": by or None, "device": device or None, "lost_ns": ns}
        for (cause, task, call, by, device), ns in ordered
    ]


def _ends(links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ends = []
    for link in links:
        ends += _ends(link["links"]) if link["links"] else [link]
    return ends


def stem(name: str) -> str:
    """Returns a thread's name without the number that differs from run to run: `worker-3` is `worker-*`."""
    return re.sub(r"([-/#:_])\d+", r"\1*", name)


def replayed(question: str, seed: int, found: dict[str, Any], pid: int | None = None) -> list[dict[str, Any]]:
    """Returns the figures of the record `stopgap.replay/1` that no clock has touched; `pid` is the process that was chosen."""
    figures = []
    for row in found["rows"]:
        for name in FIGURES[question]:
            value = row.get(name)
            if value is not None:
                figures.append({"policy": row["policy"], "seed": seed, "row": _row(question, row, pid), "figure": name, "value": float(value)})
    return figures


def _row(question: str, row: dict[str, Any], pid: int | None) -> str | None:
    """What tells the rows of one policy apart, and of whom they are."""
    if question == "roundtrip":
        return str(row["workload"])  # client and server, and how they talk
    return f"process {pid}" if pid is not None else None
