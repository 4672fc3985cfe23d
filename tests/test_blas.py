"""blas.py: which library answers, seen from outside in fresh processes."""

import os
import subprocess
import sys

import pytest

from breeze_lab import blas

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS has Accelerate")

# The file that holds the address of a global symbol, by the kernel's own map of this process.
OWNER = """
import ctypes
def owner(symbol):
    address = ctypes.cast(getattr(ctypes.CDLL(None), symbol), ctypes.c_void_p).value
    for line in open("/proc/self/maps"):
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[-1]
"""

ASK = "from breeze_lab import blas\nprint(blas.load_openblas(), blas.why_not())"


def python(code: str, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "BREEZE_LAB_BLAS"} | environment
    done = subprocess.run([sys.executable, "-c", OWNER + code], capture_output=True, text=True, env=env, check=True)
    return done.stdout.strip()


def test_openblas_answers_for_mlx_after_import():
    said = python("from breeze_lab import blas\nprint(owner('cblas_sgemm'), blas.openblas_version())")
    assert "openblas" in said.split()[0] and "OpenBLAS" in said


def test_it_can_be_switched_off():
    said = python(ASK, BREEZE_LAB_BLAS="off")
    assert said == "None switched off by BREEZE_LAB_BLAS"


def test_too_late_is_told():
    said = python("import mlx.core\n" + ASK)
    assert said.startswith("None mlx was imported before breeze_lab")


def test_a_library_that_does_not_load_is_no_error():
    said = python(ASK, BREEZE_LAB_BLAS="/none.so")
    assert said.startswith("None /none.so, named by BREEZE_LAB_BLAS, did not load")


def test_a_wheels_fortran_runtime_is_lent_under_its_usual_name():
    said = python(
        "import runpy\n"  # the file alone: importing the package would load everything
        f"lend = runpy.run_path({blas.__file__!r})['_lend_gfortran']\n"
        "print(lend(), 'memfd:libgfortran.so.5' in open('/proc/self/maps').read())\n"
        "print(ctypes.CDLL('libgfortran.so.5')._gfortran_etime is not None)"
    )
    assert said.split() == ["True", "True", "True"]


def test_the_products_are_right():
    said = python(
        "import breeze_lab, mlx.core as mx, numpy as np\n"
        "rng = np.random.default_rng(0); a, b = rng.random((65, 300)), rng.random((300, 129))\n"
        "got = np.array(mx.array(a.astype('f4')) @ mx.array(b.astype('f4')))\n"
        "print(np.abs(got / (a @ b) - 1).max() < 1e-5)"
    )
    assert said == "True"


COUNT = (
    "import ctypes\nfrom breeze_lab import blas\nprint(ctypes.CDLL(blas.load_openblas()).openblas_get_num_threads())"
)


@pytest.mark.parametrize(("given", "threads"), [("", max(1, (os.cpu_count() or 2) // 2)), ("2", 2)])
def test_openblas_leaves_cores_to_python_and_mlx_unless_told(given, threads):
    assert python(COUNT, OPENBLAS_NUM_THREADS=given) == str(threads)
