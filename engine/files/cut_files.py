"""A mapped file that is cut off while it is in use, or whose device fails: one line in place of the signal (SIGBUS) that ends the process.

A read of what is not there goes on with zeros, and the main thread gets an ``InputError`` before it runs another line of Python. (Another thread
that read has the zeros meanwhile.) The next read is found out again, since the file is mapped anew by then.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

from hoptrain.engine.errors import InputError


class _Action(ctypes.Structure):
    """``struct sigaction``."""

    _fields_ = (("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p))


class _Map(NamedTuple):
    """The part of a mapped file from a page on that is not there: addresses, the file, where in it the part begins, and what is wrong with it."""

    begin: int
    end: int
    path: str
    offset: int
    line: str


_SA_SIGINFO, _MAP_FIXED = 4, 16
_CODE, _ADDRESS = 8, 16  # bytes into siginfo_t
_TELLS = 59
"""The signal by which the main thread is told, of those for any purpose: Python's own handler of it waits for the interpreter's next line."""
_libc = ctypes.PyDLL(None)  # it keeps the interpreter's lock: what is mapped and what is noted go together
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_before = _Action()
"""What was done about the signal before."""
_missing: list[_Map] = []
"""Where zeros are mapped for now."""
_num_changes = 0
"""How often what is mapped there was changed, to zeros or back."""


def watch_maps() -> None:
    """From now on read-only maps of files are watched; of other memory the signal does what it did. Not beside somebody's own Python handler of it.

    Calls but the first do nothing, and so do those of other threads than the main one, which alone may say what a signal does.
    """
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGBUS) not in (signal.SIG_DFL, None) or signal.getsignal(_TELLS) not in (signal.SIG_DFL, _raise):
        return
    now, ours = _Action(), ctypes.cast(_on_signal, ctypes.c_void_p).value
    _libc.sigaction(signal.SIGBUS, None, ctypes.byref(now))
    if now.handler == ours:
        return
    signal.signal(_TELLS, _raise)
    ctypes.pointer(_before)[0] = now
    action = _Action(handler=ours, flags=_SA_SIGINFO)
    action.mask[0] = 1 << (_TELLS - 1)
    _libc.sigaction(signal.SIGBUS, ctypes.byref(action), None)


def _find_out(number: int, info: int, _: int) -> None:
    """In the thread that read. It stands at the instruction that did, which is run again afterwards."""
    global _num_changes
    address, changes = ctypes.c_size_t.from_address(info + _ADDRESS).value, _num_changes
    is_of_memory = ctypes.c_int.from_address(info + _CODE).value > 0
    found = _map_at(address) if is_of_memory else None
    if found is None and is_of_memory and (changes != _num_changes or any(own.begin <= address < own.end for own in _missing)):
        return  # another thread met the same end, or it was mended since: see how it is now
    if found is None:
        _libc.sigaction(number, ctypes.byref(_before), None)
        if not is_of_memory:
            os.kill(os.getpid(), number)
        return
    _num_changes += 1
    _missing.append(found)
    _libc.mmap(found.begin, found.end - found.begin, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1, 0)
    signal.pthread_kill(threading.main_thread().ident or 0, _TELLS)  # in the main thread it is kept back until this has returned


_on_signal = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_find_out)


def _map_at(address: int) -> _Map | None:
    """What is mapped from the page of ``address`` on; None if that is no read-only map of a file."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(end, 16) for end in fields[0].split("-"))
            if first <= address < last:
                break
        else:
            return None
    if len(fields) < 6 or fields[1][:2] != "r-" or not fields[5].startswith("/") or fields[5].startswith("/memfd:"):
        return None
    begin = address // mmap.PAGESIZE * mmap.PAGESIZE
    offset, path = begin - first + int(fields[2], 16), fields[5].removesuffix(" (deleted)")
    what = f"cannot be read at byte {offset:,}: its device has failed; look at the system's log (dmesg), or copy it anew"
    with suppress(OSError):
        if (size := os.stat(path).st_size) <= offset:
            what = (
                f"ends at byte {size:,}, and what stands behind byte {offset:,} was read: it was cut off while it was in use; copy it again"
            )
    return _Map(begin, last, path, offset, f"{path} {what}")


def _raise(number: int, frame: FrameType | None) -> None:
    """In the main thread: map what there is of the files again, and say what is wrong, once."""
    global _num_changes
    while frame is not None:
        if frame.f_code is _find_out.__code__:  # for another thread; an exception would be lost there
            signal.pthread_kill(threading.get_ident(), number)
            return
        frame = frame.f_back
    if not _missing:  # told already, where several threads met the same end; or somebody else's signal
        return
    line = _missing[0].line
    while _missing:
        own = _missing[-1]
        with suppress(OSError):  # of a file that is gone the zeros stay
            file = os.open(own.path, os.O_RDONLY | os.O_CLOEXEC)
            _libc.mmap(own.begin, own.end - own.begin, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, file, own.offset)
            os.close(file)
        _missing.remove(own)
        _num_changes += 1  # who saw the zeros, and hears of it only now, looks again
    raise InputError(line)
