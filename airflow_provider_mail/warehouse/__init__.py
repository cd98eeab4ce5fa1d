"""The database side: declared tables, repeatable loads, and reading in constant memory.

The layers, from top to bottom: ``load``, ``read``, ``files`` and ``read_files``; ``connection``; ``dialects``;
``tables``; ``request``, ``rows``, ``table`` and ``errors``. Operators import them when a task runs, never when a
DAG file is parsed.
"""
