"""Clients of other projects, unmodified and each in an environment of its own, against a gateway: `make clients`.

conftest.py      the gateways that the clients call
environments.py  what each client needs, and its installation
test_clients.py  one test for each client
test_grpc.py      Triton's client against the gateway's gRPC
test_schemathesis.py  every route by what its OpenAPI document says
test_proxies.py  streams that are quiet for longer than the proxies between wait
programs/        what runs in the environments: plain programs that import neither Stoop nor pytest
"""
