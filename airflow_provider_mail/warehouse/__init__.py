"""The database side: declared tables, repeatable loads, and reading in constant memory.

The layers, from top to bottom: ``files`` and ``read_files``; ``database``; ``dialects``; ``tables``; ``request``,
``rows``, ``table`` and ``errors``. Operators import them when a task runs, never when a DAG file is parsed.
"""
