"""Leaving at once, also where a tool that was given up still runs in its thread."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Collection

GRACE = 0.5  # seconds for threads that are about to end


def threads() -> frozenset[threading.Thread]:
    """Give the threads that keep the process alive."""
    return frozenset(thread for thread in threading.enumerate() if not thread.daemon)


def leave(code: int, before: Collection[threading.Thread]) -> int:
    """Give the code back, or end the process where a thread that came since would keep it waiting."""
    end = time.monotonic() + GRACE
    for thread in threads() - frozenset(before):
        if thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    return code
