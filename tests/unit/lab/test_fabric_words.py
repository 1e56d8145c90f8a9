"""Ports of a fabric as values, and what `tc` printed."""

import pytest

from worldline.errors import BadValue
from worldline.lab.fabric.counters import PortCounters, read_port
from worldline.lab.fabric.port import Dilation, Port, drop_words, shape_words, switch_link


def test_a_rate_is_written_as_people_write_it():
    assert Port.of("200Mbit").rate_bytes_per_s == 25e6


@pytest.mark.parametrize(
    "wrong", [{"rate": "1kbit"}, {"rate": "1Mbit", "mtu_bytes": 10}, {"rate": None, "buffer_bytes": 100}]
)
def test_a_port_that_no_packet_passes_is_refused(wrong):
    with pytest.raises(BadValue):
        Port.of(**wrong)


def test_four_bundles_of_packets_fit_into_a_small_buffer():
    assert Port.of("200Mbit", 48_000).segment_bytes == 12_000
    assert Port.of("5Gbit").segment_bytes == 65_536


def test_a_port_without_a_rate_is_not_shaped():
    assert list(shape_words("p-a", Port())) == []


def test_names_at_the_switch_fit_the_kernel():
    assert len(switch_link("a-very-long-name-of-a-host")) == 15


@pytest.mark.parametrize("part", [0, -0.1, 1.1])
def test_a_part_that_is_none_is_refused(part):
    with pytest.raises(BadValue):
        list(drop_words("p-a", part))


def test_times_stretch_as_the_rate_shrinks():
    dilation = Dilation(rate_bytes_per_s=1.25e9, emulated_bytes_per_s=25e6)
    assert dilation.factor == 50
    assert dilation.emulated_s(0.4) == 20
    assert dilation.real_s(20) == 0.4


def test_a_ports_counters_are_those_of_its_root_and_its_control_class():
    printed = (
        '[{"kind":"htb","handle":"1:","root":true,"bytes":9,"packets":2,"drops":1,"backlog":5},'
        '{"kind":"bfifo","parent":"1:3","bytes":4}]'
    )
    assert read_port(printed) == PortCounters(9, 2, 1, 5, 4)
