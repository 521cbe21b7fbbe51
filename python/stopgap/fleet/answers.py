"""Questions to the results of a fleet. The unit of evidence is a host: traces of one host resemble each other.

Intervals and tests are those of `stopgap compare`, in Rust: a bootstrap over hosts, and permutations of hosts with Holm's adjustment for
the number of causes that were looked at. Hosts that are on both sides of a comparison are paired: the sides of each are changed, and the
adjustment is Westfall and Young's.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Tuple

from .. import _words
from . import page, rows
from .manifest import MANIFEST, Index, encoded
from .store import FleetError, Store

if TYPE_CHECKING:
    import pyarrow as pa

#: Ways to put hosts together.
GROUPS = ("kernel", "device", "program")

#: Names of GPUs among a trace's devices; the others are disks.
GPU = re.compile(r"card\d+")

#: Columns that say so; the first that is known counts.
COLUMNS = {"host": ("host",), "kernel": ("kernel_release",), "device": ("device", "cpu"), "program": ("program",)}

#: Causes that are compared between two sides: those with the most time over both.
COMPARED = 12

#: Share of all lost time that a cause needs to be compared.
LEAST_SHARE = 0.002

#: Fewest hosts a side that can prove a difference.
LEAST_HOSTS = 4

#: Fewest hosts with a cause among which one can be an outlier.
LEAST_FOR_OUTLIERS = 8

#: Quartile distances above the upper quartile, of logarithms, from which on a host is an outlier (Tukey's "far out").
FAR = 3.0

#: A policy helps a host where its figure is lower by this share, over the host's traces.
MARGIN = 0.05

NS_PER_HOUR = 3.6e12

#: Hours by group and host; lost seconds by group, cause and host.
Hours = Dict[Any, Dict[str, float]]
Lost = Dict[Any, Dict[str, Dict[str, float]]]
Grouped = Tuple[Hours, Lost]


@dataclass(frozen=True)
class Report:
    """Answers about a fleet, as Arrow tables. Times are seconds lost by threads per hour of recording of a host.

    Attributes:
        out: where the results lie.
        totals: counts of traces, hosts, hours, seconds lost.
        causes: causes by `s_per_hour` with the interval `low` to `high` over hosts; `group` is `all`, `kernel`, `device` (the
            machine), `program` or `disk` (its model; waits for it alone, per hour of the hosts that have one).
        changes: each cause before and after: `ratio` of the means over hosts with its interval, and a `word`.
        outliers: hosts with far more time in a cause than others.
        what_if: for each policy, how many hosts it would have helped, and by which ratio to the first policy.
        errors: why traces failed, and how many.
        notes: what was left out, and why.
        command: the command that gives the same answers.
    """

    out: str
    totals: dict[str, float]
    causes: pa.Table
    changes: pa.Table
    outliers: pa.Table
    what_if: pa.Table
    errors: pa.Table
    notes: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    TABLES = ("causes", "changes", "outliers", "what_if", "errors")

    def html(self) -> str:
        """Returns the report as one HTML page that loads nothing and runs nothing."""
        return page.html(self)

    def text(self) -> str:
        """Returns the report as text for a terminal of 80 columns."""
        return page.text(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns totals, notes and all tables as lists of rows."""
        return {"schema": "stopgap.fleet/1", "out": self.out, "totals": self.totals, "notes": self.notes} | {name: getattr(self, name).to_pylist() for name in self.TABLES}

    def save(self, url: str | os.PathLike[str]) -> str:
        """Writes `report.html` and a Parquet file for each table into a directory or prefix. Returns where the page lies."""
        store = Store(_words.path("url", url))
        for name in self.TABLES:
            store.write(f"{name}.parquet", encoded(getattr(self, name)))
        store.write("report.html", self.html().encode())
        return store.name("report.html")

    def _repr_html_(self) -> str:
        return page.section(self)

    def __str__(self) -> str:
        return self.text()


def report(
    out: str | os.PathLike[str] | Index,
    *,
    kernels: tuple[str, str] | None = None,
    since: str | datetime.date | None = None,
    seed: int = 1,
) -> Report:
    """Answers questions about a fleet from the results below `out`.

    Args:
        out: where `explain` and `replay` wrote, the directory of the traces, or what `index()` returned.
        kernels: compare these two, (before, after); default is the two that most hosts have.
        since: compare what was recorded before this date (UTC) with the rest, instead of kernels.
        seed: of draws and permutations; the same seed gives the same report.

    Raises:
        FleetError: there are no results, or nothing to compare.
    """
    if kernels is not None:
        if not isinstance(kernels, (list, tuple)):
            raise TypeError(f"kernels must be (before, after), not {type(kernels).__name__}")
        if len(kernels) != 2:
            raise ValueError(f"kernels must be two, (before, after), not {len(kernels)}")
        kernels = (_words.text("kernels[0]", kernels[0]), _words.text("kernels[1]", kernels[1]))
    if since is not None:
        if not isinstance(since, (str, datetime.date)):
            raise TypeError(f"since must be a date or a str, not {type(since).__name__}")
        if kernels is not None:
            raise ValueError("since: compare two kernels or two dates, not both")
    seed = int(_words.integer("seed", seed))
    store = Store(os.path.dirname(out.path) if isinstance(out, Index) else _words.path("out", out))
    found = _read(store, "explain", rows.explain_schema())
    if found is None and not isinstance(out, Index):
        store = store.child("_stopgap")
        found = _read(store, "explain", rows.explain_schema())
    if found is None:
        raise FleetError(f"{Store(store.url).name('explain')}: no results; make them with: stopgap fleet explain DIR")
    fleet = Fleet(found)
    notes = list(fleet.notes)
    changes = _changes(fleet, kernels, since, seed, notes)
    return Report(
        store.url,
        fleet.totals(),
        _table(_causes(fleet, seed), CAUSES),
        _table(changes, CHANGES),
        _table(_outliers(fleet), OUTLIERS),
        _table(_what_if(store, seed), WHAT_IF),
        _table(fleet.errors(), ERRORS),
        notes,
        _command(store.url, kernels, since, seed),
    )


def _command(url: str, kernels: tuple[str, str] | None, since: Any, seed: int) -> list[str]:
    words = ["stopgap", "fleet", "report", url]
    if kernels is not None:
        words.append(f"--kernels={','.join(kernels)}")
    if since is not None:
        words.append(f"--since={since}")
    return [*words, f"--seed={seed}"]


class Fleet:
    """Sums over the traces: hours by host, kernel, device, program and day, and lost time of each cause in them."""

    def __init__(self, table: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.traces = table.num_rows
        self.failed = table.filter(pc.is_valid(table["error"]))
        self.notes: list[str] = []
        whole = table.filter(pc.is_null(table["error"]))
        told = pc.and_(pc.and_(pc.is_valid(whole["lost_ns"]), pc.is_valid(whole["host"])), pc.greater(pc.fill_null(whole["duration_ns"], 0), 0))
        for column, why in (("host", "without the name of a host"), ("lost_ns", "without scheduling events")):
            lacks = whole[column].null_count
            if lacks:
                self.notes.append(f"{lacks:,} of {self.traces:,} traces count nowhere: {why}")
        used = whole.filter(told)
        self.used = used.num_rows
        keys = {name: pc.coalesce(*(used[column] for column in columns), "unknown").combine_chunks() for name, columns in COLUMNS.items()}
        keys["day"] = pc.fill_null(pc.utf8_slice_codeunits(used["date"], 0, 10), "unknown").combine_chunks()
        base = pa.table({**keys, "ns": used["duration_ns"]})
        by = ["host", *GROUPS, "day"]
        order = [(name, "ascending") for name in by]
        # In one order, so that sums of floating-point numbers are the same each time.
        sums = base.group_by(by).aggregate([("ns", "sum")]).sort_by(order)
        self.hours = [(row, row.pop("ns_sum") / NS_PER_HOUR) for row in sums.to_pylist()]
        lists = used["causes"].combine_chunks()
        parents, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
        lost = pa.table(
            {**{name: base[name].take(parents) for name in by}, "cause": pc.struct_field(flat, "cause"), "ns": pc.struct_field(flat, "lost_ns")}
        )
        lost = lost.group_by([*by, "cause"]).aggregate([("ns", "sum")]).sort_by([*order, ("cause", "ascending")])
        self.lost = [(row, row.pop("ns_sum") / 1e9) for row in lost.to_pylist()]
        self.by_disk = _by_disk(used, parents, flat)

    def totals(self) -> dict[str, float]:
        """Returns counts for the head of a report."""
        return {
            "traces": self.traces,
            "traces_used": self.used,
            "traces_failed": self.failed.num_rows,
            "hosts": len({key["host"] for key, _ in self.hours}),
            "hours": sum(hours for _, hours in self.hours),
            "lost_s": sum(lost for _, lost in self.lost),
        }

    def by(self, group: Any) -> Grouped:
        """Returns hours by group and host, and lost seconds by group, cause and host. `group` makes a group of a key, or `None`."""
        hours: Hours = defaultdict(lambda: defaultdict(float))
        lost: Lost = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
        for key, amount in self.hours:
            if (of := group(key)) is not None:
                hours[of][key["host"]] += amount
        for key, amount in self.lost:
            if (of := group(key)) is not None:
                lost[of][key["cause"]][key["host"]] += amount
        return hours, lost

    def errors(self) -> list[dict[str, Any]]:
        """Returns why traces failed, the most frequent first, without their names."""
        counts: dict[str, list[str]] = defaultdict(list)
        for path, error in zip(self.failed["path"].to_pylist(), self.failed["error"].to_pylist()):
            why = error.split(f"{path}: ", 1)[-1]
            counts[re.sub(r"\d+", "N", why)].append(f"{path}: {why}")
        return [{"traces": len(each), "error": each[0]} for each in sorted(counts.values(), key=lambda each: (-len(each), each[0]))]


def _by_disk(used: pa.Table, parents: pa.Array, causes: pa.Array) -> Grouped:
    """Returns hours by disk and host, and lost seconds by disk, cause and host. A trace counts for each disk that it lists, or waited for."""
    import pyarrow.compute as pc

    hosts, lengths = used["host"].to_pylist(), used["duration_ns"].to_pylist()
    listed = {text: {model for name, model in json.loads(text or "{}").items() if not GPU.fullmatch(name)} for text in pc.unique(used["devices"]).to_pylist()}
    of_traces = [set(listed[text]) for text in used["devices"].to_pylist()]
    lost: Lost = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    known = pc.is_valid(pc.struct_field(causes, "device"))
    for trace, cause in zip(parents.filter(known).to_pylist(), causes.filter(known).to_pylist()):
        of_traces[trace].add(cause["device"])
        lost[cause["device"]][cause["cause"]][hosts[trace]] += cause["lost_ns"] / 1e9
    hours: Hours = defaultdict(lambda: defaultdict(float))
    for host, length, disks in zip(hosts, lengths, of_traces):
        for disk in disks:
            hours[disk][host] += length / NS_PER_HOUR
    return hours, lost


def _read(store: Store, kind: str, schema: pa.Schema) -> pa.Table | None:
    """Returns all rows below `kind`, those of the manifest only where there is one; `None` where there are none."""
    import io

    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.fs
    import pyarrow.parquet as pq

    try:
        names = store.child(kind).files(".parquet")
    except FileNotFoundError:
        return None
    if not names:
        return None
    files = [store.at(f"{kind}/{name}") for name in sorted(names)]
    fs = pyarrow.fs.LocalFileSystem() if store.local else pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(store.fs))
    keep = [name for name in schema.names if name not in ("labels", "stalls", "command")]
    try:
        table = ds.dataset(files, schema=schema, format="parquet", filesystem=fs).to_table(columns=keep)
    except (pa.ArrowException, OSError) as error:
        raise FleetError(f"{store.name(kind)}: {' '.join(str(error).split())}") from None
    if store.exists(MANIFEST):
        ids = pq.read_table(io.BytesIO(store.read(MANIFEST)), columns=["trace_id"])["trace_id"]
        # What was indexed before and has changed or gone since is no evidence.
        table = table.filter(pc.is_in(table["trace_id"], ids.combine_chunks()))
    return table


CAUSES = {"group": str, "value": str, "cause": str, "s_per_hour": float, "low": float, "high": float, "share": float, "hosts_with": int, "hosts": int, "hours": float, "lost_s": float}


def _causes(fleet: Fleet, seed: int) -> list[dict[str, Any]]:
    ways = {"all": fleet.by(lambda key: "")} | {name: fleet.by(lambda key, name=name: key[name]) for name in GROUPS} | {"disk": fleet.by_disk}
    found = []
    for group, (hours, lost) in ways.items():
        part = []
        for value, of_hosts in hours.items():
            names = sorted(of_hosts)
            exposure = [of_hosts[name] for name in names]
            whole = sum(sum(by_host.values()) for by_host in lost[value].values())
            for cause, by_host in lost[value].items():
                amounts = [by_host.get(name, 0.0) for name in names]
                estimate = _core().ratio_over_hosts(amounts, exposure, seed)
                _, low, high = estimate or (None, None, None)
                part.append(
                    {
                        "group": group,
                        "value": value,
                        "cause": cause,
                        "s_per_hour": sum(amounts) / sum(exposure),
                        "low": low,
                        "high": high,
                        # Of a disk all that is known is what it cost.
                        "share": sum(amounts) / whole if whole and group != "disk" else None,
                        "hosts_with": sum(amount > 0 for amount in amounts),
                        "hosts": len(names),
                        "hours": sum(exposure),
                        "lost_s": sum(amounts),
                    }
                )
        found += sorted(part, key=lambda row: (-row["s_per_hour"], row["value"], row["cause"]))
    return found


CHANGES = {"by": str, "before": str, "after": str, "cause": str, "hosts_before": int, "hosts_after": int, "paired": bool, "before_s_per_hour": float, "after_s_per_hour": float, "effect": float, "low": float, "high": float, "scale": str, "p": float, "p_adjusted": float, "word": str}


def _changes(fleet: Fleet, kernels: tuple[str, str] | None, since: Any, seed: int, notes: list[str]) -> list[dict[str, Any]]:
    if since is not None:
        try:
            date = datetime.date.fromisoformat(str(since)[:10]).isoformat()
        except ValueError:
            raise ValueError(f"since: a date as 2026-03-19 is expected, not {since!r}") from None
        by, before, after = "date", f"before {date}", f"since {date}"
        side = lambda key: None if key["day"] == "unknown" else after if key["day"] >= date else before  # noqa: E731
    else:
        hosts: dict[str, set[str]] = defaultdict(set)
        for key, _ in fleet.hours:
            hosts[key["kernel"]].add(key["host"])
        if kernels is None:
            known = sorted((name for name in hosts if name != "unknown"), key=lambda name: (-len(hosts[name]), name))[:2]
            if len(known) < 2:
                return []
            before, after = sorted(known, key=version)
        else:
            before, after = kernels
            for name in kernels:
                if name not in hosts:
                    raise FleetError(f"no trace of kernel {name}; there are: {', '.join(sorted(hosts))}")
        by = "kernel"
        side = lambda key: key["kernel"] if key["kernel"] in (before, after) else None  # noqa: E731
    hours, lost = fleet.by(side)
    sides = [sorted(hours[before]), sorted(hours[after])]
    if min(map(len, sides)) < LEAST_HOSTS:
        notes.append(f"{before} ({len(sides[0])} hosts) and {after} ({len(sides[1])}) are not compared: that takes {LEAST_HOSTS} hosts a side")
        return []
    # Chosen by both sides together, which leaves the test's level as it is.
    sums = defaultdict(float)
    for name in (before, after):
        for cause, by_host in lost[name].items():
            sums[cause] += sum(by_host.values())
    least = LEAST_SHARE * sum(sums.values())
    causes = [cause for cause in sorted(sums, key=lambda cause: (-sums[cause], cause)) if sums[cause] >= least and sums[cause] > 0][:COMPARED]
    if not causes:
        return []
    both = sorted(set(sides[0]) & set(sides[1]))
    whole = len(set(sides[0]) | set(sides[1]))
    # Chosen by which hosts there are, and not by their figures.
    paired = 2 * len(both) >= whole and _core().pairs_suffice(len(both))
    if paired:
        sides = [both, both]
        if whole > len(both):
            notes.append(f"{before} and {after} are compared on the {len(both):,} hosts that have both; {whole - len(both):,} have one of them")
    elif both:
        notes.append(f"{len(both):,} hosts are on both sides of the comparison, too few to pair, so its intervals are rather too wide")

    def figures(name: str, hosts: list[str]) -> list[list[float]]:
        return [[lost[name][cause].get(host, 0.0) / hours[name][host] for cause in causes] for host in hosts]

    rates = [figures(name, hosts) for name, hosts in zip((before, after), sides)]
    told = json.loads(_core().compare_pairs(*rates, seed) if paired else _core().compare_hosts(causes, *rates, "s/h", seed))
    found = []
    for cause, row in zip(causes, told["endpoints"]):
        effect = row["effect"] or {}
        adjusted = row["p_adjusted" if paired else "p_holm"]
        proven = adjusted is not None and adjusted <= told["level"]
        value = effect.get("value")
        # Without a value it is infinitely more: where nothing was before.
        less = value is not None and value < (1 if effect.get("scale") == "ratio" else 0)
        found.append(
            {
                "by": by,
                "before": before,
                "after": after,
                "cause": cause,
                "hosts_before": len(sides[0]),
                "hosts_after": len(sides[1]),
                "paired": paired,
                "before_s_per_hour": row["before"],
                "after_s_per_hour": row["after"],
                "effect": value,
                "low": effect.get("low"),
                "high": effect.get("high"),
                "scale": effect.get("scale"),
                "p": row["p"],
                "p_adjusted": adjusted,
                "word": ("less" if less else "more") if proven else "no difference proven",
            }
        )
    return sorted(found, key=lambda row: (row["word"] == "no difference proven", -abs((row["after_s_per_hour"] or 0) - (row["before_s_per_hour"] or 0))))


def version(name: str) -> list[tuple[int, int, str]]:
    """Returns a key by which kernels' versions sort: 6.9 before 6.12."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"[.\-+~_]", name)]


OUTLIERS = {"cause": str, "host": str, "s_per_hour": float, "median_s_per_hour": float, "times": float, "limit_s_per_hour": float}


def _outliers(fleet: Fleet) -> list[dict[str, Any]]:
    hours, lost = fleet.by(lambda key: "")
    found = []
    for cause, by_host in lost[""].items():
        rates = {host: by_host[host] / hours[""][host] for host in by_host if by_host[host] > 0}
        if len(rates) < LEAST_FOR_OUTLIERS:
            continue
        logs = sorted(map(math.log, rates.values()))
        low, middle, high = (_quantile(logs, share) for share in (0.25, 0.5, 0.75))
        limit = high + FAR * (high - low)
        for host, rate in rates.items():
            if math.log(rate) > limit and high > low:
                median = math.exp(middle)
                found.append(
                    {"cause": cause, "host": host, "s_per_hour": rate, "median_s_per_hour": median, "times": rate / median, "limit_s_per_hour": math.exp(limit)}
                )
    return sorted(found, key=lambda row: (row["median_s_per_hour"] - row["s_per_hour"], row["host"]))


def _quantile(values: list[float], share: float) -> float:
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


WHAT_IF = {"question": str, "figure": str, "baseline": str, "policy": str, "traces": int, "hosts": int, "helped": int, "hurt": int, "helped_share": float, "helped_low": float, "helped_high": float, "ratio": float, "low": float, "high": float}


def _what_if(store: Store, seed: int) -> list[dict[str, Any]]:
    """Pairs policies by trace: the ratio of a policy's figure to that of the first policy, on the same trace with the same seed."""
    found = []
    for question, names in rows.FIGURES.items():
        kind = f"replay/question={question}"
        table = _read(store, kind, rows.replay_schema())
        if table is None:
            continue
        ratios: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        baseline = None
        for row in table.select(["host", "figures"]).to_pylist():
            if row["figures"] is None or row["host"] is None:
                continue
            values: dict[tuple[str, Any], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            for one in row["figures"]:
                baseline = baseline or one["policy"]
                values[one["figure"], one["policy"]]["all"].append(one["value"])
            for figure in names:
                base = values[figure, baseline]["all"]
                for (name, policy), each in list(values.items()):
                    # Logarithms, so that half and twice as much cancel each other; of a figure that is 0 there is no ratio.
                    pairs = [math.log(value / first) for value, first in zip(each["all"], base) if value > 0 and first > 0]
                    if name == figure and policy != baseline and pairs:
                        ratios[figure, policy][row["host"]].append(sum(pairs) / len(pairs))
        for (figure, policy), by_host in ratios.items():
            each = [math.exp(sum(values) / len(values)) for _, values in sorted(by_host.items())]
            helped = sum(ratio < 1 - MARGIN for ratio in each)
            share, least, most = _core().share_of_hosts(helped, len(each))
            ratio = _core().median_over_hosts(each, seed)
            found.append(
                {
                    "question": question,
                    "figure": figure,
                    "baseline": baseline,
                    "policy": policy,
                    "traces": sum(map(len, by_host.values())),
                    "hosts": len(each),
                    "helped": helped,
                    "hurt": sum(ratio > 1 + MARGIN for ratio in each),
                    "helped_share": share,
                    "helped_low": least,
                    "helped_high": most,
                    "ratio": ratio[0] if ratio else _quantile(sorted(each), 0.5),
                    "low": ratio[1] if ratio else None,
                    "high": ratio[2] if ratio else None,
                }
            )
    order = {figure: place for names in rows.FIGURES.values() for place, figure in enumerate(names)}
    return sorted(found, key=lambda row: (row["question"], order[row["figure"]], -row["helped"], row["ratio"], row["policy"]))


ERRORS = {"traces": int, "error": str}


def _table(found: list[dict[str, Any]], columns: dict[str, type]) -> pa.Table:
    import pyarrow as pa

    types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return pa.Table.from_pylist(found, schema=pa.schema([(name, types[kind]) for name, kind in columns.items()]))


def _core() -> Any:
    from stopgap import _stopgap

    return _stopgap
