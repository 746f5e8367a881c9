"""What an answer must look like: told to a model, found in what it said, and checked.

A form never says whether an answer is right.
"""

from __future__ import annotations

from nbrefine.answers.fields import fields_form, fields_of, only_fields
from nbrefine.answers.forms import form_of
from nbrefine.answers.said import described, problem, reminder, spoken

__all__ = [
    "described",
    "fields_form",
    "fields_of",
    "form_of",
    "only_fields",
    "problem",
    "reminder",
    "spoken",
]
