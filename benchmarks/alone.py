"""`python -m benchmarks.alone ROWS`: compiles, waits for a line, prints the milliseconds of a bare gradient."""

import sys
import time

import ptx
from benchmarks import targets
from benchmarks.gradients import bare_run


def main() -> None:
    """Run it."""
    target = ptx.lower(targets.model(), targets.digits(int(sys.argv[1])))
    run = bare_run(target, None)
    run()
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    count = sum(run() for _ in range(8))
    print(1e3 * (time.perf_counter() - begun) / count)


if __name__ == "__main__":
    main()
