"""A mapped file that is cut off is one line, whoever reads it; of other memory, and for whoever sends it, the signal does what it did."""

import subprocess
import sys
import textwrap

import pytest

HEAD = """
    import _thread, ctypes, faulthandler, mmap, os, signal, sys, threading, time
    import numpy as np
    from hoptrain.engine import InputError, Dataset
    from hoptrain.engine.files.cut_files import watch_maps

    def mapped(name, number=1 << 20):
        np.save(name, np.ones(number, np.int64))
        return np.load(name, mmap_mode="r")

    def tried(function):
        try:
            function()
        except InputError as error:
            print(error)
        else:
            print("nothing")
"""
ENDS = "ends at byte 40,000, and what stands behind byte {:,} was read: it was cut off while it was in use; copy it again"


def run(tmp_path, script):
    (tmp_path / "script.py").write_text(textwrap.dedent(HEAD) + textwrap.dedent(script))
    return subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


READS = {
    "numpy": "array[600_000]",
    "numpy, many": "np.take(array, np.arange(500_000, 600_000))",
    "a kernel": "kernels.gather_rows(array.reshape(-1, 1).view(np.uint64), np.array([600_000]), 0, 1, np.empty((1, 1), np.uint64))",
    "a thread": "in_threads(1)",
    "threads": "in_threads(8)",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_file_that_is_cut_off_is_one_line_again_and_again(tmp_path, read):
    done = run(
        tmp_path,
        f"""
    from hoptrain.kernels.cpu import gather as kernels
    array = mapped("a.npy")
    watch_maps()

    def in_threads(number):  # each may meet it, and the main thread is told as often: here it lets others run only where it listens
        done, errors = threading.Event(), []

        def read_in_all():
            threads = [threading.Thread(target=array.sum) for _ in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            done.set()

        _thread.start_new_thread(read_in_all, ())
        while not done.is_set():
            try:
                time.sleep(0.01)
            except InputError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    {read}
    os.truncate("a.npy", 40_000)
    print(int(array[:4000].sum()))
    for _ in range(3):
        tried(lambda: {read})
    print(int(array[:4000].sum()))
    """,
    )
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert first == last == "4000"
    assert len(lines) == 3
    for line in lines:
        path, _, rest = line.partition(" ")
        assert path == f"{tmp_path}/a.npy"
        byte = int(rest.split("behind byte ")[1].split(" ")[0].replace(",", ""))
        assert rest == ENDS.format(byte)
        assert 40_000 <= byte <= 600_016 * 8


@pytest.mark.parametrize("mend", ["", 'os.remove("a.npy")'])
def test_it_is_an_error_also_where_nobody_reads_in_the_main_thread(tmp_path, mend):
    done = run(
        tmp_path,
        f"""
    array = mapped("a.npy")
    watch_maps()
    os.truncate("a.npy", 40_000)
    {mend}
    threading.Timer(0.5, lambda: array[600_000]).start()  # one read: what goes on reading is found out again while the main thread prints
    tried(lambda: time.sleep(60))
    """,
    )
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/a.npy " in done.stdout
    assert ("its device has failed" if mend else "was cut off while it was in use") in done.stdout


@pytest.mark.parametrize(
    "opener", ["watch_maps()", 'Dataset(x=np.zeros((3, 2), np.float32), edge_index=np.zeros((2, 1), int)).save("d"); Dataset.open("d")']
)
@pytest.mark.parametrize("reports", ["", "faulthandler.enable();"])
@pytest.mark.parametrize(
    "what",
    [
        "os.kill(os.getpid(), signal.SIGBUS); time.sleep(60)",
        # shared memory that is written, whose file ends before
        'f = os.memfd_create("m"); os.ftruncate(f, 8192); m = mmap.mmap(f, 8192); os.ftruncate(f, 0); m[0]',
    ],
    ids=["sent", "memory"],
)
def test_of_other_memory_and_of_a_sender_it_ends_the_process_as_before(tmp_path, opener, reports, what):
    done = run(tmp_path, f"{reports} {opener}; print('watching', flush=True); {what}; print('it lives')")
    assert done.returncode == -7
    assert done.stdout == "watching\n"
    assert ("Fatal Python error: Bus error" in done.stderr) == bool(reports)


def test_a_handler_of_the_users_stays(tmp_path):
    done = run(
        tmp_path,
        """
    signal.signal(signal.SIGBUS, lambda *_: print("mine"))
    watch_maps()
    os.kill(os.getpid(), signal.SIGBUS)
    """,
    )
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr


def test_it_is_put_back_where_a_report_of_crashes_took_its_place(tmp_path):
    done = run(
        tmp_path,
        """
    array = mapped("a.npy")
    watch_maps()
    faulthandler.enable()
    faulthandler.disable()
    watch_maps()
    watch_maps()
    os.truncate("a.npy", 40_000)
    tried(lambda: array.sum())
    """,
    )
    assert done.returncode == 0, done.stderr
    assert "it was cut off while it was in use" in done.stdout
