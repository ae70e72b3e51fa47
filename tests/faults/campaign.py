"""Hurts runs in every way that is known, and counts what was lost, what hung, and what was said.

    python tests/faults/campaign.py --kills=100 --output=faults.md

Each scenario has runs of seconds. It holds where nothing that was promised is lost (the run that goes on ends
as the one that was left alone, to the last bit), nothing hangs, and the message names the cause and the mend.
Run it as root for the scenarios of full and of read-only disks; the others need no rights.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import commands_under_fault as under_fault
from row import Row, table


def main() -> int:
    """Runs the scenarios that are asked for and prints their table; returns 1 where one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="kills of each kind")
    parser.add_argument("--damages", type=int, default=5, help="damages of each kind")
    parser.add_argument("--hang", type=float, default=240, help="seconds after which a command has hung")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and places")
    parser.add_argument("--only", default="", help="names of scenarios, separated by commas")
    parser.add_argument("--output", default="", help="file for the table, too")
    parser.add_argument("--list", action="store_true", help="names of all scenarios, and no more")
    asked = parser.parse_args()
    under_fault.HANG = asked.hang
    under_fault.load()

    import damages
    import kills
    import places
    import processes

    scenarios = {
        **kills.scenarios(asked.kills),
        **damages.scenarios(asked.damages),
        **places.scenarios(),
        **processes.scenarios(),
    }
    if asked.list:
        print("\n".join(scenarios))
        return 0
    wanted = asked.only.split(",") if asked.only else list(scenarios)
    strange = [name for name in wanted if name not in scenarios]
    if strange:
        parser.error(f"no scenario {strange[0]}: there are {', '.join(scenarios)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        for name in wanted:
            began = time.monotonic()
            row = Row(name)
            place = pathlib.Path(folder) / "".join(letter if letter.isalnum() else "-" for letter in name)
            place.mkdir()
            try:
                scenarios[name](place, row, asked.seed)
            except Exception:
                row.bad("the scenario itself failed: " + traceback.format_exc()[-1500:])
            row.seconds = time.monotonic() - began
            rows.append(row)
            print(f"{row.line()}\n" + "".join(f"    {problem}\n" for problem in row.problems), flush=True)
    text = table(rows)
    print(text)
    if asked.output:
        pathlib.Path(asked.output).write_text(text + "\n")
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
