"""The package itself: identity, import, threads, Ctrl-C."""

import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import stopgap

from conftest import ROOT, WORKLOADS


def test_identity_is_of_the_content(waits, tmp_path, made):
    known = stopgap.identity(waits)
    assert len(known["trace_id"]) == 32
    assert known["host"] == "vm" and known["cpus"] == 2 and known["program"] == "sh"
    assert known["date"] == "2026-11-25T12:10:41Z" and known["lost_events"] == 0
    copy = tmp_path / "copy"
    shutil.copy(waits, copy)
    assert stopgap.identity(copy) == known
    with open(waits, "rb") as file:
        assert stopgap.identity(file) == known
    lines = stopgap.identity(made(waits, "jsonl"))
    assert {**lines, "trace_id": None} == {**known, "trace_id": None}


def test_traces_have_ids_of_their_own(made):
    ids = [
        stopgap.identity(made(workload, "parquet", "--ops", "500", "--seed", seed))["trace_id"]
        for workload in WORKLOADS[:6]
        for seed in "123"
    ]
    assert len(set(ids)) == len(ids)


def test_an_older_trace_knows_less(waits):
    old = stopgap.identity(ROOT / "checks/compatibility/0.1.0/workload.parquet")
    assert old["host"] is None and old["kernel"] is None and old["labels"] is None
    assert list(old) == list(stopgap.identity(waits))


class Counting(io.BytesIO):
    """A file that counts what is read of it."""

    read_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def test_of_a_file_the_footer_is_enough(made):
    large = made("pbobench", "parquet", "--ops", "200000").read_bytes()
    file = Counting(large)
    stopgap.identity(file, name="large")
    assert file.read_bytes < len(large) / 2, f"{file.read_bytes} of {len(large)}"


def test_what_cannot_be_identified(tmp_path):
    with pytest.raises(stopgap.Error, match="nowhere"):
        stopgap.identity("nowhere")
    with pytest.raises(TypeError, match="^trace"):
        stopgap.identity(3)
    with pytest.raises(stopgap.Error, match="^cut: it ends before its footer does"):
        stopgap.identity(io.BytesIO(b"PAR1abcdefgh"), name="cut")
    with pytest.raises(stopgap.Error, match="binary"):
        stopgap.identity(io.StringIO("text"))


def test_import_is_quick_and_brings_no_other_library():
    code = """
import sys, time
before = time.perf_counter()
import stopgap
took = time.perf_counter() - before
print(took, [name for name in ("pyarrow", "ray", "numpy", "pandas") if name in sys.modules])
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    took, loaded = min((run.stdout.split(maxsplit=1) for run in runs), key=lambda run: float(run[0]))
    assert loaded.strip() == "[]"
    assert float(took) < 0.1, took


def test_other_threads_run_meanwhile(made):
    trace = made("pbobench", "parquet", "--ops", "200000")
    turns, over = [], threading.Event()

    def count():
        while not over.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    calls = 0
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + 0.5:
        stopgap.explain(trace)
        calls += 1
    over.set()
    thread.join()
    within = [turn for turn in turns if began <= turn <= now]
    # A call that keeps the GIL leaves one turn before the next.
    assert len(within) > 5 * calls, f"{len(within)} turns in {calls} calls"


def test_ctrl_c_ends_a_call_and_the_next_one_works(waits):
    code = """
import os, signal, sys, threading, time, stopgap
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.perf_counter()
try:
    stopgap.replay_placement("pbobench", n=[20_000, 40_000], ops=20_000_000)
except KeyboardInterrupt:
    print(time.perf_counter() - began)
print(stopgap.explain(sys.argv[1]).damaged)
"""
    done = subprocess.run([sys.executable, "-c", code, waits], capture_output=True, text=True, timeout=60, check=True)
    took, damaged = done.stdout.split()
    assert 0.4 < float(took) < 40 and damaged == "None", done.stdout


def test_handlers_of_signals_stay_pythons(waits):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    status = pathlib.Path("/proc/self/status").read_text()
    stopgap.explain(waits)
    stopgap.replay_placement("frag", policies="linux-6.12", n=100, ops=100)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert before == after
    caught = [line for line in status.splitlines() if line.startswith("Sig")]
    now = pathlib.Path("/proc/self/status").read_text()
    assert caught == [line for line in now.splitlines() if line.startswith("Sig")]


def test_nothing_is_printed_and_no_record_is_written(waits, tmp_path):
    code = "import sys, stopgap; stopgap.explain(sys.argv[1]); stopgap.replay_placement('frag', n=100, ops=100)"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, waits], capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_readmes_examples_are_true(monkeypatch):
    doctest = pytest.importorskip("doctest")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(
        str(ROOT / "python/README.md"), module_relative=False
    )
    assert failed == 0 and tried > 8


def test_stubs_and_functions_have_the_same_arguments():
    import ast
    import inspect

    stub = ast.parse((pathlib.Path(stopgap.__file__).with_name("__init__.pyi")).read_text())
    stubs = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(stopgap.__all__) <= set(stubs)
    for name in stopgap.__all__:
        of_stub, own = stubs[name], getattr(stopgap, name)
        if isinstance(of_stub, ast.FunctionDef):
            arguments = [argument.arg for argument in of_stub.args.args + of_stub.args.kwonlyargs]
            parameters = inspect.signature(own).parameters.values()
            assert arguments == [one.name for one in parameters if one.kind != one.VAR_POSITIONAL], name
        else:
            for member in of_stub.body:
                if isinstance(member, ast.FunctionDef):
                    assert hasattr(own, member.name), f"{name}.{member.name}"
        assert own.__doc__


def test_every_function_of_the_extension_turns_panics_into_errors():
    """That `library::caught` does it, a test of that crate shows; here, that what Python calls goes through it."""
    import re

    # They return what is there, and call nothing of stopgap.
    plain = {"json", "column_names", "__len__", "version", "columns", "keep_to_one_cpu", "pairs_suffice"}
    through, found = re.compile(r"\b(guarded|held|of_command)\("), {}
    for path in sorted((ROOT / "python/src").glob("*.rs")):
        text = path.read_text()
        exported = [match.end() for match in re.finditer(r"#\[pyfunction\]", text)]
        for block in re.finditer(r"#\[pymethods\]\nimpl \w+ \{\n(.*?)\n\}\n", text, re.S):
            exported += [block.start(1) + match.start() for match in re.finditer(r"^    fn ", block[1], re.M)]
        for at in exported:
            name = re.compile(r"fn (\w+)").search(text, at)[1]
            begin = text.index("fn ", at)
            indent = text[text.rindex("\n", 0, begin) + 1 : begin].split("pub")[0]
            body = text[begin : text.index(f"\n{indent}}}\n", begin)]
            found.setdefault(name, []).append(bool(through.search(body)))
    assert len(found) > 20, found
    assert {name for name, each in found.items() if not all(each)} == plain
