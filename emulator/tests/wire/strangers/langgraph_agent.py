"""Agents of LangGraph, whose states langgraph-checkpoint-cosmosdb keeps in Cosmos DB.

Told the account by COSMOSDB_ENDPOINT and COSMOSDB_KEY; prints what two agents, one after the other,
made of two threads, and what is left when one is deleted and the other pruned.
"""

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph_checkpoint_cosmosdb import CosmosDBSaver


class Flight(TypedDict):
    legs: Annotated[list[str], operator.add]


def fly_on(flight: Flight) -> Flight:
    return {"legs": [f"leg {len(flight['legs'])}"]}


def make_agent() -> Any:
    plan = StateGraph(Flight)
    plan.add_node("fly", fly_on)
    plan.add_edge(START, "fly")
    plan.add_edge("fly", END)
    return plan.compile(checkpointer=CosmosDBSaver("agents", "states"))


def main() -> None:
    threads: list[Any] = [{"configurable": {"thread_id": name}} for name in ("one", "two")]
    for agent in (make_agent(), make_agent()):  # the second finds what the first one left
        for number, thread in enumerate(threads):
            agent.invoke({"legs": [f"from {number}"]}, thread)
    print("states", [agent.get_state(thread).values["legs"] for thread in threads])
    history = agent.get_state_history(threads[0])
    print("history", [len(state.values.get("legs", [])) for state in history])
    agent.checkpointer.delete_thread("one")
    agent.checkpointer.prune(["two"])  # all but the newest
    print("left", [len(list(agent.checkpointer.list(thread))) for thread in threads])


main()
