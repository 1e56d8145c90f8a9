"""The models a file of cases may name, and what each computes from a case's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from worldline.capacity import admission, edf, precopy, rewriting, timeline
from worldline.capacity.cases import Answer, Formula, Inputs
from worldline.capacity.domain import EXACT_MAX, Real
from worldline.capacity.engset import Engset, engset, engset_offered
from worldline.capacity.erlang import Service, erlang_b, erlang_b_load, erlang_b_servers, erlang_c, queue, staff
from worldline.capacity.finite_source import Sources, present_pmf, response_tail, stationary, wait_tail
from worldline.capacity.fixed_service import Thinkers, fixed_wait_tail, response_s, throughput_per_s
from worldline.capacity.gate import Demand, Fabric, Way, judge, lane_fan_in
from worldline.capacity.occupancy import (
    EXACT_BITS_MAX,
    mean_writes_to_touch_all,
    occupancy,
    occupancy_exact,
    occupancy_pmf,
    writes_to_touch_all,
)
from worldline.capacity.pipeline import makespan_s, pipeline_s, stage_totals_s
from worldline.capacity.prewarm import warm_buffer
from worldline.capacity.priorities import audsley, meets_deadlines, responses
from worldline.capacity.reclaim import Mix, Shortage, devices_needed
from worldline.capacity.sessions import Lanes, Law, Metric, Promise, sessions_max
from worldline.capacity.setup_queue import setup_response_s
from worldline.capacity.tasks import Task, Ticks, Time
from worldline.errors import BadValue

EXACT_SERVERS = 200
"""Up to here a load given as a string is computed in fractions."""


# ---------------------------------------------------------------------------------------------------------- queues


def _erlang_b(given: Inputs) -> Answer:
    servers = given.whole("c")
    return erlang_b(servers, given.exact("A")) if servers <= EXACT_SERVERS else erlang_b(servers, given.number("A"))


def _erlang_c(given: Inputs) -> Answer:
    servers = given.whole("c")
    return erlang_c(servers, given.exact("A")) if servers <= EXACT_SERVERS else erlang_c(servers, given.number("A"))


def _erlang_b_servers(given: Inputs) -> Answer:
    if given.number("A") <= EXACT_SERVERS:
        return erlang_b_servers(given.exact("A"), given.exact("p"))
    return erlang_b_servers(given.number("A"), given.number("p"))


def _staffing(given: Inputs) -> Answer:
    rate = given.number("transactions") / given.number("interval")
    promise = Service(given.number("asa"), given.number("service_level"), given.number("max_occupancy"))
    found = staff(rate, 1 / given.number("aht"), promise)
    return {
        "raw_positions": found.servers,
        "waiting_probability": found.waiting_chance,
        "service_level": 1 - found.wait_tail(promise.wait_s),
        "occupancy": found.occupancy,
    }


def _mmc(given: Inputs) -> Answer:
    found = queue(given.whole("c"), given.number("lam"), given.number("mu"))
    return {"W": found.response_s, "Wq": found.wait_s, "L": found.present, "Lq": found.waiting}


def _engset(given: Inputs) -> Answer:
    sources, servers = given.whole("N"), given.whole("c")
    if servers <= EXACT_SERVERS:
        return _congestions(engset(sources, servers, given.exact("a_idle")))
    return _congestions(engset(sources, servers, given.number("a_idle")))


def _congestions(found: Engset[Real]) -> Answer:
    return {
        "time_congestion": found.time_congestion,
        "call_congestion": found.call_congestion,
        "traffic_congestion": found.traffic_congestion,
        "carried": found.carried,
    }


def _engset_offered(given: Inputs) -> Answer:
    sources = given.whole("N")
    if sources == 0:
        return {"P": 0.0}
    return {"P": engset_offered(sources, given.whole("c"), given.number("total_offered") / sources)}


def _finite_source(given: Inputs) -> Answer:
    count, lanes = given.whole("N"), given.whole("c")
    sources = Sources(count, lanes, given.number("nu"), given.number("mu"))
    if count <= EXACT_SERVERS:
        answer = _averages(Sources(count, lanes, given.exact("nu"), given.exact("mu")))
    else:
        answer = _averages(sources)
    if given.has("t_wait"):
        answer["P_W_gt_t"] = wait_tail(sources, given.number("t_wait"))
    if given.has("t_resp"):
        answer["P_R_gt_t"] = response_tail(sources, given.number("t_resp"))
    return answer


def _averages(sources: Sources[Real]) -> dict[str, Answer]:
    found = stationary(sources)
    return {
        "p0": found.nobody,
        "L": found.present,
        "Lq": found.waiting,
        "X": found.throughput_per_s,
        "util": found.utilization,
        "R": found.response_s,
        "Wq": found.wait_s,
        "P_wait": found.waiting_chance,
        "p": present_pmf(sources),
        "loss_machines": found.waiting / max(sources.count, 1),
        "loss_repairmen": 1 - found.utilization,
    }


def _peck_hazelwood(given: Inputs) -> Answer:
    """The tables' X is the share of time a machine would need service: a = X / (1 - X)."""
    service_share = given.exact("X")
    if not 0 <= service_share < 1:
        raise BadValue(f"X must be from 0 to below 1, and is {service_share}")
    sources = Sources(given.whole("N"), given.whole("M"), service_share / (1 - service_share), Fraction(1))
    found = stationary(sources)
    return {"D": found.waiting_chance, "F": 1 - found.waiting / max(sources.count, 1)}


def _fixed_service(given: Inputs) -> Answer:
    thinkers = Thinkers(given.whole("N"), given.number("Z"), given.number("D"))
    return {
        "P_W_gt_t": fixed_wait_tail(thinkers, given.number("t")),
        "X": throughput_per_s(thinkers),
        "R": response_s(thinkers),
    }


def _kstar(given: Inputs) -> Answer:
    def most(law: Law, metric: Metric) -> int:
        promise = Promise(given.number("slo"), given.number("eps"), metric)
        return sessions_max(given.number("Z"), Lanes(given.number("s"), law), promise)

    return {
        "exp_wait": most(Law.EXPONENTIAL, Metric.WAIT),
        "exp_response": most(Law.EXPONENTIAL, Metric.RESPONSE),
        "det_wait": most(Law.FIXED, Metric.WAIT),
        "det_response": most(Law.FIXED, Metric.RESPONSE),
    }


def _setup(given: Inputs) -> Answer:
    rates = (given.number("lam"), given.number("mu"), given.number("alpha"))
    return {"ET": setup_response_s(given.whole("k"), *rates)}


# ----------------------------------------------------------------------------------------------------- real time


def _tasks(given: Inputs, name: str) -> list[Task]:
    rows = given.table(name)
    if any(len(row) not in (3, 4) for row in rows):
        raise BadValue(f"{name} are rows of cost, period, deadline and perhaps jitter")
    return [Task(*row) for row in rows]


def _worst(tasks: list[Task], time: Time = Time.WHOLE) -> list[Ticks | None]:
    return [None if found is None else found.worst for found in responses(tasks, time)]


def _fixed_priority(given: Inputs) -> Answer:
    tasks = _tasks(given, "tasks_CTDJ_priority_order")
    found = responses(tasks, Time.WHOLE)
    first = [None if one is None else one.first for one in found]
    return {
        "R_integer_time": _worst(tasks),
        "R_continuous": _worst(tasks, Time.CONTINUOUS),
        "R_q_integer": [None if one is None else one.instances for one in found],
        "n_instances": [None if one is None else len(one.instances) for one in found],
        "naive_first_instance_integer": first,
        "R_from_arrival_pyRTA": [None if one is None else one.from_arrival for one in found],
        "schedulable_integer": meets_deadlines(tasks, Time.WHOLE),
        "naive_schedulable": [one is not None and one <= task.deadline for one, task in zip(first, tasks, strict=True)],
    }


def _orders(given: Inputs) -> Answer:
    tasks = _tasks(given, "tasks_dm")
    order = audsley(tasks, Time.WHOLE)
    return {
        "dm_R": _worst(tasks),
        "dm_schedulable": all(meets_deadlines(tasks, Time.WHOLE)),
        "opa_R": None if order is None else _worst([tasks[at] for at in order]),
        "opa_schedulable": order is not None,
    }


def _anomaly(given: Inputs) -> Answer:
    tasks, offsets = _tasks(given, "tasks"), given.row("offsets")
    played = timeline.play(tasks, offsets)
    found = timeline.anomaly(tasks, offsets)
    return {
        "R_at_wcet": played,
        "ok": timeline.late(tasks, played) is None,
        "reduce_task": None if found is None else found.task,
        "to_C": None if found is None else found.cost,
        "R_reduced": None if found is None else found.responses,
        "misses_task": None if found is None else found.late,
        "sporadic_RTA": _worst(tasks),
    }


def _edf(given: Inputs) -> Answer:
    tasks = _tasks(given, "tasks_CTD")
    due = edf.demand(tasks)
    answer: dict[str, Answer] = {
        "demand": due.schedulable,
        "demand_fail_L": due.length,
        "exact_max_response": edf.edf_responses(tasks, edf.Ties.BY_PLACE),
        "pyRTA_bound": edf.edf_responses(tasks, edf.Ties.LOSE),
    }
    if all(task.deadline == task.period for task in tasks):
        found = edf.jeffay(tasks)
        answer["jeffay"] = found.schedulable
        answer["jeffay_fail"] = None if found.length is None else [found.task, found.length]
    return answer


# ------------------------------------------------------------------------------------------------------- pre-copy


def _occupancy(given: Inputs) -> Answer:
    cells, writes = given.whole("n"), given.whole("k")
    if cells > 0 and 0 <= writes <= EXACT_BITS_MAX // cells.bit_length():
        exact = occupancy_exact(cells, writes)
        return {"mean": exact.mean, "var": exact.variance}
    found = occupancy(cells, writes)
    return {"mean": found.mean, "var": found.variance}


def _block_union(given: Inputs) -> Answer:
    blocks = given.whole("blocks")
    if blocks <= EXACT_SERVERS:
        return rewriting.block_union(given.exact("W"), given.exact("m"), blocks)
    return rewriting.block_union(given.number("W"), given.number("m"), blocks)


def _coupon(given: Inputs) -> Answer:
    cells = given.whole("n")
    return writes_to_touch_all(cells) if cells <= EXACT_MAX else mean_writes_to_touch_all(cells)


def _linear(given: Inputs) -> Answer:
    stop = precopy.Stop(given.number("v_th"), precopy.ROUNDS_MAX)
    course = precopy.precopy(given.number("S"), given.number("B"), rewriting.Linear(given.number("D")), stop)
    if not course.converged:
        return {"V": course.volumes, "rounds": None, "bytes": None, "downtime": None, "total": None}
    return {
        "V": course.volumes,
        "rounds": course.rounds,
        "bytes": course.sent_bytes,
        "downtime": course.pause_s,
        "total": course.finish_s,
    }


def _saturating(given: Inputs) -> Answer:
    rounds = given.row("rounds")
    if any(at < 1 for at in rounds):
        raise BadValue("rounds count from one")
    shares = rewriting.saturating_shares(given.number("R_D_over_B"), max(rounds, default=0))
    return {"x": [shares[at - 1] for at in rounds]}


def _chain(given: Inputs) -> Answer:
    found = rewriting.chain(given.whole("M"), given.number("rho"), given.whole("rounds"))
    return {"E": found.means, "P_empty": found.empty_chances}


# ------------------------------------------------------------------------------------------- gate, pipelines, fleet


def _gate(given: Inputs) -> Answer:
    horizon_s = given.number("H")
    demand = Demand(given.number("S"), given.number("D"), horizon_s, horizon_s)
    fabric = Fabric(given.number("B"))
    live = judge(Way.PRECOPY, demand, fabric)
    return {
        "stop_copy": judge(Way.FREEZE, demand, fabric).finish_s,
        "precopy_limit": live.finish_s,
        "B_required": live.needed_wire_bytes_per_s,
        "admissible": live.admissible,
    }


def _pipeline(given: Inputs) -> Answer:
    names = ("S", "wire", "ratio", "compress", "decompress")
    return pipeline_s(stage_totals_s(*(given.exact(name) for name in names)), given.whole("K"))


def _unequal(given: Inputs) -> Answer:
    chunks = given.exact_table("stage_times")
    return {
        "makespan": makespan_s(chunks),
        "buffer0": makespan_s(chunks, 0),
        "buffer1": makespan_s(chunks, 1),
    }


def _lane(given: Inputs) -> Answer:
    names = ("S", "D", "H", "B_crc", "o")
    found = lane_fan_in(*(given.exact(name) for name in names))
    return {"N_frozen": found.frozen, "N_live": found.live, "fluid": found.fluid}


def _devices(given: Inputs) -> Answer:
    mix = Mix(given.whole("N"), given.number("f"), given.number("d"), given.number("A"))

    def devices(shortage: Shortage) -> int:
        return devices_needed(mix, shortage, given.number("eps"), given.number("t_wait"))

    return {
        "wait": devices(Shortage.WAIT),
        "call": devices(Shortage.CALL),
        "time": devices(Shortage.TIME),
        "binom": devices(Shortage.BINOMIAL),
    }


def _warm_buffer(given: Inputs) -> Answer:
    found = warm_buffer(given.whole("N"), given.number("cycle_s"), given.number("C_m"), given.number("eps"))
    return {"A": found.load, "c": found.slots}


def _greedy(given: Inputs) -> Answer:
    trace = (given.numbers("arrivals"), given.number("C"), given.number("H"))
    return {"accepted": admission.greedy(*trace), "optimal_count": admission.most_admitted(*trace)}


def _edf_insert(given: Inputs) -> Answer:
    rows = (given.numbers("arrivals"), given.numbers("C"), given.numbers("D"))
    if len({len(row) for row in rows}) != 1:
        raise BadValue("arrivals, C and D must be of one length")
    served = admission.run_edf([admission.Request(at, cost, at + due) for at, cost, due in zip(*rows, strict=True)])
    return {"accepted": [one.request for one in served], "start_finish": [[one.start, one.finish] for one in served]}


FORMULAS: Mapping[str, Formula] = {
    "admission_gate": _gate,
    "block_union": _block_union,
    "coupon": _coupon,
    "dm_vs_opa": _orders,
    "edf_insert_admission": _edf_insert,
    "engset": _engset,
    "engset_offered_alpha": _engset_offered,
    "erlang_b": _erlang_b,
    "erlang_b_max_load": lambda given: erlang_b_load(given.whole("c"), given.number("p")),
    "erlang_b_min_servers": _erlang_b_servers,
    "erlang_c": _erlang_c,
    "erlang_c_staffing": _staffing,
    "fleet_devices_needed": _devices,
    "greedy_fifo_admission": _greedy,
    "kstar": _kstar,
    "md1_bounded_wait_accept_prob": lambda given: {
        "P_accept": admission.ideal_accepted_share(given.number("L_in_service_times"), given.number("rho"))
    },
    "md1_finite_source": _fixed_service,
    "mmc": _mmc,
    "mmc_finite_source": _finite_source,
    "mmk_setup": _setup,
    "np_edf": _edf,
    "np_fp_anomaly": _anomaly,
    "np_fp_rta": _fixed_priority,
    "occupancy": _occupancy,
    "occupancy_pmf": lambda given: {"pmf": occupancy_pmf(given.whole("n"), given.whole("k"))},
    "peck_hazelwood": _peck_hazelwood,
    "pipeline_equal_chunks": _pipeline,
    "pipeline_variable": _unequal,
    "precopy_binomial_chain": _chain,
    "precopy_linear": _linear,
    "precopy_saturating": _saturating,
    "precopy_saturating_fixed_point": lambda given: {"x": rewriting.saturating_floor(given.number("R_D_over_B"))},
    "verify_lane_fanin": _lane,
    "warm_buffer": _warm_buffer,
}
"""By the name that a case gives."""
