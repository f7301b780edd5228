"""What to do next. Floor 2: may import store, tools and policies."""
