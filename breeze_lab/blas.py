"""OpenBLAS before MLX, on Linux.

The mlx-cpu wheel carries a reference BLAS; its `cblas_*` and LAPACK imports bind to whichever library is already
loaded with global symbols. So loading OpenBLAS first makes float32 matrix products 10 to 30 times faster, and no
other line of code changes. Elsewhere (macOS has Accelerate and Metal) this module does nothing.

`BREEZE_LAB_BLAS=off` switches it off; `BREEZE_LAB_BLAS=/path/to/libopenblas.so` names a library.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

_SYMBOL, _FORTRAN = "cblas_sgemm", "libgfortran.so.5"
_UNASKED = "not asked for yet"
_loaded: str | None = None
_reason = _UNASKED


def _candidates() -> list[str]:
    """Paths or library names to try, best first: the named one, PyPI's cmeel-openblas, the system's."""
    named = os.environ.get("BREEZE_LAB_BLAS", "")
    if named and named.lower() != "on":
        return [named]
    found = []
    for entry in sys.path:
        library = Path(entry or ".") / "cmeel.prefix" / "lib" / "libopenblas.so"
        if library.is_file():
            found.append(str(library))
            break
    return [*found, "libopenblas.so.0", "libopenblas.so"]


def _open(candidate: str) -> ctypes.CDLL | None:
    """Load a library with global symbols if it is there and is a BLAS."""
    for lend in (False, True):
        try:
            if lend and not _lend_gfortran():
                return None
            library = ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            getattr(library, _SYMBOL)
            return library
        except OSError as error:
            if _FORTRAN not in str(error):
                return None
        except AttributeError:
            return None
    return None


def _lend_gfortran() -> bool:
    """Make the Fortran runtime that another wheel carries answer to its usual name.

    OpenBLAS's wheel wants libgfortran.so.5 of the system, which a bare machine lacks, while the wheels of MLX and NumPy
    carry it under a hashed name. The loader matches names inside the files, so a copy in memory gets the usual one.
    """
    found = (path for entry in sys.path for path in Path(entry or ".").glob("*.libs/libgfortran-*.so.5*"))
    for path in sorted(found, key=lambda path: path.parent.name != "mlx_cpu.libs"):
        try:
            for quadmath in path.parent.glob("libquadmath-*"):
                ctypes.CDLL(str(quadmath))
            own, usual = path.name.encode() + b"\0", _FORTRAN.encode()
            file = os.memfd_create(_FORTRAN)
            try:
                with open(file, "wb", closefd=False) as copy:
                    copy.write(path.read_bytes().replace(own, usual.ljust(len(own), b"\0")))
                ctypes.CDLL(f"/proc/self/fd/{file}")
            finally:
                os.close(file)
            return True
        except (OSError, AttributeError):
            continue
    return False


def _leave_cores(library: ctypes.CDLL) -> None:
    """Give OpenBLAS half of the cores, unless OPENBLAS_NUM_THREADS says otherwise.

    Python builds the next step while MLX's stream computes this one, and OpenBLAS's threads spin while they wait: on
    all cores of a small machine they take the time that the other two need, and a frame gets several times slower.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS"):
        return
    set_threads = getattr(library, "openblas_set_num_threads", None)
    if set_threads is not None:
        set_threads(max(1, (os.cpu_count() or 2) // 2))


def load_openblas() -> str | None:
    """Load OpenBLAS with global symbols and return its path, or None with `why_not()` telling the reason.

    Has an effect only before the first `import mlx`. Never raises; a second call returns the first one's answer.
    """
    global _loaded, _reason
    if _reason != _UNASKED:
        return _loaded
    if not sys.platform.startswith("linux"):
        _reason = "not needed on this platform"
    elif os.environ.get("BREEZE_LAB_BLAS", "").lower() in ("off", "0", "no", "false"):
        _reason = "switched off by BREEZE_LAB_BLAS"
    elif "mlx.core" in sys.modules:
        _reason = "mlx was imported before breeze_lab: import breeze_lab first"
    else:
        named = os.environ.get("BREEZE_LAB_BLAS", "")
        _reason = "no libopenblas that loads: python -m pip install cmeel-openblas, or apt-get install libopenblas0"
        for candidate in _candidates():
            library = _open(candidate)
            if library is not None:
                _leave_cores(library)
                _loaded, _reason = candidate, ""
                break
            if candidate == named:
                _reason = f"{named}, named by BREEZE_LAB_BLAS, did not load as a BLAS: correct it, or unset it"
    return _loaded


def why_not() -> str:
    """Why no OpenBLAS is loaded; empty when one is."""
    return _reason


@lru_cache
def numpys() -> list[tuple[Callable[[], int], Callable[[int], None]]]:
    """What tells and what sets the threads of each OpenBLAS that NumPy uses and MLX does not."""
    from threadpoolctl import ThreadpoolController

    own = Path(_loaded).resolve().name if _loaded else None
    found = []
    for library in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        if Path(library.filepath).resolve().name == own:
            continue
        # Called directly: threadpoolctl lets only one thread of the process set them.
        opened = ctypes.CDLL(library.filepath)
        for before in ("", "scipy_"):
            for after in ("", "64_"):
                names = [f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set")]
                if all(hasattr(opened, name) for name in names):
                    found.append(tuple(getattr(opened, name) for name in names))
    return found


_alone, _before = 0, []
_guard = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """NumPy's BLAS on one thread, for the whole process, until the last of those who are inside leaves.

    OpenBLAS's threads wait for one another in a busy loop. For products as small as a frame's that gains little on
    free cores, and on cores that other programs use too a frame can take ten times as long.
    """
    global _alone, _before
    with _guard:
        if _alone == 0:
            _before = [told() for told, _ in numpys()]
            for _, set_threads in numpys():
                set_threads(1)
        _alone += 1
    try:
        yield
    finally:
        with _guard:
            _alone -= 1
            if _alone == 0:
                for (_, set_threads), count in zip(numpys(), _before, strict=True):
                    set_threads(count)


def openblas_version() -> str | None:
    """OpenBLAS's own description of its build (version, kernel, threads), when it is loaded."""
    if not _loaded:
        return None
    try:
        describe = ctypes.CDLL(_loaded).openblas_get_config
    except (OSError, AttributeError):
        return None
    describe.restype = ctypes.c_char_p
    return describe().decode(errors="replace").strip()


def gflops(m: int = 512, k: int = 1024, n: int = 2048, repeats: int = 3) -> float:
    """Best of `repeats` float32 products [m, k] @ [k, n] on the default device, in GFLOP/s."""
    import mlx.core as mx

    a, b = mx.ones((m, k)), mx.ones((k, n))
    mx.eval(a, b)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        mx.eval(a @ b)
        best = min(best, time.perf_counter() - start)
    return 2 * m * k * n / best / 1e9
