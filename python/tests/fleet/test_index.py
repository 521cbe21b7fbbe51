"""The manifest: what is in it, what a second call reads, and what is refused."""

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stopgap import fleet

from .conftest import break_some, results


def copy(traces, tmp_path, count=6):
    folder = tmp_path / "traces"
    for path in sorted(traces.rglob("*.parquet"))[:count]:
        to = folder / path.relative_to(traces)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    return folder


def test_a_row_has_file_and_identity(traces, tmp_path):
    index = fleet.index(traces, out=tmp_path)
    rows = index.table.to_pylist()
    assert len(index) == index.read == len(rows) == 24
    assert [row["path"] for row in rows] == sorted(str(path.relative_to(traces)) for path in traces.rglob("*.parquet"))
    for row in rows:
        assert row["size"] == os.stat(traces / row["path"]).st_size
        assert row["host"] == row["path"].split("/")[0]
        assert row["kernel_release"].endswith("-fleet") and row["device"] and row["date"].startswith("2026-03-")
        assert row["error"] is None and len(row["trace_id"]) == 32
    assert pq.read_table(index.path).equals(index.table)


def test_a_machine_without_a_label_is_its_model(traces, tmp_path):
    table = pq.read_table(next(traces.rglob("*.parquet")))
    described = json.loads(table.schema.metadata[b"stopgap.trace"])
    described["machine"]["model"] = "ACME Gateway 7"
    described["devices"] = {"sda": "ACME Disk", "card0": "acme 10de:1"}
    for name, labels in (("model", {}), ("label", {"device": "rack-7"})):
        text = json.dumps({**described, "labels": labels}).encode()
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"stopgap.trace": text}), tmp_path / f"{name}.parquet")
    found = fleet.index(tmp_path).table.to_pylist()
    assert [(row["path"], row["device"]) for row in found] == [("label.parquet", "rack-7"), ("model.parquet", "ACME Gateway 7")]
    assert {row["devices"] for row in found} == {'{"card0": "acme 10de:1", "sda": "ACME Disk"}'}


def test_a_second_call_reads_what_is_new(traces, tmp_path):
    folder = copy(traces, tmp_path)
    fleet.index(folder)
    assert fleet.index(folder).read == 0
    some = sorted(folder.glob("host-*/*.parquet"))
    os.remove(some[0])
    os.utime(some[1], (1, 1))
    index = fleet.index(folder)
    assert (len(index), index.read) == (5, 1)
    assert pq.read_table(index.path).equals(index.table)
    # Nothing new, one less.
    os.remove(some[1])
    index = fleet.index(folder)
    assert (len(index), index.read) == (4, 0)
    assert pq.read_table(index.path).equals(index.table)


def test_damaged_files_are_rows_and_other_tables_are_not(traces, tmp_path):
    folder = copy(traces, tmp_path)
    pq.write_table(pa.table({"a": [1]}), folder / "other.parquet")
    (folder / "_results").mkdir()
    shutil.copy(next(traces.rglob("*.parquet")), folder / "_results" / "hidden.parquet")
    broken = break_some(folder, 3)
    rows = fleet.index(folder).table.to_pylist()
    assert len(rows) == 6
    assert [row["path"] for row in rows if row["error"]] == broken
    assert all(row["trace_id"].startswith("damaged-") for row in rows if row["error"])


def refused(folder, *words):
    """Holds the function and the command: one line, exit status 1, and nothing is written."""
    before = results(folder) if folder.exists() else None
    with pytest.raises(fleet.FleetError) as caught:
        fleet.index(folder)
    text = str(caught.value)
    assert "\n" not in text and all(word in text for word in words), text
    for command in (["explain"], ["replay", "--question", "placement"]):
        done = subprocess.run([sys.executable, "-m", "stopgap.fleet", *command, folder], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"stopgap: {text}\n")
    assert (results(folder) if folder.exists() else None) == before


def test_a_directory_without_traces(tmp_path):
    refused(tmp_path, "no traces", "stopgap record")
    refused(tmp_path / "missing", "no such directory")


def test_two_files_that_are_one_trace(traces, tmp_path):
    folder = copy(traces, tmp_path, 2)
    first = next(folder.rglob("*.parquet"))
    shutil.copy(first, folder / "again.parquet")
    refused(folder, "again.parquet", first.name, "one trace", "remove one")


def test_a_trace_of_another_version(traces, tmp_path):
    folder = copy(traces, tmp_path, 2)
    table = pq.read_table(next(folder.rglob("*.parquet")))
    later = {**table.schema.metadata, b"stopgap.schema": b"stopgap.trace/9"}
    pq.write_table(table.replace_schema_metadata(later), folder / "later.parquet")
    refused(folder, "later.parquet", "stopgap.trace/9", "update stopgap")


def test_a_directory_that_cannot_be_read(traces, tmp_path):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    folder = copy(traces, tmp_path, 2)
    next(folder.iterdir()).chmod(0)
    refused(folder, "no right")
