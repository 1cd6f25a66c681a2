"""Build what a cluster needs: `python -m spark.package --help`.

The same sources give the same bytes, so an archive only changes when the code has changed.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE, JOB, REQUIREMENTS = "lockstep.zip", "lockstep_job.py", "requirements.txt"
PACKAGES = ("shared", "spark")
# A business of its own over the jobs, which no cluster needs.
SAMPLES = ROOT / "spark" / "samples"
SUFFIXES = (".html", ".properties", ".py", ".typed")
# What driver and executors import, apart from what the platform provides (pyspark and pyarrow).
REQUIRED_PINS = ("aiohttp", "azure-cosmos", "azure-identity", "azure-servicebus", "pydantic")
# The earliest time that a zip file can store.
EPOCH = (1980, 1, 1, 0, 0, 0)

JOB_TEXT = '''\
"""spark-submit --py-files lockstep.zip lockstep_job.py JOB ...; the jobs are below."""

import importlib
import sys

JOBS = ("feed", "reconcile", "replay", "archive", "backtest")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit(f"name a job: {', '.join(JOBS)}")
    status = importlib.import_module(f"spark.{sys.argv[1]}").main(sys.argv[2:])
    if status:
        sys.exit(status)
'''


class PinMissing(Exception):
    """A requirement of the cluster is not pinned in requirements.txt."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m spark.package", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "spark", metavar="DIR")
    folder: Path = parser.parse_args(arguments).to
    folder.mkdir(parents=True, exist_ok=True)
    build_package(folder)
    sys.stdout.writelines(f"{folder / name}\n" for name in (ARCHIVE, JOB, REQUIREMENTS))
    return 0


def build_package(folder: Path) -> None:
    pins = select_pins((ROOT / "requirements.txt").read_text().splitlines())
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*")]
    # An app's handlers import this one, which a backtest loads.
    files.append(ROOT / "lockstep.py")
    shipped = (file for file in files if SAMPLES not in file.parents)
    with ZipFile(folder / ARCHIVE, "w", ZIP_DEFLATED) as archive:
        # In the same order on every machine.
        for file in sorted(file for file in shipped if file.suffix in SUFFIXES):
            info = ZipInfo(file.relative_to(ROOT).as_posix(), EPOCH)
            info.compress_type = ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, file.read_bytes())
    (folder / JOB).write_text(JOB_TEXT)
    (folder / REQUIREMENTS).write_text("\n".join(pins) + "\n")


def select_pins(lines: Sequence[str]) -> list[str]:
    """The lines of requirements.txt that a cluster needs; raises PinMissing."""
    pins = {line.partition("==")[0]: line for line in lines if "==" in line}
    if missing := [name for name in REQUIRED_PINS if name not in pins]:
        raise PinMissing(f"requirements.txt does not pin {', '.join(missing)}")
    return [pins[name] for name in REQUIRED_PINS]


if __name__ == "__main__":
    sys.exit(main())
