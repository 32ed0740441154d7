"""The harness that measures rewardcore: scenarios, simulated endpoints, virtual time, records and gates."""
