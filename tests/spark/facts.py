"""Facts about accounts: small, and easy to tell apart."""

import hashlib

from pyspark.sql import DataFrame, SparkSession

from spark.feeding.judging import classify_facts
from spark.schemas import FACTS, PLAN

type Fact = tuple[str, str, list[str], str, str, str | None, str | None]
type Bound = tuple[object, ...]

GROUP = "bank"
TYPE = "account.add"
NEVER_FED: list[Bound] = []


def fact(session: str, key: str, place: str, amount: int, version: str | None = None) -> Fact:
    """A fact that an account was booked an amount."""
    return (session, key, [place], TYPE, f'{{"amount":{amount}}}', None, version)


def bound(stated: Fact, sequence: int) -> Bound:
    """A fact as a plan binds it, with id and digest worked out independently."""
    session, key, place, kind, body, time, version = stated
    identity = hashlib.sha256(f"{GROUP}\n{session}\n{sequence}".encode()).hexdigest()[:32]
    digest = hashlib.sha256(f"{kind}\0{body}".encode()).hexdigest()
    return (session, GROUP, sequence, kind, body, identity, time, key, place, digest, version)


def stood(spark: SparkSession, facts: list[Fact], fed: list[Bound]) -> DataFrame:
    """Facts held against what was fed."""
    return classify_facts(spark.createDataFrame(facts, FACTS), spark.createDataFrame(fed, PLAN))
