"""Code inside the sandbox, or forking such processes. The trusted side is the folder above."""
