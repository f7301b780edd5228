"""The entry point that configs/kernelwright.yaml names; the code is in the package `kernelwright_nemo`."""

from kernelwright_nemo import KernelResourcesServer

if __name__ == "__main__":
    KernelResourcesServer.run_webserver()
