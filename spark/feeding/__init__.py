"""Feed a DataFrame from code of your own; the command line goes the same way.

feed(df, mapping, FeedConfig(group="bank", manifest="fed/bookings"))
"""

from spark.feeding.config import ChangeLimit, ChangePolicy, DeletedPolicy, FeedConfig
from spark.feeding.dataframe import FeedResult, feed, select_unfed

__all__ = [
    "ChangeLimit",
    "ChangePolicy",
    "DeletedPolicy",
    "FeedConfig",
    "FeedResult",
    "feed",
    "select_unfed",
]
