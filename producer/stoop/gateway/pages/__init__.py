"""The pages for people, the playground and the dashboard, and the routes that only they need.

page_routes.py   their rows of the table of routes
files.py         the static files, and the headers that bind a page to them
uploads.py       uploads a picture or a recording, and shows a picture that workers can read
queue_routes.py  the queue once and as a stream, lanes paused and resumed
record.py        one job's record, and the jobs that wait in no lane
choice.py        the dead letters that a request means
letters.py       dead letters: listed, grouped by cause, redriven, purged
static/          HTML, CSS and ES modules, served as they are: no build step
"""

__all__: list[str] = []
