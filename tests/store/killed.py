"""A process that runs or resumes a stored run and kills itself: `python killed.py DIRECTORY ENGINE WHEN AT`.

WHEN is `operation`, AT the number of a file operation; or `seconds`, AT the time from the start of the run.
"""

import sys
import threading
import warnings

from store import faults, runs


def main(directory, name, when, at):
    """Run to the end unless killed before."""
    warnings.simplefilter("ignore")
    runs.save_always()
    if when == "seconds":
        timer = threading.Timer(float(at), faults.kill)
        timer.daemon = True
        timer.start()
        runs.go_on(directory, runs.ENGINES[name])
        return
    with faults.operations(int(at), faults.kill, synced=True):
        runs.go_on(directory, runs.ENGINES[name])


if __name__ == "__main__":
    main(*sys.argv[1:])
