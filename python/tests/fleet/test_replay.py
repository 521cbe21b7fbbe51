"""Replays of a fleet have the command's figures; a trace with nothing to replay is a row with the command's words."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

from stopgap import fleet
from stopgap.fleet import rows

from .conftest import REPOSITORY

FILES = REPOSITORY / "checks/capabilities/files"

#: Traces of the fleet: memory events, round trips, system calls of one process and of two, and waits alone.
TRACES = {
    "buffers": FILES / "buffers.jsonl",
    "roundtrips": FILES / "roundtrips.jsonl",
    "one-program": FILES / "recorded.parquet",
    "two-programs": FILES / "two-programs.jsonl",
    "waits": REPOSITORY / "checks/compatibility/trace-2/waits.parquet",
}

#: Policies of each question, and which of the traces it can replay.
QUESTIONS = {
    "placement": (["linux-6.12", "best-fit"], {"buffers", "one-program", "two-programs"}),
    "chunks": (["sorted", "old"], {"buffers"}),
    "roundtrip": (["linux-2.6.35", "linux-6.12"], {"roundtrips"}),
}


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    made = tmp_path_factory.mktemp("replayed")
    for name, source in TRACES.items():
        if source.suffix == ".parquet":
            shutil.copy(source, made / f"{name}.parquet")
        else:
            done = command("export", source, "-o", made / f"{name}.parquet")
            assert done.returncode == 0, done.stderr
    return made


def of_command(command, question, trace, policies, *flags):
    """Returns the figures that the command prints for the seeds 1 and 2, or its error."""
    figures = []
    for seed in (1, 2):
        words = ["replay", question, f"--policy={','.join(policies)}", f"--seed={seed}", *flags, "--json", "--no-record", trace]
        done = command(*words)
        if done.returncode != 0:
            return done.stderr.splitlines()[-1].removeprefix("stopgap: ")
        for row in json.loads(done.stdout)["rows"]:
            named = [(name, row.get(name)) for name in rows.FIGURES[question]]
            figures += [(row["policy"], seed, name, float(value)) for name, value in named if value is not None]
    return figures


@pytest.mark.parametrize("question", QUESTIONS)
def test_figures_and_errors_are_the_commands(command, folder, tmp_path, question):
    policies, can = QUESTIONS[question]
    done = fleet.replay(folder, question=question, policies=policies, seeds=2, out=tmp_path, workers=1)
    assert (done.done, done.failed) == (len(TRACES), len(TRACES) - len(can))
    found = [row for path in tmp_path.rglob("part=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert len(found) == len(TRACES)
    for row in found:
        name = row["path"].removesuffix(".parquet")
        # Of two processes the one with most calls is replayed, and named.
        of_one = name == "two-programs" and question == "placement"
        told = of_command(command, question, folder / row["path"], policies, *(["--pid=41"] if of_one else []))
        if name in can:
            assert row["error"] is None
            assert sorted((one["policy"], one["seed"], one["figure"], one["value"]) for one in row["figures"]) == sorted(told)
            assert row["figures"][0]["policy"] == policies[0]
            assert {one["figure"] for one in row["figures"]} >= {rows.FIGURES[question][0]}
            assert all((one["row"] == "process 41") == of_one for one in row["figures"])
        else:
            assert row["figures"] is None and row["error"] == told
            assert "nothing to" in told or "to replay" in told or "to build" in told


def test_calls_are_no_buffers(command, folder):
    error = command.error("replay", "chunks", "--no-record", folder / "one-program.parquet")
    assert "it has system calls that map, but no memory events" in error and "replay placement" in error


def test_what_if_pairs_every_question(folder, tmp_path):
    """Hosts are given, since the traces name none: the two policies of each question are told apart by trace."""
    for question, (policies, _) in QUESTIONS.items():
        fleet.replay(folder, question=question, policies=policies, out=tmp_path, workers=1)
    for path in tmp_path.rglob("replay/*/part=*/*.parquet"):
        table = pq.ParquetFile(path).read()
        host = table.schema.get_field_index("host")
        pq.write_table(table.set_column(host, table.schema.field(host), [["a host"]]), path)
    from stopgap.fleet import answers
    from stopgap.fleet.store import Store

    found = answers._what_if(Store(tmp_path), 1)
    assert {(row["question"], row["baseline"], row["policy"]) for row in found} == {
        ("placement", "linux-6.12", "best-fit"),
        ("chunks", "sorted", "old"),
        ("roundtrip", "linux-2.6.35", "linux-6.12"),
    }
    assert all(row["hosts"] == 1 and row["ratio"] > 0 for row in found)
