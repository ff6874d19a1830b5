"""An OpenAI-compatible server on the loopback interface.

``fields`` says which request fields are taken, ``requests`` turns a body into a typed
request, ``scheduler`` runs one generation at a time, ``generation`` is what a generation
does, ``chat`` and ``completions`` shape the answers of their endpoints, ``app`` routes.
FastAPI and uvicorn are imported below this package only.
"""
