"""The facts that `svt models` shows at once: of every network of ours, at the size of input that it shows unasked.

python scripts/network_facts_table.py            writes svtoolkit/planning/network_facts.json (two minutes)
python scripts/network_facts_table.py 'rev*'     finds those of these networks anew; what else is stored stays
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from svtoolkit.config import ModelsConfig
from svtoolkit.models.registry import NETWORKS
from svtoolkit.planning.model_survey import survey_networks
from svtoolkit.planning.network_facts import STORED, match_names
from svtoolkit.system.progress import show_progress


def main(patterns: list[str]) -> None:
    size = ModelsConfig()
    names = [name for name in match_names(patterns) if name in NETWORKS.rows]
    before = json.loads(STORED.read_text(encoding="utf-8"))["networks"] if patterns else []
    found = {facts["name"]: facts for facts in before}
    with show_progress("networks", len(names), "network") as progress:
        for facts in survey_networks(names, frames=size.frames, num_bins=size.num_bins):
            found[facts.name] = asdict(facts)
            progress.update()
    networks = [found[name] for name in NETWORKS.rows if name in found]
    table = {"frames": size.frames, "num_bins": size.num_bins, "networks": networks}
    STORED.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
