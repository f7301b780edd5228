"""Where OpenEnv's builder looks for the application."""
