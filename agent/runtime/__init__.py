"""What every command stands on: exit codes, signals, files, threads, databases, devices."""
