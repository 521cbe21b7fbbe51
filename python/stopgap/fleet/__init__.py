"""Questions to thousands of traces: which cause costs the fleet most, on which kernel, and which policy would have helped.

    from stopgap import fleet

    traces = fleet.index("s3://bucket/traces")       # or a directory
    fleet.explain(traces, engine="ray")              # a result file for each trace; again: only what is missing
    fleet.report(traces)                             # in a notebook, a page

docs/fleet.md has the same from the shell, the tables, and what it costs.
"""

from __future__ import annotations

from .answers import Report, report
from .manifest import Index, index
from .run import Run, explain, replay
from .store import FleetError

__all__ = ["FleetError", "Index", "Report", "Run", "explain", "index", "replay", "report"]
