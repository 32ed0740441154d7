"""In a revision's environment: every exact scenario, a line of JSON for each. `--without` names backends, `--only` ids.

The plan comes first, so that whoever reads can tell what is missing.
"""

from __future__ import annotations

import argparse
import json

import rewardcore
from bench import harness
from bench.figures import exact_scenarios, is_clocked, measure
from bench.scenarios import Scenario


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    harness.check_measured(rewardcore.__file__)
    scenarios = [
        scenario
        for scenario in exact_scenarios()
        if scenario.backend not in options.without and (options.only is None or scenario.id in options.only)
    ]
    plan = {scenario.id: [scenario.version, is_clocked(scenario)] for scenario in scenarios}
    print(json.dumps({"plan": plan}), flush=True)
    for scenario in scenarios:
        print(json.dumps({"scenario": scenario.id, **_answer(scenario)}), flush=True)


def _answer(scenario: Scenario) -> dict[str, object]:
    try:
        records = [record for record in measure(scenario) if record.exact]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"figures": {each.metric: [each.value, each.unit, each.direction] for each in records}}


if __name__ == "__main__":
    main()
