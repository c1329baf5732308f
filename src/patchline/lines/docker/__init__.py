"""The docker daemon: images in it, containers, and the builder that runs a Dockerfile."""
