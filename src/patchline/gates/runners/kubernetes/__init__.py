"""Engines as pods of a Kubernetes cluster, the team's production engine; each play has a namespace of its own.

Not run on a cluster by those who wrote it: none was at hand. What was run: every manifest against the published
schemas, and through the real `kubectl`, which checked it on this side with definitions that a stand-in for an API
server gave it; and all that happens around a play, against a fake `kubectl`. What only a cluster can show was not
seen: that images pull and run as user 1000, that the device plugins give GPUs and RDMA devices, that the network plugin
enforces the policy, that a port-forward lasts, and that a namespace goes away in time.

One thing about the pods was run on this side, with Dynamo 1.6.0's own runtime: a worker's `/health` on the port
`DYN_SYSTEM_PORT` says 503 for ever unless DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS names an endpoint, and 200 from the
moment that this is served.
"""
