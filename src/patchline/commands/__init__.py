"""One module a verb: `configure` its arguments, `run` it; each calls one function of a room."""
