"""A world in sixty lines: clouds that drift, from a window of eight frames that a small network looks back on."""

import numpy as np
import torch

from worldline.errors import BadValue
from worldline.schema.inventory import Free, Kind, Ring, Rule
from worldline.worlds.module_weights import digest_weights, draw_weights
from worldline.worlds.protocol import Readout

WINDOW, SIDE = 8, 32


class DriftLive:
    rules = (
        Rule("window", Kind.CACHE, Ring(dim=0, slot=1)),  # a block writes one frame of it, and no other byte
        Rule("*", Kind.AUX, Free()),
    )

    def __init__(self, net, window, frame, chance):
        self.net, self.window, self.frame, self.chance = net, window, frame, chance

    @torch.no_grad()
    def step(self, action):
        if not 0 <= action < 5:
            raise BadValue(f"the drift world has the actions 0 to 4, not {action}")  # before anything has changed
        seen = self.window.roll(-self.frame, 0)[None]  # oldest first
        wind = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)][action]
        fresh = torch.randn(SIDE, SIDE, generator=self.chance)  # the session's own generator, never the global one
        cloud = torch.tanh(self.net(seen)[0, 0].roll(wind, (0, 1)) + fresh / 4)
        self.window[self.frame % WINDOW].copy_(cloud)  # in place: the tensor lies in the session's memory
        self.frame += 1
        grey = ((cloud + 1) * 127.5).to(torch.uint8).numpy()
        return np.repeat(grey[None, :, :, None], 3, axis=3)

    def state(self):
        return {"window": self.window, "frame": self.frame, "chance": self.chance}


class DriftWorld:
    name = "drift"
    actions = ("stay", "west", "east", "north", "south")
    readout = Readout("image", 1, SIDE, SIDE)
    state_bytes_max = 4 * WINDOW * SIDE * SIDE + 64 * 1024

    def __init__(self, options):
        if options:
            raise BadValue("the drift world has no options")
        with torch.random.fork_rng(devices=[]):  # building a module draws from the process's generator
            self.net = torch.nn.Conv2d(WINDOW, 1, 3, padding=1)
        draw_weights(self.net, seed=1)

    def facts(self):
        return {"weights": digest_weights(self.net)}

    def open(self, seed, memory):
        window = memory.zeros("window", (WINDOW, SIDE, SIDE), torch.float32)
        return DriftLive(self.net, window, 0, torch.Generator().manual_seed(seed))

    def restore(self, tree, memory):
        return DriftLive(self.net, tree["window"], tree["frame"], tree["chance"])
