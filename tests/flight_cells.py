"""The cells of a flight in a table of flights: N14228 from Newark to Houston, on New Year's Day."""

ON_TIME = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "arr_time": "830",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
}
CANCELLED = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None}
