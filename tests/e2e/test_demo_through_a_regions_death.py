"""`python -m proof.demo` as a stranger runs it: twice over the same data, and interrupted."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from local.testing.cloud import CloudProcess
from local.testing.patience import run_patiently, until, wait_for_end
from proof.testbed.cloud import running_cloud
from tests.spark.conftest import QUICK

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest"
)
AIRCRAFT, FLIGHTS = 10, 15
STATUSES = 2 * AIRCRAFT * FLIGHTS
# A minute of statuses: the region that died has to be back while there is work left for it.
SLOW = str(STATUSES // 60)
# Ten seconds of them: all may be over before the region is back, which the demo says.
QUICK_RATE, FAILOVER_NOT_SHOWN = str(STATUSES // 10), 3
RUN_SECONDS_MAX = 280
END_SECONDS_MAX = 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Ten aircraft that fly all day, and one flight nobody knows the aircraft of."""
    rows = [
        f"2013,1,1,{hour}{10 + plane},{hour}{10 + plane},0,{hour}50,3,UA,{hour},N{plane}UA,EWR,IAH"
        for plane in range(AIRCRAFT)
        for hour in range(5, 5 + FLIGHTS)
    ]
    path = tmp_path / "flights.csv"
    path.write_text("\n".join([HEADER, *rows, "2013,1,1,900,900,0,930,3,UA,7,NA,EWR,IAH"]) + "\n")
    return path


def demo(data: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "proof.demo", "--data", str(data), *words]


def run(data: Path, *words: str, ends: Collection[int] = (0,)) -> str:
    """Run the demo to one of these exit statuses; what it printed."""
    done = run_patiently(
        demo(data, *words), seconds=RUN_SECONDS_MAX, cwd=ROOT, env=os.environ | QUICK
    )
    assert done.returncode in ends, done.stdout + done.stderr
    return done.stdout


def number(printed: str, label: str) -> str:
    found = re.search(rf"^(?:ok)?\s+{label}\s+(.+?)\s*$", printed, re.MULTILINE)
    assert found, printed
    return found[1]


def test_a_short_demo_brings_a_dead_region_back_and_breaks_no_promise(
    tmp_path: Path, source: Path
) -> None:
    printed = run(
        *(tmp_path / "data", "--source", str(source), "--rate", QUICK_RATE),
        ends=(0, FAILOVER_NOT_SHOWN),
    )

    assert "east LOST" in printed
    assert "east is BACK" in printed
    assert "BROKEN" not in printed
    assert number(printed, "effects added") == str(STATUSES)
    assert number(printed, "rejected rows") == "1"


@pytest.mark.proof
def test_a_region_dies_in_mid_flow_and_a_second_run_adds_nothing(
    tmp_path: Path, source: Path
) -> None:
    data = tmp_path / "data"

    first = run(data, "--source", str(source), "--rate", SLOW)
    second = run(data, "--source", str(source), "--rate", "200", "--no-kill")

    assert len(re.findall(r"operations page: http://\S+/api/operate\?code=\S+", first)) == 2
    assert "east LOST" in first
    assert "east is BACK" in first
    assert "BROKEN" not in first + second
    assert number(first, "effects added") == str(STATUSES)
    assert number(first, "rejected rows") == "1"
    assert number(second, "effects added") == "0"
    assert number(second, "effects") == str(STATUSES)
    assert "Every promise held" in (data / "report.html").read_text()

    with running_cloud("--no-hosts", "--data", str(data / "cloud")) as cloud:
        forgotten = forget_an_entry(cloud)
        books = reconciled(cloud, source)

    assert books.returncode == 1, books.stdout + books.stderr
    assert re.findall(r"^[1-9]\d* .+$", books.stdout, re.MULTILINE) == [
        f"{STATUSES} events expected",
        f"{forgotten} missing",
    ]


def forget_an_entry(cloud: CloudProcess) -> int:
    """Take the last entry of one aircraft out of the journal, as no part of the product would.

    The answer is how many messages took effect in it, which is more than one on a busy machine.
    """
    with cloud.open_container() as journal:
        (head,) = journal.query_items(
            "SELECT TOP 1 * FROM c WHERE c.status = 'completed' ORDER BY c.id DESC",
            partition_key="N0UA",
        )
        journal.delete_item(head["id"], partition_key="N0UA")
    return len(head["identities"])


def reconciled(cloud: CloudProcess, source: Path) -> subprocess.CompletedProcess[str]:
    return run_patiently(
        [sys.executable, "-m", "spark.samples.flights.reconcile", "--source", str(source)],
        seconds=RUN_SECONDS_MAX,
        cwd=ROOT,
        env=os.environ | QUICK | {"Cosmos": cloud.cosmos_connection},
    )


@pytest.fixture
def mark() -> Iterator[str]:
    """A word in the environment of every process of a run; none may be left at the end."""
    word = uuid.uuid4().hex
    yield word
    for pid in marked(word):
        os.kill(pid, signal.SIGKILL)


def marked(word: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("words", "moment", "ending"),
    [
        pytest.param(
            ["proof.demo", "--source", "SOURCE"],
            "feed: starting Spark",
            signal.SIGINT,
            marks=pytest.mark.proof,
        ),
        pytest.param(
            ["cli", "up"], "Ctrl-C stops everything", signal.SIGTERM, marks=pytest.mark.proof
        ),
    ],
)
def test_an_interrupted_demo_or_cloud_leaves_no_process(
    tmp_path: Path, source: Path, mark: str, words: list[str], moment: str, ending: signal.Signals
) -> None:
    asked = [word.replace("SOURCE", str(source)) for word in words]
    with subprocess.Popen(
        [sys.executable, "-m", *asked, "--data", str(tmp_path / "data")],
        cwd=ROOT,
        env={**os.environ, "DEMO_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any(moment in line for line in process.stdout)
        assert len(marked(mark)) > 3

        process.send_signal(ending)
        process.stdout.read()
        assert wait_for_end(process, seconds=END_SECONDS_MAX) == 130

    until(lambda: not marked(mark), seconds=END_SECONDS_MAX, what="the end of all processes")
