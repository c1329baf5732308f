"""Engines as steps of a Slurm job; a gate outside of one submits itself."""
