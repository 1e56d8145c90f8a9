"""One file a command, over the library."""
