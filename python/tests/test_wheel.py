"""What pip makes of the sources, and the notebook."""

import os
import pathlib
import subprocess
import sys

import pytest

from conftest import ROOT

#: The wheel may have this much, bytes.
LARGEST = 15_000_000


@pytest.mark.long
def test_pip_builds_a_small_wheel_that_works_in_a_new_environment(tmp_path, waits):
    def run(*words):
        return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path / "wheels", ROOT / "python")
    (wheel,) = (tmp_path / "wheels").glob("stopgap-*.whl")
    assert "cp39-abi3" in wheel.name
    size = wheel.stat().st_size
    assert size < LARGEST, size
    print(f"{wheel.name}: {size:,} bytes")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    # Nothing but the wheel: importing and explaining need no other package.
    run(python, "-m", "pip", "install", "-q", "--no-index", wheel)
    text = run(python, "-c", f"import stopgap; print(stopgap.explain({str(waits)!r}))")
    assert text.startswith("FOUND NO STALL"), text


@pytest.mark.long
def test_the_notebook_runs(monkeypatch, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "python/examples/fleet.ipynb", as_version=4)
    nbformat.validate(notebook)
    path = os.environ.get("PYTHONPATH")
    package = str(pathlib.Path(ROOT, "python"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, path] if path else [package]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in shown)
