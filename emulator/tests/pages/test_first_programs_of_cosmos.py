"""The first programs of docs/cosmos-db.md, those that can be run here, on the sample of README."""

import os
from pathlib import Path

import pytest

from local.testing.cloud import running_cloud
from local.testing.patience import run_patiently
from pages.pages import ROOT, page
from wire.packages import JAVASCRIPT, find_packages, find_program

pytestmark = pytest.mark.wire


def test_the_program_in_javascript_stores_and_reads_an_item(tmp_path: Path) -> None:
    node, packages = find_program("node"), find_packages(JAVASCRIPT)
    (program,) = page("docs/cosmos-db.md").programs("js")
    (tmp_path / "first.mjs").write_text(program)
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")

    with running_cloud("--no-hosts", "--config", str(ROOT / "local.config.json")) as cloud:
        account = cloud.contract["cosmos"]
        given = {"COSMOS_ENDPOINT": account["endpoint"], "COSMOS_KEY": account["key"]}
        ran = run_patiently(
            [node, "first.mjs"], seconds=60, cwd=tmp_path, env={**os.environ, **given}
        )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "one pear\n"
