"""Two processes between which engines move the same bytes in turns: ours, plain sockets, and peers."""
