"""The only home of tasks: host, mover, controller, gateway, and the durable stores they write."""
