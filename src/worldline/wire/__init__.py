"""How records are written and read, with a limit on everything. Sans-I/O: bytes in, bytes out."""
