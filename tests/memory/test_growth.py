"""What grows with a batch, told by the size that it has in one."""

from __future__ import annotations

import pytest

from svtoolkit.memory.growth import Growth, is_prime


def test_a_size_is_that_of_the_batch_of_a_part_or_of_neither():
    growth = Growth(parts=8)
    assert growth.batch == 8 * growth.part - 1
    assert growth.line(1024) == (1024, 0)
    assert growth.line(640 * growth.batch) == (0, 640)
    assert growth.line(640 * growth.part) == growth.line(640 * (growth.part - 1)) == (560, 80)


@pytest.mark.parametrize("parts", [2, 3, 4, 7, 16])
def test_what_a_network_divides_in_its_own_way_grows_all_the_same(parts):
    growth = Growth([25_000_000])
    always, per_crop = growth.line(4096 * -(-growth.batch // parts))
    assert per_crop == pytest.approx(4096 / parts, rel=1e-6)
    for crops in range(1, 100):
        assert always + per_crop * crops >= 4096 * -(-crops // parts) - 1e-3
    assert growth.line(4 * 25_000_000) == (4 * 25_000_000, 0)
    size = 4096 * -(-growth.batch // 3)
    assert Growth().line(size) == (size, 0)


@pytest.mark.parametrize("parts", [8, 16])
def test_the_line_of_a_part_is_met_where_a_part_grows_and_never_below_it(parts):
    growth = Growth(parts=parts)
    always, per_crop = growth.line(48 * growth.part)
    for crops in range(1, 100):
        taken = 48 * -(-crops // parts)
        assert always + per_crop * crops >= taken
        if crops % parts == 1:
            assert always + per_crop * crops == taken


def test_no_weight_is_a_multiple_of_a_part():
    first = Growth()
    other = Growth([3 * first.batch])
    assert other.batch != first.batch
    assert all(is_prime(growth.batch) and is_prime(growth.part) for growth in (first, other))
    assert Growth([(first.part - 1) // 2]).part != first.part


def test_primes():
    assert [number for number in range(20) if is_prime(number)] == [2, 3, 5, 7, 11, 13, 17, 19]
