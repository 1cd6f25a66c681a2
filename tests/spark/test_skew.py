"""One session with a third of all rows: it stays whole and in order, and the others do not wait."""

import pytest
from pyspark.sql import SparkSession

from spark.schemas import EVENTS
from spark.send.arranging import RUN_EVENTS, arrange_in_runs

pytestmark = pytest.mark.spark

DEEP, OTHERS, EACH = 600, 14, 100


def test_a_deep_session_takes_turns_with_the_others(spark: SparkSession) -> None:
    sessions = {"deep": DEEP} | {f"s{n:02}": EACH for n in range(OTHERS)}
    rows = [
        (session, "g", n, "t", "{}", f"{session}-{n}", None)
        for session, count in sessions.items()
        for n in reversed(range(count))
    ]

    lanes = arrange_in_runs(spark.createDataFrame(rows, EVENTS), 2).rdd.glom().collect()

    sent = [[(row["session"], row["sequence"]) for row in lane] for lane in lanes]
    assert sorted(place for lane in sent for place in lane) == sorted((r[0], r[2]) for r in rows)
    for lane in sent:
        for session in {session for session, _ in lane}:
            mine = [number for name, number in lane if name == session]
            assert mine == list(range(sessions[session]))
    deep = next(lane for lane in sent if ("deep", 0) in lane)
    others_end = max(place for place, (session, _) in enumerate(deep) if session != "deep")
    before = sum(1 for session, _ in deep[:others_end] if session == "deep")
    assert before <= EACH + RUN_EVENTS
