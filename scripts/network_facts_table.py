"""The facts that `svt models` shows at once: of every network of ours, at the size of input that it shows unasked.

python scripts/network_facts_table.py        writes svtoolkit/planning/network_facts.json (two minutes)
"""

from __future__ import annotations

import json
from dataclasses import asdict

from svtoolkit.config import ModelsConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.model_survey import survey_networks
from svtoolkit.planning.network_facts import STORED
from svtoolkit.system.progress import show_progress


def main() -> None:
    size = ModelsConfig()
    names = list(NETWORKS.rows)
    found = survey_networks(names, frames=size.frames, num_bins=size.num_bins)
    networks = []
    with show_progress("networks", len(names), "network") as progress:
        for facts in found:
            networks.append(asdict(facts))
            progress.update()
    table = {"frames": size.frames, "num_bins": size.num_bins, "networks": networks}
    STORED.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
