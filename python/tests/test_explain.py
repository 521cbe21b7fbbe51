"""explain() is the command's, byte for byte."""

import json

import pytest
import stopgap

from conftest import RECORDED, ROOT, TEXTS, WORKLOADS

TABLES = ("stalls", "waits", "blame", "round_trips", "tasks", "calls")


def agrees(command, trace, *flags, **options):
    """Holds the package against the command on one trace."""
    told = command("explain", *flags, "--json", trace)
    try:
        findings = stopgap.explain(trace, **options)
    except stopgap.Error as error:
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr == f"stopgap: {error}\n"
        return None
    assert findings.to_json() + "\n" == told.stdout
    assert (findings.damaged is None) == (told.returncode == 0)
    if findings.damaged is not None:
        assert told.stderr.endswith(f"stopgap: {findings.damaged}\n")
    for table in TABLES:
        assert getattr(findings, table).column_names
    return findings


@pytest.mark.parametrize("trace", RECORDED[-4:] + TEXTS[:1], ids=lambda path: path.name)
def test_it_has_the_bytes_of_the_command(command, trace):
    assert agrees(command, trace) is not None


@pytest.mark.filterwarnings("ignore::stopgap.Note")
def test_options_are_flags(command, waits):
    findings = agrees(command, waits, "--top=3", "--request=write..read", top=3, request="write..read")
    assert len(findings.stalls) == 3
    agrees(command, waits, "--frame-marker=read", frame_marker="read")


def test_a_damaged_trace_is_explained_as_far_as_it_is_whole(command, waits, made, tmp_path):
    lines = made(waits, "jsonl").read_text().splitlines()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("\n".join([*lines[: len(lines) // 2], "{broken"]))
    findings = agrees(command, damaged)
    assert "what comes before it is explained" in findings.damaged


@pytest.mark.long
def test_fifty_traces_of_different_kinds(command, made, tmp_path):
    """Recorded ones, the same as lines and without names, texts of other tools, workloads, and damaged ones."""
    traces = [*RECORDED, *TEXTS]
    traces += [made(trace, "jsonl") for trace in RECORDED]
    traces += [made(trace, "parquet", "--anonymous") for trace in RECORDED]
    for seed, workload in enumerate(WORKLOADS):
        flags = ("--ops", "2000", "--seed", str(seed))
        traces += [made(workload, "parquet", *flags), made(workload, "jsonl", *flags)]
    for at, trace in enumerate(RECORDED):
        whole = trace.read_bytes()
        for cut in (len(whole) // 3, len(whole) - 9):
            damaged = tmp_path / f"{at}-{cut}.parquet"
            damaged.write_bytes(whole[:cut])
            traces.append(damaged)
        # A byte inside the columns.
        damaged = tmp_path / f"{at}.parquet"
        damaged.write_bytes(whole[:400] + bytes([whole[400] ^ 0x55]) + whole[401:])
        traces.append(damaged)
    explained = [trace for trace in traces if agrees(command, trace) is not None]
    assert len(explained) >= 50, f"{len(explained)} of {len(traces)}"
    print(f"{len(traces)} traces, {len(explained)} of them explained")


def test_the_tables_are_the_documents(waits):
    findings = stopgap.explain(waits)
    document = json.loads(findings.to_json())
    assert findings.to_dict() == document
    assert findings.stalls.to_pylist() == document["slow"]
    assert findings.tasks.to_pylist() == document["tasks"]
    assert findings.calls.to_pylist() == document["calls"]
    assert findings.blame.to_pylist() == document["chains"]["blame"]
    assert findings.verdict == document["verdict"]
    for row, wait in zip(findings.waits.to_pylist(), document["chains"]["waiting"], strict=True):
        own = {name: value for name, value in row.items() if not name.startswith("behind")}
        assert own == {name: wait[name] for name in own}
        assert row["behind_share"] == wait["links"][0]["share"]


def test_a_table_goes_out_without_a_copy_and_its_type_needs_no_rows(waits):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(stopgap.explain(waits).waits)
    assert table.num_rows == len(stopgap.explain(waits).waits)
    empty = stopgap.explain(ROOT / "checks/compatibility/0.1.0/workload.parquet").waits
    assert len(empty) == 0
    assert pyarrow.table(empty).schema == table.schema
    assert table.schema.field("total_ns").type == pyarrow.uint64()


def test_it_is_shown_as_the_command_shows_it(command, waits):
    findings = stopgap.explain(waits)
    assert str(findings) + "\n" == command("explain", waits).stdout
    page = findings._repr_html_()
    assert page.startswith('<iframe sandbox=""') and "svg" in page
    assert findings.verdict["text"] in repr(findings)
    assert "<table>" in findings.waits._repr_html_()


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    [
        (TypeError, "trace", {"trace": 3}),
        (TypeError, "trace", {"trace": b"x"}),
        (TypeError, "trace", {"trace": None}),
        (ValueError, "trace", {"trace": ""}),
        (ValueError, "trace", {"trace": "a\0b"}),
        (TypeError, "top", {"top": "3"}),
        (TypeError, "top", {"top": True}),
        (TypeError, "top", {"top": 1.5}),
        (ValueError, "top", {"top": 10_001}),
        (ValueError, "top", {"top": -1}),
        (TypeError, "request", {"request": 3}),
        (ValueError, "request", {"request": "write"}),
        (ValueError, "frame_marker", {"frame_marker": ""}),
    ],
)
def test_a_wrong_argument_is_named(waits, error, name, arguments):
    with pytest.raises(error, match=f"^{name}\\b"):
        stopgap.explain(**{"trace": waits, **arguments})


@pytest.mark.parametrize("name", ["missing.parquet", ".", "README.md", "--help", "-"])
def test_what_is_no_trace_fails_with_the_commands_words(command, name, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(stopgap.Error) as error:
        stopgap.explain(name)
    assert str(error.value) == command.error("explain", "--json", "--", name)


def test_a_note_is_a_warning(waits):
    with pytest.warns(stopgap.Note, match="did not come twice"):
        stopgap.explain(waits, frame_marker="nothing-of-the-kind")
