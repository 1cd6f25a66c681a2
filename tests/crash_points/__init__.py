"""Every call that a use case makes to the store or the bus goes wrong, alone and in pairs."""
