"""The command beside the package, and traces of many kinds."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Recorded traces of the repository: old and new schemas, with and without scheduling, samples and fences.
RECORDED = sorted(ROOT.glob("checks/compatibility/*/*.parquet")) + [ROOT / "checks/capabilities/files/recorded.parquet"]

#: Texts of perf script, trace-cmd and ftrace.
TEXTS = [ROOT / f"checks/capabilities/files/{name}.txt" for name in ("trace", "trace-cmd", "trace-cmd-stacks")]

WORKLOADS = (
    "pbobench agua freegap-posted freegap-innermprot freegap-innerremap frag aligned limits tight-1.03 tight-1.06 many-sizes"
    " phases sequential"
).split()


def _command():
    given = os.environ.get("STOPGAP")
    built = [ROOT / "target" / profile / "stopgap" for profile in ("release", "debug")]
    for program in [pathlib.Path(given).resolve()] if given else built:
        if program.exists():
            return program
    raise RuntimeError("no command to compare with: cargo build --release, or set STOPGAP")


class Command:
    """The command, run as `stopgap`."""

    def __init__(self, state):
        self.program = _command()
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state)}

    def __call__(self, *words):
        words = ["stopgap", *map(str, words)]
        return subprocess.run(
            words, executable=self.program, capture_output=True, text=True, env=self.environment, cwd=ROOT, check=False
        )

    def error(self, *words):
        """Returns the line by which it fails."""
        done = self(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr.removeprefix("stopgap: ").removesuffix("\n")


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    return Command(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def made(command, tmp_path_factory):
    """Makes a trace of another form, or of a workload, once."""
    folder, there = tmp_path_factory.mktemp("traces"), {}

    def make(source, ending, *flags):
        key = (str(source), ending, flags)
        if key not in there:
            path = folder / f"{len(there)}.{ending}"
            done = command("export", source, "-o", path, *flags)
            assert done.returncode == 0, done.stderr
            there[key] = path
        return there[key]

    return make


@pytest.fixture(scope="session")
def waits():
    """A trace with waits, system calls and an identity."""
    return ROOT / "checks/compatibility/trace-2/waits.parquet"
