"""The command line `stoop`.

app.py               the root command, and the list of all commands
command_group.py     loads a command only when it is called
skills.py            `stoop query`, `caption`, `detect`, `point`, `gaze` and `run`
chat.py              `stoop chat`
texts.py             `stoop embed` and `stoop rerank`
speech.py            `stoop transcribe` and `stoop translate`
schedule.py          `stoop schedule`
skill_options.py     the options that these share
result.py            `stoop result`
queue.py             `stoop status`, `workers`, `models`, `cancel`, `pause` and `resume`
dead.py              `stoop dead`: list, redrive or delete dead letters
operator_options.py  the options and the connection that the operator's commands share
bulk.py              `stoop bulk`
bulk_embed.py        `stoop bulk-embed`
export.py            `stoop export` and `stoop draw`
up.py                `stoop up`
first_request.py     the request that `stoop up` proposes
serve.py             `stoop serve`
exporter.py          `stoop exporter`
keys.py              `stoop keys`
demo.py              `stoop demo`
render.py            prints answers, events and errors: answers to stdout, everything else to stderr
render_queue.py      prints the operator's tables, or JSON
exit_codes.py        the exit code of each error
"""

__all__: list[str] = []
