"""Both regions in virtual time: processes, brokers, the store, and those who send."""
