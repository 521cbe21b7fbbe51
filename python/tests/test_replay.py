"""Replays have the command's counts; compare(), ministat() and read_trace() are the command's."""

import json

import pytest
import stopgap

from conftest import RECORDED, ROOT

#: What is measured where it runs.
MEASURED = {"ns_per_operation", "spread", "driver_ns", "worst_ns", "loops", "p9999_ns", "mean_ns"}


def counts(document):
    rows = [{name: value for name, value in row.items() if name not in MEASURED} for row in document["rows"]]
    return {**document, "rows": rows, "clock_ns": None, "growth": None, "mail": None}


def agrees(command, replay, *words):
    told = command("replay", *words, "--json", "--no-record")
    assert told.returncode == 0, told.stderr
    assert counts(replay.to_dict())["rows"] == counts(json.loads(told.stdout))["rows"]
    assert len(replay) == len(replay.to_dict()["rows"]) > 0
    return json.loads(told.stdout)


def test_placement(command):
    replay = stopgap.replay_placement("frag", policies=["linux-6.12", "stopgap"], n=[500, 1_000], seed=3, ops=2_000)
    words = "--policy=linux-6.12,stopgap --n=500,1000 --ops=2000 --seed=3".split()
    document = agrees(command, replay, "placement", *words, "frag")
    assert {row["policy"] for row in document["rows"]} == {"linux-6.12", "stopgap"}
    # The flags are in another order, which is all that may differ.
    assert sorted(replay.to_dict()["command"]) == sorted(document["command"])


@pytest.mark.filterwarnings("ignore::stopgap.Note")
def test_placement_of_a_trace(command):
    trace = ROOT / "checks/compatibility/0.1.0/memory.parquet"
    replay = stopgap.replay_placement(trace, policies="linux-6.12", pid=27964)
    agrees(command, replay, "placement", "--policy=linux-6.12", "--pid=27964", trace)


def test_chunks(command):
    replay = stopgap.replay_chunks(policies=["sorted", "old"], n=3, seed=2, size=1 << 20)
    document = agrees(command, replay, "chunks", *"--policy=sorted,old --buffers=3 --seed=2 --size=1M thread".split())
    assert replay.to_dict()["chunks"] == document["chunks"]
    told = {row["policy"]: row["tries_per_buffer"] for row in document["rows"]}
    assert {row["policy"]: row["tries_per_buffer"] for row in replay.to_pylist()} == told


def test_roundtrip(command):
    replay = stopgap.replay_roundtrip(n=200, seed=5, client=["poll", "read"], work=5_000)
    words = "--round-trips=200 --seed=5 --client=poll,read --work=5us".split()
    document = agrees(command, replay, "roundtrip", *words)
    switches = [row["switches_per_request"] for row in document["rows"]]
    assert [row["switches_per_request"] for row in replay.to_pylist()] == switches


def test_rows_are_a_table_a_text_and_a_page(command):
    pyarrow = pytest.importorskip("pyarrow")
    replay = stopgap.replay_placement("frag", policies="linux-6.12", n=[100, 200, 400, 800], ops=2_000)
    table = pyarrow.table(replay)
    assert table.column("n").to_pylist() == [100, 200, 400, 800]
    assert len(replay.growth) == len(replay.to_dict()["growth"]) > 0
    assert "linux-6.12" in str(replay)
    assert "<iframe" in replay._repr_html_()


@pytest.mark.parametrize(
    ("error", "name", "function", "arguments"),
    [
        (TypeError, "workload", stopgap.replay_placement, {"workload": 3}),
        (ValueError, "policies", stopgap.replay_placement, {"policies": "nobody"}),
        (ValueError, "policies", stopgap.replay_placement, {"policies": []}),
        (ValueError, "policies", stopgap.replay_placement, {"policies": ["a,b"]}),
        (TypeError, "policies", stopgap.replay_placement, {"policies": [3]}),
        (TypeError, "n", stopgap.replay_placement, {"n": "many"}),
        (ValueError, "n", stopgap.replay_placement, {"n": 2**64}),
        (TypeError, "seed", stopgap.replay_placement, {"seed": 1.5}),
        (ValueError, "ops", stopgap.replay_placement, {"ops": 10**9}),
        (ValueError, "direction", stopgap.replay_placement, {"direction": "sideways"}),
        (ValueError, "memory", stopgap.replay_placement, {"memory": 0}),
        (ValueError, "kernel", stopgap.replay_chunks, {"kernel": "2.0"}),
        (ValueError, "access", stopgap.replay_chunks, {"access": "backwards"}),
        (ValueError, "device", stopgap.replay_chunks, {"device": [3]}),
        (ValueError, "policies", stopgap.replay_chunks, {"policies": "nobody"}),
        (ValueError, "client", stopgap.replay_roundtrip, {"client": "select"}),
        (ValueError, "policies", stopgap.replay_roundtrip, {"policies": "nobody"}),
    ],
)
def test_a_wrong_argument_is_named(error, name, function, arguments):
    usual = {"workload": "frag"} if function is stopgap.replay_placement else {}
    with pytest.raises(error, match=f"^{name}\\b"):
        function(**{**usual, **arguments})


def test_a_failure_has_the_commands_words(command):
    with pytest.raises(stopgap.Error) as error:
        stopgap.replay_placement("nowhere")
    assert str(error.value) == command.error("replay", "placement", "--json", "--no-record", "nowhere")
    with pytest.raises(stopgap.Error) as error:
        stopgap.replay_roundtrip(RECORDED[0])
    assert str(error.value) == command.error("replay", "roundtrip", "--json", "--no-record", RECORDED[0])


@pytest.fixture
def numbers(tmp_path):
    for name, shift in (("a", 0), ("b", 5)):
        (tmp_path / name).mkdir()
        for run in range(6):
            text = "".join(f"{100 + (run * 7 + at * 13) % 11 + shift}\n" for at in range(20))
            (tmp_path / name / f"{run}.txt").write_text(text)
    return tmp_path / "a", tmp_path / "b"


def test_compare_of_runs(command, numbers):
    comparison = stopgap.compare(*numbers, seed=4, margin=0.01)
    told = command("compare", "--margin=0.01", "--seed=4", "--json", "--no-record", *numbers)
    assert comparison.to_json() + "\n" == told.stdout
    assert comparison.figures.to_pylist() == json.loads(told.stdout)["endpoints"]
    assert comparison.verdict["word"] in str(comparison).lower() or comparison.verdict["text"] in repr(comparison)
    files = [sorted(side.iterdir()) for side in numbers]
    several = stopgap.compare(*files, seed=4).to_json()
    told = command("compare", "--seed=4", "--json", "--no-record", "--before", *files[0], "--after", *files[1])
    assert several + "\n" == told.stdout


def test_compare_of_traces(command, waits):
    other = waits.with_name("scheduling.parquet")
    comparison = stopgap.compare(waits, other, per="second")
    told = command("compare", "--per=second", "--json", "--no-record", waits, other)
    assert comparison.to_json() + "\n" == told.stdout
    assert comparison.figures.to_pylist() == json.loads(told.stdout)["figures"]
    assert "<iframe" in comparison._repr_html_()
    with pytest.raises(stopgap.Error) as error:
        stopgap.compare(waits, waits)
    assert str(error.value) == command.error("compare", "--json", "--no-record", waits, waits)


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    [
        (TypeError, "before", {"before": 3}),
        (ValueError, "after", {"after": []}),
        (TypeError, r"after\[1\]", {"after": ["a", 3]}),
        (ValueError, "margin", {"margin": 2}),
        (ValueError, "margin", {"margin": float("nan")}),
        (TypeError, "margin", {"margin": "5%"}),
        (ValueError, "question", {"question": "why"}),
        (ValueError, "per", {"per": "day"}),
        (ValueError, "unit", {"unit": "days"}),
        (TypeError, "threshold", {"threshold": "1ms"}),
    ],
)
def test_a_wrong_argument_of_compare_is_named(numbers, error, name, arguments):
    with pytest.raises(error, match=f"^{name}"):
        stopgap.compare(**{"before": numbers[0], "after": numbers[1], **arguments})


def test_ministat(command, numbers):
    files = numbers[0] / "0.txt", numbers[1] / "0.txt"
    assert stopgap.ministat(*files, width=74) == command("ministat", "-w", "74", *files).stdout
    text = stopgap.ministat(*files, confidence=99, plot=False)
    assert text == command("ministat", "-c", "99", "-A", "-w", "74", *files).stdout
    with pytest.raises(ValueError, match="^confidence"):
        stopgap.ministat(*files, confidence=97)
    with pytest.raises(TypeError, match="^files"):
        stopgap.ministat()
    with pytest.raises(stopgap.Error) as error:
        stopgap.ministat("nowhere")
    assert str(error.value) == command.error("ministat", "nowhere")


def test_the_events_are_those_of_the_file(waits):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    own, file = pyarrow.table(stopgap.read_trace(waits)), parquet.read_table(waits)
    assert own.num_rows == file.num_rows > 0
    for name in file.column_names:
        assert own.column(name).to_pylist() == file.column(name).to_pylist(), name
    some = stopgap.read_trace(waits, columns=["kind", "time_ns"])
    assert some.column_names == ["kind", "time_ns"]
    assert pyarrow.table(some).column("kind").to_pylist() == file.column("kind").to_pylist()


def test_lines_and_a_file_are_the_same_events(waits, made):
    pyarrow = pytest.importorskip("pyarrow")
    assert pyarrow.table(stopgap.read_trace(made(waits, "jsonl"))).equals(pyarrow.table(stopgap.read_trace(waits)))


@pytest.mark.parametrize(
    ("error", "columns"),
    [(ValueError, "nothing"), (ValueError, []), (ValueError, ["kind", "kind"]), (TypeError, [3])],
)
def test_a_wrong_column_is_named(waits, error, columns):
    with pytest.raises(error, match="^columns"):
        stopgap.read_trace(waits, columns=columns)
