"""The benchmark as pure data: hierarchy, schedule, split, stream, and checks of them."""
