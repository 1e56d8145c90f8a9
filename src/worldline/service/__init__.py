"""HTTP, WebSocket, metrics and the page, over the runtime."""
