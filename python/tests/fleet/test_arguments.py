"""Every argument of every public function and method: what is wrong raises TypeError or ValueError that begins with its name."""

import inspect
import subprocess
import sys

import pytest

import stopgap
from stopgap import fleet

from .conftest import REPOSITORY, results

TRACE = REPOSITORY / "checks/compatibility/trace-2/waits.parquet"

#: Arguments that a call needs besides the one that is wrong.
NEEDED = {
    "explain": {"trace": TRACE},
    "identity": {"trace": TRACE},
    "read_trace": {"trace": TRACE},
    "replay_placement": {"workload": "frag"},
    "compare": {"before": TRACE, "after": TRACE},
    "ministat": {"files": "/dev/null"},
    "fleet.replay": {"question": "placement"},
}

WORDS = ["", "a\0b"]
PATHS = ["", "a\0b", b"bytes", 3]
COUNTS = [-1, 1.5, "3", True, 2**64]

#: Wrong values of each argument, by its name. `object()` is wrong for all of them.
WRONG = {
    "trace": PATHS,
    "workload": PATHS,
    "scenario": PATHS,
    "before": [*PATHS, [], [3]],
    "after": [*PATHS, [], [3]],
    "files": PATHS,
    "url": PATHS,
    "index": PATHS,
    "out": PATHS,
    "prices": PATHS,
    "address": [3, *WORDS],
    "engine": ["spark", 3, ""],
    "workers": [0, *COUNTS],
    "name": [3, ""],
    "columns": ["nothing", [], [3], ["kind", "kind"]],
    "top": [10_001, *COUNTS],
    "frame_marker": [3, *WORDS],
    "request": ["write", 3, *WORDS],
    "question": ["weather", 3, ""],
    "policies": ["nobody", [], [3], ["a,b"], ["nobody"], [""]],
    "seeds": [0, [], [1.5], [True], "3", [-1], 10**6],
    "seed": COUNTS,
    "n": [*COUNTS, []],
    "ops": [10**9, *COUNTS],
    "direction": ["sideways", 3, ""],
    "pid": COUNTS,
    "memory": [0, *COUNTS],
    "kernel": ["2.0", 3, ""],
    "size": [0, *COUNTS],
    "device": [[3], [], "4K"],
    "access": ["backwards", [], [3]],
    "client": ["select", [], [3]],
    "server": ["read", [], [3]],
    "work": [[], "5us", -1],
    "batch": [[], "x", 0],
    "margin": [2, -0.1, float("nan"), "5%", True],
    "endpoint": [[], [3], ""],
    "series": [3, ""],
    "threshold": ["1ms", -1, 1.5],
    "unit": ["days", 3],
    "per": ["day", 3],
    "column": COUNTS[:-1] + [0],
    "confidence": [97, "95", True],
    "delimiters": [3, ""],
    "plot": [1, "yes"],
    "verbose": [1, "yes"],
    "width": [0, 100_000, "80", True],
    "kernels": ["6.1", ["6.1"], [1, 2], ("", "")],
    "since": ["yesterday", 3, ""],
}

def public():
    """All public functions, and the public methods of the public classes, by name."""
    found = {}
    for module, prefix in ((stopgap, "stopgap"), (fleet, "fleet")):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                found[f"{prefix}.{name}"] = value
            elif inspect.isclass(value) and not issubclass(value, Exception):
                for method, of_class in inspect.getmembers(value, inspect.isfunction):
                    if not method.startswith("_"):
                        found[f"{prefix}.{name}.{method}"] = of_class
    return found


PARAMETERS = [
    (function, parameter)
    for function, value in public().items()
    for parameter in inspect.signature(value).parameters
    if parameter != "self"
]


def test_all_are_here():
    assert len({function for function, _ in PARAMETERS}) >= 15 and len(PARAMETERS) > 70
    assert {parameter for _, parameter in PARAMETERS} == set(WRONG), "an argument without wrong values, or wrong values of none"


@pytest.fixture(scope="module")
def instances(traces, tmp_path_factory):
    """An object of each class with methods, and what has results."""
    out = tmp_path_factory.mktemp("arguments")
    fleet.explain(traces, out=out, workers=2)
    findings = stopgap.explain(TRACE)
    return {
        "stopgap.Findings": findings,
        "stopgap.Table": findings.waits,
        "stopgap.Replay": stopgap.replay_placement("frag", policies="linux-6.12", n=16, ops=16),
        "stopgap.Comparison": stopgap.compare(TRACE, TRACE.with_name("scheduling.parquet"), per="second"),
        "fleet.Report": fleet.report(out),
        "out": out,
        "traces": traces,
    }


@pytest.mark.filterwarnings("ignore::stopgap.Note")
@pytest.mark.parametrize(("function", "parameter"), PARAMETERS, ids=[" ".join(each) for each in PARAMETERS])
def test_what_is_wrong_is_named(function, parameter, instances, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value, (holder, _, name) = public()[function], function.rpartition(".")
    kinds = inspect.signature(value).parameters
    given = dict(NEEDED.get(function.removeprefix("stopgap."), {}))
    if holder == "fleet":
        given |= {"index": instances["traces"], "out": tmp_path / "out", "url": instances["traces"]}
        given = {key: each for key, each in given.items() if key in kinds}
        if name == "report":
            given["out"] = instances["out"]
    before = results(instances["out"])
    for wrong in [object(), *WRONG[parameter]]:
        arguments = {**given, parameter: wrong}
        several = [arguments.pop(key) for key, kind in kinds.items() if kind.kind is kind.VAR_POSITIONAL and key in arguments]
        own = [instances[holder]] if holder in instances else []
        with pytest.raises((TypeError, ValueError)) as caught:
            value(*own, *several, **arguments)
        assert str(caught.value).startswith(parameter), f"{function}({parameter}={wrong!r}): {caught.value}"
    assert results(instances["out"]) == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "required: COMMAND"),
        (["explode", "traces"], "invalid choice: 'explode'"),
        (["explain"], "required: DIR|URL"),
        (["explain", "traces", "--workers", "two"], "argument --workers: invalid int value: 'two'"),
        (["explain", "{traces}", "--address", "auto"], "address is of a Ray cluster, and engine is 'local'"),
        (["report", "{traces}"], "make them with: stopgap fleet explain"),
    ],
)
def test_the_command_refuses_in_one_line(words, told, traces, capsys):
    from stopgap.fleet.__main__ import main

    try:
        status = main([word.format(traces=traces) for word in words])
    except SystemExit as exit:
        status = exit.code
    printed = capsys.readouterr()
    assert (status, printed.out) == (1, "") and printed.err.count("\n") == 1, printed.err
    assert printed.err.startswith("stopgap: ") and told in printed.err


@pytest.mark.parametrize("missing", ["pyarrow", "fsspec"])
def test_without_a_package_a_line_says_how_to_install_it(missing, traces, tmp_path):
    code = "import sys; sys.modules[sys.argv.pop(1)] = None; from stopgap.fleet.__main__ import main; sys.exit(main(sys.argv[1:]))"
    for words in (["explain", traces, "-o", tmp_path / "out"], ["replay", "--question", "chunks", traces, "-o", tmp_path / "out"], ["report", traces]):
        done = subprocess.run([sys.executable, "-c", code, missing, *words], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert done.stderr == f"stopgap: fleet needs {missing}: {sys.executable} -m pip install 'stopgap[fleet]'\n"
    assert list(tmp_path.iterdir()) == []
