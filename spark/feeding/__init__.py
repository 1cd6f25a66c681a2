"""Feed a DataFrame from code of your own; the command line goes the same way.

feed(df, mapping, FeedConfig(group="bank", manifest="fed/bookings"))
"""

from spark.feeding.dataframe import FeedConfig, FeedResult, feed, select_unfed
from spark.feeding.incremental import ChangeLimit, ChangePolicy

__all__ = ["ChangeLimit", "ChangePolicy", "FeedConfig", "FeedResult", "feed", "select_unfed"]
