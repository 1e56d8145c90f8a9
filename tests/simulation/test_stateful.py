"""The same simulation, driven by hypothesis: it looks for the shortest story that breaks an invariant."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from worldline.schema.ids import HostId, SessionId
from worldline.schema.receipt import Mode
from worldline.testing.simulation import CHANCES, QUIET, Simulation

HOSTS = st.sampled_from(["a", "b", "c", "d"])
SEEDS = st.integers(0, 2**32)
BETWEEN_COMMANDS = {name: 5 * chance for name, chance in CHANCES.items() if name.endswith("-ends")}
ON_THE_WAY = {name: 3 * chance for name, chance in CHANCES.items() if name not in BETWEEN_COMMANDS}
S0 = SessionId("s0")


class Histories(RuleBasedStateMachine):
    """A user, and whatever goes wrong, in any order; at the end all trouble stops and everything must be right."""

    simulation: Simulation

    @initialize(seed=SEEDS, chances=st.sampled_from([QUIET, {**QUIET, **BETWEEN_COMMANDS}, {**QUIET, **ON_THE_WAY}]))
    def begin(self, seed: int, chances: dict[str, float]) -> None:
        self.simulation = Simulation(seed, chances=chances, wishes=())

    @rule(mode=st.sampled_from([Mode.FREEZE, Mode.PRECOPY]), to=HOSTS, hands_over=st.booleans())
    def move(self, mode: Mode, to: str, hands_over: bool) -> None:
        self.simulation.controller.move(S0, mode, HostId(to), hands_over)

    @rule()
    def park(self) -> None:
        self.simulation.controller.move(S0, Mode.PARK, None, hands_over=False)

    @rule(to=HOSTS)
    def resume(self, to: str) -> None:
        self.simulation.controller.move(S0, Mode.RESUME, HostId(to), hands_over=False)

    @rule(seconds=st.sampled_from([0.001, 0.004, 0.01, 0.03, 0.1, 0.5, 2.0]))
    def play(self, seconds: float) -> None:
        self.simulation.go_on(seconds)

    @rule(host=HOSTS)
    def end_host(self, host: str) -> None:
        self.simulation.end_host(self.simulation.hosts[HostId(host)])

    @rule()
    def end_controller(self) -> None:
        if self.simulation.controller.alive:
            self.simulation.controller.end()

    @rule()
    def end_gateway(self) -> None:
        if self.simulation.gateway.alive:
            self.simulation.gateway.end()

    @rule(host=HOSTS, soon_s=st.sampled_from([0.0, 0.005, 0.02]))
    def stop_host(self, host: str, soon_s: float) -> None:
        self.simulation.stop(self.simulation.hosts[HostId(host)], soon_s)

    @rule(soon_s=st.sampled_from([0.0, 0.005, 0.02]))
    def stop_controller(self, soon_s: float) -> None:
        self.simulation.stop(self.simulation.controller, soon_s)

    @rule()
    def drop_link(self) -> None:
        self.simulation.gateway.drop_link(S0)

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.finish()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
