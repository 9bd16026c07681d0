import pytest

from benchmarks.energy import EnergyMeter, Samples


def test_energy_is_in_line_between_the_counters_renewals() -> None:
    samples = Samples()
    for moment, joules in ((1.0, 50.0), (1.02, 50.0), (1.1, 60.0), (1.12, 60.0), (1.3, 80.0)):
        samples.add(moment, joules)
    assert samples.between(1.0, 1.3) == pytest.approx(30)
    assert samples.between(1.05, 1.2) == pytest.approx(15)
    assert samples.between(1.1, 1.1) == pytest.approx(0)


def test_energy_beyond_the_readings_is_unknown() -> None:
    samples = Samples()
    assert samples.between(1.0, 2.0) is None
    samples.add(1.0, 50.0)
    assert samples.between(1.0, 1.0) is None
    samples.add(2.0, 60.0)
    assert samples.between(0.9, 2.0) is None
    assert samples.between(1.0, 2.1) is None


def test_a_device_without_a_counter_has_no_energy() -> None:
    with EnergyMeter("cpu") as meter:
        assert meter.joules(0.0, 0.0) is None
