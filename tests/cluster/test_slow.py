"""Rails of which one is far slower than the other: slow is not dead."""

from __future__ import annotations

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
MIB = 1 << 18  # elements


@pytest.mark.parametrize("rate", ["2mbit", "10mbit"])
def test_slow_rail(rate: str) -> None:
    """Neither rail is given up, though one segment takes longer than silence is borne."""
    with Testbed(hosts=2, rails={"eth0": "1gbit", "eth1": rate}, prefix="ct_slow") as bed:
        work = job.run(bed, elements=4 * MIB, operations=60, rails=job.rails_option(RAILS))
        for rank in work.ranks:
            for name in RAILS:
                assert rank.rail(name)["sent"] > 0, work.told()
                assert not rank.rail(name)["failures"], work.told()
