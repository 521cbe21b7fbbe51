"""Answers about a fleet: of known worlds, and of results on disk."""

import json
import random

import pyarrow as pa
import pytest

from stopgap import fleet
from stopgap.fleet import answers, page, rows

from .conftest import REPOSITORY

HOSTS = 300
BEFORE, AFTER = "6.6.30", "6.12.9"

#: Seconds lost per host-hour, by cause.
CAUSES = {"compaction": 40.0, "run-queue": 90.0, "io": 60.0, "lock": 15.0, "network": 8.0}


def world(seed, planted, share=0.3, spread=(0.03, 0.06), both=False):
    """Three traces of each host. Hosts differ by 3 %, traces of a host by 6 %; on `share` of the newer kernel's hosts compaction takes
    `planted` times as long. A host has one of the kernels, or `both`, with three traces each."""
    draw = random.Random(seed)
    found = []
    for host in range(HOSTS):
        of_host = {cause: rate * draw.lognormvariate(0, spread[0]) for cause, rate in CAUSES.items()}
        slower = (host // 2) % 10 < share * 10
        for trace in range(6 if both else 3):
            kernel = (AFTER if trace >= 3 else BEFORE) if both else AFTER if host % 2 else BEFORE
            hours = draw.uniform(0.01, 0.05)
            causes = [
                {"cause": cause, "task": "app", "call": None, "by": None, "lost_ns": int(rate * draw.lognormvariate(0, spread[1]) * hours * 1e9)}
                for cause, rate in of_host.items()
            ]
            if slower and kernel == AFTER:
                causes[0]["lost_ns"] = int(causes[0]["lost_ns"] * planted)
            row = dict.fromkeys(rows.explain_schema().names)
            row.update(
                trace_id=f"{host:04}{trace}",
                host=f"host-{host}",
                kernel_release=kernel,
                program="app",
                date=f"2026-03-{1 + host % 28:02}T00:00:00Z",
                path=f"{host}/{trace}",
                verdict="stalls",
                duration_ns=int(hours * answers.NS_PER_HOUR),
                lost_ns=sum(cause["lost_ns"] for cause in causes),
                causes=causes,
            )
            found.append(row)
    return pa.Table.from_pylist(found, schema=rows.explain_schema())


def changes(seed, planted, **more):
    return answers._changes(answers.Fleet(world(seed, planted, **more)), None, None, seed, [])


def planted_truth(seeds, **more):
    """How often 10 % more compaction on 30 % of the newer kernel's hosts is found, how often the interval holds the truth (1.03 times
    on average), and how often something is called changed where nothing is."""
    found = covered = alarms = 0
    for seed in range(seeds):
        moved = {row["cause"]: row for row in changes(seed, 1.1, **more)}
        row = moved["compaction"]
        assert (row["before"], row["after"], row["paired"]) == (BEFORE, AFTER, "both" in more)
        assert row["hosts_before"] == row["hosts_after"] == (300 if row["paired"] else 150)
        found += row["word"] == "more"
        covered += row["low"] <= 1.03 <= row["high"]
        alarms += any(row["word"] != "no difference proven" for row in changes(1000 + seed, 1.0, **more))
    print(f"of {seeds} seeds, {more}: found {found}, interval holds the truth {covered}, alarms without a difference {alarms}")
    return found, covered, alarms


#: Hosts with one kernel; with both, and as unlike each other as hosts are: by a factor of 2, where only pairs can tell 3 %.
WORLDS = ({}, {"both": True, "spread": (0.7, 0.06)})


@pytest.mark.parametrize("more", WORLDS, ids=["one", "both"])
def test_planted_truth_in_small(more):
    found, covered, alarms = planted_truth(8, **more)
    assert found >= 7 and covered >= 7 and alarms <= 2


@pytest.mark.scale
@pytest.mark.parametrize("more", WORLDS, ids=["one", "both"])
def test_planted_truth(more):
    found, covered, alarms = planted_truth(100, **more)
    assert found >= 94 and covered >= 94 and alarms <= 7


def some_hosts(table, kept):
    """Leaves out rows for which `kept` of host and kernel says no."""
    rows_ = [row for row in table.to_pylist() if kept(int(row["path"].split("/")[0]), row["kernel_release"])]
    return answers.Fleet(pa.Table.from_pylist(rows_, schema=rows.explain_schema()))


def test_hosts_on_both_sides_are_paired_where_they_are_most():
    table, notes = world(1, 1.1, both=True), []
    most = some_hosts(table, lambda host, kernel: kernel == BEFORE or host < 200)
    found = answers._changes(most, None, None, 1, notes)
    assert {(row["paired"], row["hosts_before"], row["hosts_after"]) for row in found} == {(True, 200, 200)}
    assert len(notes) == 1 and "on the 200 hosts that have both; 100 have one" in notes[0]
    # Only the newer kernel has hosts beyond 100: two thirds of the hosts have no pair.
    few = some_hosts(table, lambda host, kernel: host < 100 or (kernel == BEFORE) == (host % 2 == 0))
    found = answers._changes(few, None, None, 1, notes)
    assert {(row["paired"], row["hosts_before"], row["hosts_after"]) for row in found} == {(False, 200, 200)}
    assert "100 hosts are on both sides" in notes[1]
    # So few pairs could prove nothing.
    little = some_hosts(table, lambda host, kernel: host < 5)
    assert {row["paired"] for row in answers._changes(little, None, None, 1, notes)} == {False}


def test_rates_are_sums_over_hosts():
    told = answers.Fleet(world(1, 1.0))
    causes = {row["cause"]: row for row in answers._causes(told, 1) if row["group"] == "all"}
    assert list(causes) == ["run-queue", "io", "compaction", "lock", "network"]
    for cause, rate in CAUSES.items():
        row = causes[cause]
        assert row["low"] < row["s_per_hour"] < row["high"]
        assert row["s_per_hour"] == pytest.approx(rate, rel=0.03) and row["hosts"] == row["hosts_with"] == HOSTS
        assert (row["high"] - row["low"]) / rate < 0.04
    assert sum(row["share"] for row in causes.values()) == pytest.approx(1)
    assert told.totals()["lost_s"] == pytest.approx(sum(row["lost_s"] for row in causes.values()))


def test_many_traces_of_a_host_are_no_more_evidence():
    table = world(1, 1.0)
    once = answers._causes(answers.Fleet(table), 1)
    often = answers._causes(answers.Fleet(pa.concat_tables([table] * 5)), 1)
    for a, b in zip(once, often):
        assert (a["low"], a["high"]) == pytest.approx((b["low"], b["high"]))


def test_an_outlier_host_is_named_and_no_other():
    table = world(1, 1.0).to_pylist()
    for row in table[:3]:
        row["causes"][0]["lost_ns"] *= 3
    found = answers._outliers(answers.Fleet(pa.Table.from_pylist(table, schema=rows.explain_schema())))
    assert [(row["host"], row["cause"]) for row in found] == [("host-0", "compaction")]
    assert found[0]["times"] == pytest.approx(3, rel=0.2)


def test_disks_are_ranked_by_model():
    table = world(1, 1.0).to_pylist()
    for row in table:
        host = int(row["path"].split("/")[0])
        model = ("fast", "slow")[host % 2]
        hours = row["duration_ns"] / answers.NS_PER_HOUR
        # Every tenth host has both disks, a GPU is none, and where a trace lists none the cause says which it was.
        listed = {"sda": model, "card0": "gpu", **({"sdb": "slow"} if host % 10 == 0 else {})}
        row["devices"] = None if host % 7 == 0 else json.dumps(listed)
        row["causes"].append({"cause": "disk", "device": model, "lost_ns": int((5, 50)[host % 2] * hours * 1e9)})
    told = answers.Fleet(pa.Table.from_pylist(table, schema=rows.explain_schema()))
    found = [row for row in answers._causes(told, 1) if row["group"] == "disk"]
    assert [(row["value"], row["cause"], row["hosts_with"], row["share"]) for row in found] == [("slow", "disk", 150, None), ("fast", "disk", 150, None)]
    both = sum(host % 10 == 0 and host % 7 != 0 for host in range(HOSTS))
    assert [row["hosts"] for row in found] == [150 + both, 150]
    assert found[1]["s_per_hour"] == pytest.approx(5, rel=0.01) and found[0]["s_per_hour"] == pytest.approx(50 * 150 / (150 + both), rel=0.1)
    assert found[0]["low"] < found[0]["s_per_hour"] < found[0]["high"]


def test_a_cause_names_the_disk():
    def link(cause, ns, links=(), **more):
        return {"cause": cause, "task": None, "ns": ns, "links": list(links), **more}

    waiting = {"idleness": "stalled", "cause": "io", "total_ns": 100, "task": "app-3", "call": "read"}
    waiting["links"] = [link("io", 90, [link("disk", 60, device="sda"), link("disk", 30, device="sdb")]), link("disk", 6), link("other", 3)]
    found = {"memory": {"reclaim": None}, "chains": {"waiting": [waiting]}}
    causes = rows._causes(found, {"sda": "Fleet SSD"})
    assert [(one["cause"], one["device"], one["task"], one["lost_ns"]) for one in causes] == [
        ("disk", "Fleet SSD", "app-*", 60),
        ("disk", "sdb", "app-*", 30),
        ("disk", None, "app-*", 6),
        # What the chain leaves out of itself, and what is in no link.
        ("smaller-causes", None, "app-*", 4),
    ]


def test_dates_and_unknowns():
    table = world(1, 1.0).to_pylist()
    for row in table:
        row["kernel_release"] = None
        if int(row["path"].split("/")[0]) % 28 >= 14:
            row["causes"][2]["lost_ns"] *= 2
    table[0]["host"] = None
    told = answers.Fleet(pa.Table.from_pylist(table, schema=rows.explain_schema()))
    assert told.notes == ["1 of 900 traces count nowhere: without the name of a host"]
    assert answers._changes(told, None, None, 1, []) == []
    found = {row["cause"]: row for row in answers._changes(told, None, "2026-03-15", 1, [])}
    assert found["io"]["word"] == "more" and found["io"]["low"] < 2 < found["io"]["high"]
    assert all(row["word"] == "no difference proven" for cause, row in found.items() if cause != "io")
    with pytest.raises(ValueError, match="^since: "):
        answers._changes(told, None, "yesterday", 1, [])


def test_versions_sort_as_numbers():
    assert sorted(["6.12.9", "6.6.30", "6.12.9-rc1", "6.9"], key=answers.version)[0] == "6.6.30"
    assert answers.version("6.9.1") < answers.version("6.12.0")


@pytest.fixture(scope="module")
def answered(traces, tmp_path_factory):
    out = tmp_path_factory.mktemp("answered")
    index = fleet.index(traces, out=out)
    fleet.explain(index, workers=2)
    fleet.replay(index, question="placement", policies=["linux-6.12", "best-fit"], workers=2)
    return out


def test_a_report_of_results(traces, answered, tmp_path):
    report = fleet.report(answered)
    assert report.totals["traces"] == report.totals["traces_used"] + sum("count nowhere" in note for note in report.notes) * (24 - report.totals["traces_used"]) == 24
    whole = [row for row in report.causes.to_pylist() if row["group"] == "all"]
    assert sum(row["lost_s"] for row in whole) == pytest.approx(report.totals["lost_s"])
    for group in answers.GROUPS:
        part = [row for row in report.causes.to_pylist() if row["group"] == group]
        assert sum(row["lost_s"] for row in part) == pytest.approx(report.totals["lost_s"]), group
    what_if = report.what_if.to_pylist()
    assert what_if and {row["baseline"] for row in what_if} == {"linux-6.12"}
    assert all(0 <= row["helped"] + row["hurt"] <= row["hosts"] <= 8 for row in what_if)
    # Some hosts alike do not prove it of all.
    assert all(0 <= row["helped_low"] <= row["helped_share"] <= row["helped_high"] <= 1 for row in what_if)
    assert all(row["helped_high"] - row["helped_low"] > 0.2 for row in what_if)
    report.save(tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "Seconds lost per host-hour" in text and "<script" not in text and "http" not in text.replace("http-equiv", "")
    assert f"stopgap fleet report {answered} --seed=1" in text
    assert all(len(line) <= 80 for line in report.text().splitlines())
    assert fleet.report(answered).to_dict() == report.to_dict()


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    with pytest.raises(fleet.FleetError, match="stopgap fleet explain"):
        fleet.report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def totals(answered):
    """What the report says: traces that count, and seconds lost by cause."""
    report = fleet.report(answered)
    causes = {row["cause"]: row["lost_s"] for row in report.causes.to_pylist() if row["group"] == "all"}
    assert len(causes) > 3 and report.totals["traces_used"] > 10
    return report.totals["traces_used"], causes


def test_duckdb_reads_the_results(answered, totals):
    duckdb = pytest.importorskip("duckdb")
    usable = f"'{answered}/explain/*/*.parquet' WHERE host IS NOT NULL AND lost_ns IS NOT NULL"
    causes = duckdb.sql(f"SELECT c.cause, sum(c.lost_ns) / 1e9 FROM (SELECT unnest(causes) AS c FROM {usable}) GROUP BY 1").fetchall()
    assert duckdb.sql(f"SELECT count(*) FROM {usable}").fetchall() == [(totals[0],)]
    assert dict(causes) == pytest.approx(totals[1])


def test_polars_reads_the_results(answered, totals):
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(f"{answered}/explain/*/*.parquet").drop_nulls(["host", "lost_ns"])
    causes = frame.select("causes").explode("causes").unnest("causes").drop_nulls("cause")
    assert frame.height == totals[0]
    assert dict(causes.group_by("cause").agg(polars.col("lost_ns").sum() / 1e9).iter_rows()) == pytest.approx(totals[1])


def test_pandas_reads_the_results(answered, totals):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(f"{answered}/explain").dropna(subset=["host", "lost_ns"])
    causes = pandas.DataFrame(list(frame["causes"].explode().dropna()))
    assert len(frame) == totals[0]
    assert (causes.groupby("cause")["lost_ns"].sum() / 1e9).to_dict() == pytest.approx(totals[1])


def test_the_questions_in_sql_are_answered(answered, monkeypatch):
    """DuckDB runs the five questions of docs/fleet.md as they stand."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(answered)
    text = (REPOSITORY / "docs/fleet.md").read_text().split("```sql\n")[1].split("```")[0]
    questions = [part for part in text.split(";") if part.strip()]
    assert len(questions) == 5
    answers = [duckdb.sql(question).fetchall() for question in questions]
    report = fleet.report(answered)
    whole = [row for row in report.causes.to_pylist() if row["group"] == "all"]
    assert [row[0] for row in answers[0]][:3] == [row["cause"] for row in whole][:3]
    assert {row[0] for row in answers[1]} >= {row["value"] for row in report.causes.to_pylist() if row["group"] == "kernel"}
    assert answers[3] == [] and {row[0] for row in answers[4]} == {"linux-6.12", "best-fit"}


def test_what_is_cut_is_told_apart():
    cut = [page._cut(text, 14) for text in ("waiting for a CPU", "waiting for a disk", "web-frontend-0017", "short", "")]
    assert len(set(cut)) == 5 and all(len(one) <= 14 for one in cut) and cut[0].endswith("CPU") and cut[3:] == ["short", ""]
    assert [page.share(value) for value in (None, 0, 0.0004, 0.5, 1)] == ["-", "0 %", "<1 %", "50 %", "100 %"]
