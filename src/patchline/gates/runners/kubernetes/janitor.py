"""The program that has a namespace deleted when its gate is gone: it waits for SIGTERM, and runs one command then.

It is run as a script below the supervisor of a stack's processes, which sends SIGTERM when the gate closes it, and when
the gate dies however it dies. Where the whole host dies, the deadlines of the Jobs are what is left.
"""

from __future__ import annotations

import signal
import subprocess
import sys

_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    print("waiting", flush=True)
    signal.sigwait(_ENDS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)  # a blocked signal stays blocked in what is started
    sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
