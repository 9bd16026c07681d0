"""Speed of the families beside Moondream: models of full size with random weights, behind the product's engine.

run.py         the command: checks a model's answers, then runs its workloads
sizes.py       the config.json of each model, released and tiny
languages.py   tokenizers and templates for random models
checkpoint.py  random weights, and the folder from which the product loads them
opened.py      a model behind its engine, and the same weights in transformers
stepping.py    requests that begin at once
check.py       compares answers with transformers
figure.py      one line of the table of figures
chats.py       the workloads of chat models
forms.py       the workload of answers that follow a schema
pictures.py    the workloads of models that see
texts.py       the workloads of encoders
speech.py      the workloads of Whisper
hour.py        that of one long recording
front_process.py  the process that decodes it
host_work.py   the interpreter's work in a decode step, without a GPU
summing_model.py  the model under it, which computes next to nothing
mask_cost.py   the masks of JSON, with the vocabulary of a real tokenizer
step_times.py  where a decode step's time goes, kernel by kernel and in the engine's thread
timed_parts.py  time by part of a program
"""

__all__: list[str] = []
