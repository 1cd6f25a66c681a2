"""Write a DataFrame of numbered events: `df.write.format("lockstep")`."""

from spark.job.settings import with_settings
from spark.send.arranging import arrange_in_event_order, arrange_in_runs
from spark.send.datasource import LockstepDataSource
from spark.send.observed import observe_sending

__all__ = [
    "LockstepDataSource",
    "arrange_in_event_order",
    "arrange_in_runs",
    "observe_sending",
    "with_settings",
]
