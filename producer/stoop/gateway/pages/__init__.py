"""The playground, and the routes that only it needs.

page_routes.py   its rows of the table of routes
files.py         the static files, and the headers that bind the page to them
pictures.py      uploads a picture, and shows one that workers can read
static/          HTML, CSS and ES modules, served as they are: no build step
"""

__all__: list[str] = []
