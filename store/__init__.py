"""The database floor (floor 1). `store.database.Store` opens a database; `store.models` holds the tables."""
