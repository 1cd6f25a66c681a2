"""Every call that the engine makes to the store or the bus goes wrong, alone and in pairs."""
