"""The application by the name that openenv.yaml gives; its code is in the package `kernelwright_openenv`."""

from kernelwright_openenv.app import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
