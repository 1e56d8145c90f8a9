"""The data plane: memory, shared memory and TCP behind one small interface. Never what a session is."""
