"""The maths, pure: admissibility, response times, queueing, pre-copy, pipelines. Nothing here knows a session.

A function answers for any unit of size and time that all its arguments share; the names say bytes and seconds.
`float` in, `float` out; `Fraction` in, `Fraction` out, exactly, where the type says `Real`.

What a number may be is checked where it enters (`domain`): a negative, a NaN, an infinity that makes no sense, a load
that no queue can carry is `BadValue`, or the limit that the docstring names. Every loop has a limit, and what lies
beyond it is `BadValue` too.
"""
