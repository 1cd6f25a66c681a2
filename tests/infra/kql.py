"""The part of KQL that the alerts use, run over rows: anything else raises ValueError.

A table is a list of rows, and its columns are those that Azure Monitor documents: a column that it
has not is an error, as it is there. Times are in minutes.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

type Row = Mapping[str, Any]
type Value = Callable[[Row], Any]

# https://learn.microsoft.com/azure/azure-monitor/reference/tables-category; those that are asked.
COLUMNS = {
    "AppMetrics": {
        *("TimeGenerated", "Name", "Sum", "ItemCount", "Min", "Max", "Properties"),
        *("AppRoleName", "AppRoleInstance"),
    },
    "_LogOperation": {"TimeGenerated", "Category", "Operation", "Detail", "Level"},
    "CDBPartitionKeyStatistics": {"TimeGenerated", "PartitionKey", "SizeKb", "RegionName"},
}
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d+m|\d+|\w+|==|!=|=~|[|,()./<>=]')
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "=~": lambda left, right: left.lower() == right.lower(),
    # A whole term, in any case.
    "has": lambda left, right: right.lower() in re.findall(r"\w+", left.lower()),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bin": lambda time, width: time // width * width,
    "tostring": lambda value: "" if value is None else str(value),
}
AGGREGATES: dict[str, Callable[[Sequence[Any]], Any]] = {"sum": sum, "max": max}


def run(query: str, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows that a query gives."""
    table, *steps = query.split(" | ")
    columns: Collection[str] = COLUMNS[table]
    rows = list(tables.get(table, ()))
    for step in steps:
        name, _, rest = step.partition(" ")
        reader = Reader(TOKEN.findall(rest), columns)
        if name == "where":
            holds = reader.condition()
            rows = [row for row in rows if holds(row)]
        elif name == "project":
            made = reader.named()
            rows = [{column: value(row) for column, value in made.items()} for row in rows]
            columns = made.keys()
        elif name == "summarize":
            rows = reader.summarize(rows)
            columns = {"Value", "TimeGenerated"}
        else:
            raise ValueError(f"{name} is not among what alerts use")
        reader.end()
    return rows


@dataclass
class Reader:
    """Reads the words of one step, the first ones first."""

    words: list[str]
    columns: Collection[str]
    aggregated: Sequence[Row] | None = None

    def take(self, *expected: str) -> str:
        word = self.words.pop(0) if self.words else ""
        if expected and word not in expected:
            raise ValueError(f"{word!r} stands where one of {expected} is expected")
        return word

    def at(self, *words: str) -> bool:
        return self.words[:1] != [] and self.words[0] in words

    def end(self) -> None:
        if self.words:
            raise ValueError(f"{' '.join(self.words)!r} is left over")

    def condition(self) -> Value:
        parts = [self.comparison()]
        while self.at("and"):
            self.take("and")
            parts.append(self.comparison())
        return lambda row: all(part(row) for part in parts)

    def comparison(self) -> Value:
        left, compare, right = (
            self.quotient(),
            COMPARISONS[self.take(*COMPARISONS)],
            self.quotient(),
        )
        return lambda row: compare(left(row), right(row))

    def quotient(self) -> Value:
        left = self.single()
        if not self.at("/"):
            return left
        self.take("/")
        right = self.single()
        return lambda row: left(row) / right(row)

    def single(self) -> Value:
        word = self.take()
        if word.startswith('"'):
            return lambda _: word[1:-1]
        if word.rstrip("m").isdecimal():
            return lambda _: int(word.rstrip("m"))
        if self.at("("):
            return self.call(word)
        if word not in self.columns:
            raise ValueError(f"there is no column {word!r}")
        if self.at("."):
            self.take(".")
            key = self.take()
            return lambda row: row[word].get(key)
        return lambda row: row[word]

    def call(self, name: str) -> Value:
        arguments = []
        self.take("(")
        while not self.at(")"):
            arguments.append(self.quotient())
            if not self.at(")"):
                self.take(",")
        self.take(")")
        if name in AGGREGATES and self.aggregated is not None:
            group, (argument,) = self.aggregated, arguments
            return lambda _: AGGREGATES[name]([argument(row) for row in group])
        function = FUNCTIONS[name]
        return lambda row: function(*(argument(row) for argument in arguments))

    def named(self) -> dict[str, Value]:
        """`Column, Column = value`."""
        found: dict[str, Value] = {}
        while self.words:
            name = self.words[0]
            if self.words[1:2] == ["="]:
                self.words = self.words[2:]
            found[name] = self.quotient()
            if self.words:
                self.take(",")
        return found

    def summarize(self, rows: Sequence[Row]) -> list[Row]:
        """`Value = aggregates by bin(TimeGenerated, 5m)`: one row for each bin."""
        place = self.words.index("by")
        by = Reader(self.words[place + 1 :], self.columns)
        key, words = by.quotient(), self.words[:place]
        by.end()
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        # Of no rows, too, it is read, or a query with an error would be quiet.
        made = {}
        for time, group in groups.items() or [(None, [])]:
            reader = Reader(list(words), self.columns, group)
            (value,) = reader.named().values()
            made[time] = value(group[0]) if group else None
        self.words = []
        return [{"TimeGenerated": time, "Value": made[time]} for time in groups]
