"""What every test shares: how hypothesis draws."""

from hypothesis import HealthCheck, settings

# No deadline: shared machines stall. Derandomised: a change is judged by its own merits, not by the day's draw.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
