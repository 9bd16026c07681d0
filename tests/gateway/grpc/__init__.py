"""KServe's protocol by gRPC, asked by Triton's own client, unmodified.

client.py            inputs, streams and keys for that client
test_infer.py        every skill, plain and streamed, and errors by their codes
test_streams.py      many streams, callers that leave, and a gateway that ends
test_leaving.py      callers that leave while their jobs are submitted
test_rights.py       keys, limits, TLS and the options
test_observed.py     readiness, the log, metrics and traces
test_tensors.py      tensors of all kinds, good and bad
test_protocol.py     the messages beside Triton's own
test_fuzz.py         requests that make no sense
"""
