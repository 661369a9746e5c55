"""What holds for all tests: a slow machine fails none of them, and kernels check the types of arguments."""

from hypothesis import HealthCheck, settings

from covey.matcher.kernel import check_types

settings.register_profile(
    "covey", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("covey")
check_types()
