"""An image address to bytes.

fetcher.py         reads any address: an object, an image in the address itself, or a web server's if allowed
direct.py          reads ordinary objects on the event loop
signature.py       signs those requests
address.py         parses the addresses of objects and inline images
address_web.py     parses `https://` addresses
address_public.py  recognises public IP addresses
https.py           reads images from web servers
counted.py         counts fetched bytes and failures
adapter_source.py  reads LoRA adapters from the place that the operator names
public_backend.py  connects to public hosts only, pinned to the address that was checked
"""

__all__: list[str] = []
