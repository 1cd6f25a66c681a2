"""The gate of a feed: each fact goes through the function with which sending makes its message.

Numbers have no gaps, so a fact that sending refuses must not get one. Once it had one, neither it
nor what follows in its session could ever be sent.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.errors import InvalidMessage
from spark.send.rows import build_message

# The number comes after the gate, and the id is derived from it. Any other would be judged alike.
UNNUMBERED = {"sequence": 0, "id": "unnumbered"}


def find_refusal(group: str, body_bytes_max: int) -> Column:
    """The words in which sending would refuse a fact (schemas.FACTS); null if it takes it."""

    def judge(session: str, kind: str, body: str, time: str | None) -> str | None:
        said = {"session": session, "group": group, "type": kind, "body": body, "time": time}
        try:
            build_message(said | UNNUMBERED).require_body_within(body_bytes_max)
        except InvalidMessage as error:
            return str(error)
        return None

    # Arrow, which a cluster may have chosen for such functions, would need pandas.
    return F.udf(judge, "string", useArrow=False)("session", "type", "body", "time")
