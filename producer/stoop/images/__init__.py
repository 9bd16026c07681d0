"""The images of a caller: from a file, bytes, pixels or an array to an address that workers can read.

source.py  the accepted forms of an image, and the bytes that are uploaded
upload.py  uploads images to the object store, and reads them back
store.py   connects to the object store
"""

__all__: list[str] = []
