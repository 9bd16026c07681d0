"""Two releases side by side on one queue.

previous.py          the previous release as a wheel, built from a revision of git
client_program.py    a producer of either release, as a program that may be killed
two_releases.py      workers and producers of both under load, with kills
__main__.py          runs it: `make upgrade-test`
record.py            records the keys that a release leaves in Redis
record_program.py    its jobs
keys.py              the keys of a Redis as a file, and back
recorded/            those of earlier releases
test_recorded.py     today's workers and clients understand them, and write nothing that they would not
"""
