"""Matrix-Game-2 by its own code: see docs/engines/matrix-game-2.md."""
