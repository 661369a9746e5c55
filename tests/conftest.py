"""What holds for all tests: a slow machine fails none of them."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "covey", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("covey")
