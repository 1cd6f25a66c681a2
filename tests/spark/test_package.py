"""What a cluster is given: complete on its own, and the same bytes from the same sources."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from spark import package
from spark.package import ARCHIVE, JOB, REQUIRED_PINS, REQUIREMENTS, PinMissing, select_pins

pytestmark = pytest.mark.slow


def test_the_archive_runs_without_the_checkout(tmp_path: Path) -> None:
    assert package.main([f"--to={tmp_path}"]) == 0

    for job in ("feed", "reconcile", "replay"):
        run = subprocess.run(
            [sys.executable, str(tmp_path / JOB), job, "--help"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / ARCHIVE), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.startswith(f"usage: python -m spark.{job}")


def test_the_same_sources_give_the_same_bytes_and_only_two_packages(tmp_path: Path) -> None:
    package.build_package(tmp_path)
    first = (tmp_path / ARCHIVE).read_bytes()
    package.build_package(tmp_path)

    assert (tmp_path / ARCHIVE).read_bytes() == first
    names = ZipFile(tmp_path / ARCHIVE).namelist()
    assert {name.partition("/")[0] for name in names} == {"shared", "spark"}
    assert {
        "spark/send/datasource.py",
        "spark/job/log4j2.properties",
        "shared/py.typed",
        "shared/wiring.py",
    } <= set(names)
    assert not [name for name in names if name.startswith("spark/samples/")]
    lines = (tmp_path / REQUIREMENTS).read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == list(REQUIRED_PINS)


def test_a_requirement_without_a_pin_is_named() -> None:
    with pytest.raises(PinMissing, match="does not pin aiohttp, azure-identity"):
        select_pins(["azure-cosmos==1", "azure-servicebus==1", "pydantic==1"])


def test_no_job_is_a_clear_line(tmp_path: Path) -> None:
    package.build_package(tmp_path)

    run = subprocess.run(
        [sys.executable, str(tmp_path / JOB), "dance"], capture_output=True, text=True, check=False
    )

    assert run.returncode == 1
    assert run.stderr.strip() == "name a job: feed, reconcile, replay"
