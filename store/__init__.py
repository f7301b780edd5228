"""Floor 1: what happened. `store.database.Store` opens it; `store.models` are its rows."""
