"""State machines of Hypothesis: a flow against a service that changes and fails, beside a model of it."""
