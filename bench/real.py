"""A real endpoint, named by the user: checked with one request, its cost told first, and capped."""

from __future__ import annotations

from dataclasses import dataclass

import rewardcore
from bench.scenarios import GRID, Scenario, samples_of
from rewardcore import Endpoint, Sample

#: A rough rule for text in English.
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Budget:
    max_requests: int
    max_tokens: int


@dataclass(frozen=True)
class RealEndpoint:
    endpoint: Endpoint
    budget: Budget
    scenarios: tuple[Scenario, ...]
    left_out: tuple[Scenario, ...]

    @classmethod
    def connect(cls, base_url: str, model: str, api_key_env: str, budget: Budget) -> RealEndpoint:
        """Raises ValueError where the endpoint cannot be used, saying what to change."""
        endpoint = Endpoint(base_url, model, api_key_env=api_key_env, max_tokens=budget.max_tokens)
        with rewardcore.open_judge("sync", endpoint, cache=None, deadline=20.0) as judge:
            (verdict,) = judge.judge([Sample("Does this endpoint answer?", "It should.")])
        if verdict.status in ("failed", "timeout"):
            raise ValueError(f"{base_url} does not judge: {verdict.error}")
        chosen, left_out, requests = [], [], 0
        for scenario in sorted((s for s in GRID if s.backend == "real"), key=lambda s: (s.n, s.mode)):
            if requests + scenario.requests <= budget.max_requests:
                chosen.append(scenario)
                requests += scenario.requests
            else:
                left_out.append(scenario)
        return cls(endpoint, budget, tuple(chosen), tuple(left_out))

    def estimate(self) -> str:
        requests = sum(scenario.requests for scenario in self.scenarios)
        read = sum(_prompt_tokens(scenario) for scenario in self.scenarios)
        wrote = requests * self.budget.max_tokens
        line = (
            f"real endpoint {self.endpoint.base_url}, model {self.endpoint.model!r}: {requests} requests, "
            f"about {read:,} prompt tokens and at most {wrote:,} completion tokens "
            f"(--max-requests {self.budget.max_requests})"
        )
        if self.left_out:
            line += f"; left out to stay below that: {', '.join(scenario.id for scenario in self.left_out)}"
        return line


def _prompt_tokens(scenario: Scenario) -> int:
    characters = sum(len(sample.prompt) + len(sample.response) + 900 for sample in samples_of(scenario))
    return characters // _CHARACTERS_PER_TOKEN
