"""Cosmos SQL, the language of queries: what a text means for one item, whatever holds the items."""
