"""Answers about a fleet: of known worlds, and of results on disk."""

import random

import pyarrow as pa
import pytest

from stopgap import fleet
from stopgap.fleet import answers, rows

from .conftest import REPOSITORY

HOSTS = 300
BEFORE, AFTER = "6.6.30", "6.12.9"

#: Seconds lost per host-hour, by cause.
CAUSES = {"compaction": 40.0, "run-queue": 90.0, "io": 60.0, "lock": 15.0, "network": 8.0}


def world(seed, planted, share=0.3, spread=(0.03, 0.06)):
    """Three traces of each host. Hosts differ by 3 %, traces of a host by 6 %; on `share` of the newer kernel's hosts compaction takes
    `planted` times as long."""
    draw = random.Random(seed)
    found = []
    for host in range(HOSTS):
        kernel = AFTER if host % 2 else BEFORE
        slower = kernel == AFTER and (host // 2) % 10 < share * 10
        of_host = {cause: rate * draw.lognormvariate(0, spread[0]) for cause, rate in CAUSES.items()}
        if slower:
            of_host["compaction"] *= planted
        for trace in range(3):
            hours = draw.uniform(0.01, 0.05)
            causes = [
                {"cause": cause, "task": "app", "call": None, "by": None, "lost_ns": int(rate * draw.lognormvariate(0, spread[1]) * hours * 1e9)}
                for cause, rate in of_host.items()
            ]
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


def changes(seed, planted):
    return answers._changes(answers.Fleet(world(seed, planted)), None, None, seed, [])


def planted_truth(seeds):
    """How often 10 % more compaction on 30 % of the newer kernel's hosts is found, how often the interval holds the truth (1.03 times
    on average), and how often something is called changed where nothing is."""
    found = covered = alarms = 0
    for seed in range(seeds):
        moved = {row["cause"]: row for row in changes(seed, 1.1)}
        row = moved["compaction"]
        assert (row["before"], row["after"], row["hosts_before"], row["hosts_after"]) == (BEFORE, AFTER, 150, 150)
        found += row["word"] == "more"
        covered += row["low"] <= 1.03 <= row["high"]
        alarms += any(row["word"] != "no difference proven" for row in changes(1000 + seed, 1.0))
    print(f"of {seeds} seeds: found {found}, interval holds the truth {covered}, alarms without a difference {alarms}")
    return found, covered, alarms


def test_planted_truth_in_small():
    found, covered, alarms = planted_truth(8)
    assert found >= 7 and covered >= 7 and alarms <= 2


@pytest.mark.scale
def test_planted_truth():
    found, covered, alarms = planted_truth(100)
    assert found >= 94 and covered >= 94 and alarms <= 7


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
    page = (tmp_path / "report.html") if report.save(tmp_path) else None
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>") and "Seconds lost per host-hour" in text and "<script" not in text and "http" not in text.replace("http-equiv", "")
    assert all(len(line) <= 80 for line in report.text().splitlines())
    assert fleet.report(answered).to_dict() == report.to_dict()


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    with pytest.raises(fleet.FleetError, match="stopgap fleet explain"):
        fleet.report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_tools_read_the_results(answered):
    """Polars, pandas and DuckDB read `out` without stopgap, and agree."""
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    glob = f"{answered}/explain/*/*.parquet"
    report = fleet.report(answered)
    lost = report.totals["lost_s"]
    query = f"SELECT count(*), sum(lost_ns) / 1e9 FROM read_parquet('{glob}') WHERE host IS NOT NULL"
    traces, seconds = duckdb.sql(query).fetchall()[0]
    assert seconds == pytest.approx(lost)
    by_cause = f"SELECT c.cause, sum(c.lost_ns) / 1e9 FROM (SELECT unnest(causes) AS c FROM '{glob}' WHERE host IS NOT NULL) GROUP BY 1"
    by_cause = dict(duckdb.sql(by_cause).fetchall())
    frame = polars.read_parquet(glob).filter(polars.col("host").is_not_null())
    exploded = frame.select("causes").explode("causes").unnest("causes").drop_nulls("cause")
    assert frame.height == traces
    assert dict(exploded.group_by("cause").agg(polars.col("lost_ns").sum() / 1e9).iter_rows()) == pytest.approx(by_cause)
    frame = pandas.read_parquet(f"{answered}/explain")
    frame = frame[frame["host"].notna()]
    assert len(frame) == traces and frame["lost_ns"].sum() / 1e9 == pytest.approx(lost)
    sums = {}
    for cause in frame["causes"].explode().dropna():
        sums[cause["cause"]] = sums.get(cause["cause"], 0) + cause["lost_ns"] / 1e9
    assert sums == pytest.approx(by_cause)
    assert {row["cause"]: row["lost_s"] for row in report.causes.to_pylist() if row["group"] == "all"} == pytest.approx(by_cause)


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
