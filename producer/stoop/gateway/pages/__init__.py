"""The pages for people, the playground and the dashboard, and the routes that only they need.

page_routes.py   their rows of the table of routes
files.py         the static files, and the headers that bind a page to them
uploads.py       uploads a picture or a recording, and shows a picture that workers can read
watch.py         one look at the queue a second for all viewers
queue_routes.py  the queue once and as a stream, lanes paused and resumed
record.py        one job's record, and the jobs that wait in no lane
choice.py        the dead letters that a request means
letters.py       dead letters: listed, redriven, purged
causes.py        dead letters grouped by cause, one look a second for all viewers
static/          HTML, CSS and ES modules, served as they are: no build step
"""

__all__: list[str] = []
