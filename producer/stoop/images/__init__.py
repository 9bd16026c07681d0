"""The images and recordings of a caller: from a file, bytes or pixels to an address that workers can read.

source.py      the accepted forms of an image, and the bytes that are uploaded
recording.py   the accepted forms of a recording
local_file.py  reads a caller's file within a bound
upload.py      uploads images and recordings to the object store, and reads images back
store.py       connects to the object store, and explains its refusals
"""

__all__: list[str] = []
