"""Where the engines of a gate run: on this host, in a Slurm allocation, or in a Kubernetes namespace."""
