"""Grammars that a text must follow: JSON by a schema, or a regular expression. llguidance compiles and follows them.

    grammars.py       compiles grammars for a model's tokens, and keeps them
    json_tokens.py    a tokenizer without the tokens that no JSON contains, for schemas
    limits.py         the bounds on the work that a grammar may cost
    trial.py          compiles each new grammar in a process of its own first, because it comes from a stranger
    trial_program.py  the program of that process
    free_strings.py   finds the strings of a schema whose characters make no difference to what follows
    states.py         names the states of JSON texts
    constraint.py     follows one text through its grammar
    masks.py          the ids that the next tokens of several texts may have

This file imports nothing, so that importing one module imports no other.
"""

__all__: list[str] = []
