"""The ends of tasks of several writes come by one accumulator, and each driver hears of its own."""

from typing import Any, cast

from pyspark import Accumulator, SparkContext

from spark.job.progress import TaskProgress, TaskReports


class Application:
    """A Spark context as far as accumulators are made by it."""

    def accumulator(self, value: Any, param: Any) -> Accumulator[Any]:
        return Accumulator(2**40, value, param)


def test_of_two_writes_at_the_same_time_each_hears_of_its_own_tasks_until_it_is_over() -> None:
    context = cast("SparkContext", Application())
    one, other = (TaskReports(context, listens=False) for _ in range(2))
    assert one.ends is other.ends

    for reports, partition, rows in ((one, 0, 3), (other, 0, 5), (one, 1, 4), (one, 1, 4)):
        task = TaskProgress(None, reports.address)
        task.partition = partition
        task.finish(rows, reports.ends)

    assert (one.ended, other.ended) == ({0: 3, 1: 4}, {0: 5})
    assert (one.count_rows(), other.count_rows()) == (7, 5)
    one.close()
    assert (one.ended, other.ended) == ({}, {0: 5})
    other.close()
    assert other.ends.value == {}


def test_rows_of_a_task_that_has_ended_count_and_not_what_was_last_heard_of_it() -> None:
    reports = TaskReports(cast("SparkContext", Application()), listens=False)
    reports.rows = {0: 2, 1: 1}
    TaskProgress(None, reports.address).finish(3, reports.ends)
    assert reports.count_rows() == 4
